"""Numbers with their nouns, and lists of names, in messages that people read. Pure."""

from collections.abc import Iterable


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
