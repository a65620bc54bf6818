"""Numbers with their nouns in messages that people read. Pure."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """ "1 pod", "2 pods"; `plural` is for nouns that take more than an s."""
    return f"{number} {noun_for(number, noun, plural)}"


def noun_for(number: int, noun: str, plural: str = "") -> str:
    """The noun alone, in the form that agrees with the number."""
    return noun if number == 1 else plural or f"{noun}s"
