"""Numbers agree with their nouns, and what others wrote can be shown on a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.api.wording import counted, noun_for, printable, printable_lines


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")], ids=["none", "one", "several"]
)
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "pod") == text
    assert noun_for(number, "pod") == text.split()[1]


def test_a_plural_may_be_irregular() -> None:
    assert (counted(1, "class", "classes"), counted(2, "class", "classes")) == ("1 class", "2 classes")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("3 of 4 free, größer als 2", "3 of 4 free, größer als 2"),
        ("\x1b[2J\x1b]52;c;aGk=\x07", "\\x1b[2J\\x1b]52;c;aGk=\\x07"),
        ("a\nok\ttab\r\x7f\x9b", "a\\nok\\ttab\\r\\x7f\\x9b"),
        ("\u202egpj.exe\u2028", "\\u202egpj.exe\\u2028"),
        ("\ud800", "\\ud800"),
    ],
    ids=["plain", "escape sequences", "controls", "order of writing", "half a character"],
)
def test_a_terminal_obeys_nothing_of_a_text(written: str, shown: str) -> None:
    assert printable(written) == shown


@given(st.text())
def test_every_text_becomes_printable_and_stays_the_same_then(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert printable_lines(text).split("\n") == [printable(line) for line in text.split("\n")]
