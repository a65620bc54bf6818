"""Numbers with their nouns or units, lists of names, and what others wrote, in texts that people read. Pure."""

from collections.abc import Iterable
from typing import Final

_MI: Final = 1024**2
_GI: Final = 1024**3
_HUNDRED: Final = 100


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 pod", "2 pods"; `plural` is for nouns that take more than an s."""
    return f"{number} {noun_for(number, noun, plural)}"


def noun_for(number: int, noun: str, plural: str = "") -> str:
    """The noun alone, in the form that agrees with the number."""
    return noun if number == 1 else plural or f"{noun}s"


def listed(names: Iterable[str], most: int = 5) -> str:
    """Names in a sentence, the first few of them."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return f"{', '.join(found[:most])}{more}"


def printable(text: str) -> str:
    """The text in one line, with escapes for the characters that a terminal obeys instead of showing them: users,
    drivers and containers write what they like."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_lines(text: str) -> str:
    """The same of a text that may have several lines."""
    return "\n".join(map(printable, text.split("\n")))


def bytes_text(amount: int) -> str:
    """ "1.5Gi", "20Mi", "1020Mi": three digits of it, or all before the point."""
    number, unit = (amount / _GI, "Gi") if amount >= _GI else (amount / _MI, "Mi")
    return f"{number:.0f}{unit}" if number >= _HUNDRED else f"{number:.3g}{unit}"
