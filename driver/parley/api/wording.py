"""Formats numbers with nouns or units, lists of names, and texts of others, for messages to users. Pure."""

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
    """Names for a sentence: the first `most` of them, and the number of the others."""
    all_names = list(names)
    more = f" and {len(all_names) - most} more" if len(all_names) > most else ""
    return f"{', '.join(all_names[:most])}{more}"


def printable(text: str) -> str:
    """The text in one line, with control characters escaped, which a terminal would obey: users, drivers and
    containers can write any."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_lines(text: str) -> str:
    """The text with control characters escaped, but not its line feeds."""
    return "\n".join(map(printable, text.split("\n")))


def bytes_text(amount: int) -> str:
    """ "1.5Gi", "20Mi", "1020Mi": three significant digits, or all digits before the point."""
    number, unit = (amount / _GI, "Gi") if amount >= _GI else (amount / _MI, "Mi")
    return f"{number:.0f}{unit}" if number >= _HUNDRED else f"{number:.3g}{unit}"
