"""Numbers agree with their nouns."""

import pytest

from parley.api.wording import counted, noun_for


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")], ids=["none", "one", "several"]
)
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert counted(number, "pod") == text
    assert noun_for(number, "pod") == text.split()[1]


def test_a_plural_may_be_irregular() -> None:
    assert (counted(1, "class", "classes"), counted(2, "class", "classes")) == ("1 class", "2 classes")
