"""Mappings that users write into a text: what they are read as, and what costs nothing because it is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orjson import dumps
from tests.support.effort import cpu_seconds

from parley.sdk.documents import MAX_VALUES, BadDocument, read_mapping


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count: 2\nmodel: a100\n", {"count": 2, "model": "a100"}),
        ('{"count": 2, "deep": [{"a": null}]}', {"count": 2, "deep": [{"a": None}]}),
        ("on: yes\nday: 2026-01-01", {"on": "yes", "day": "2026-01-01"}),
        ("span: 1:30\nsize: 0x1f", {"span": "1:30", "size": "0x1f"}),
        ("a: 1.5\nb: -3\nc: 1e3\ng: .nan", {"a": 1.5, "b": -3, "c": 1000.0, "g": ".nan"}),
        ("d: true\ne: ~\nf:\n", {"d": True, "e": None, "f": None}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ('{"a": "\\u0085", "b": "\\u2029"}', {"a": "\x85", "b": "\u2029"}),
        ("{}", {}),
    ],
)
def test_what_json_can_hold_is_read(text: str, value: dict[str, Any]) -> None:
    assert read_mapping(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x [1]\nb: *x", "has an anchor or alias in line 1: write the values out"),
        ("b: *x", "has an anchor or alias in line 1: write the values out"),
        ("a: 1\nb: !!python/object/apply:os.system [x]", "has a tag in line 2: leave it out"),
        ("a: !!binary aGk=", "has a tag in line 1: leave it out"),
        ("a: " + "[" * 65 + "]" * 65, "nests deeper than 64 levels: make it flatter"),
        ("- 1", "is not a mapping: write `name: value` lines, or a JSON object"),
        ("", "is not a mapping: write `name: value` lines, or a JSON object"),
        ("a: 1\na: 2", "is neither YAML nor JSON: line 2: a name is given twice"),
        ("1: 2", "is neither YAML nor JSON: line 1: a name is not a string"),
        ("? [a]\n: 2", "is neither YAML nor JSON: line 1: a name is not a string"),
        ("a: 1\n---\nb: 2", "is neither YAML nor JSON: line 2: but found another document"),
        ("a: 1e999", "has a number that JSON can't hold"),
        ("a: " + "9" * 9000, "is neither YAML nor JSON"),
        ("a: \x00", "is neither YAML nor JSON"),
        ('{"a": "\x85"}', 'has the character U+0085 in line 1: write "\\u0085"'),
        ("a: 1\nb: x\u2028y", 'has the character U+2028 in line 2: write "\\u2028"'),
        ("a: [" + "1," * MAX_VALUES + "]", f"has more than {MAX_VALUES} names and values: shorten it"),
    ],
)
def test_anything_else_is_refused_with_the_line(text: str, why: str) -> None:
    with pytest.raises(BadDocument) as refused:
        read_mapping(text)
    assert str(refused.value) == why


@pytest.mark.parametrize("text", ["[" * 10_000, "{a: " * 2500, "- " * 5000, "a: [" + "[]," * 3400, '"' * 10_000])
def test_a_text_that_is_made_to_be_slow_is_not(text: str) -> None:
    def read() -> None:
        with pytest.raises(BadDocument):
            read_mapping(text)

    assert cpu_seconds(read) < 0.1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), _JSON, max_size=6))
def test_json_is_read_as_json_or_refused(value: dict[str, Any]) -> None:
    try:
        text = dumps(value).decode()
        found = read_mapping(text)
    except (BadDocument, TypeError):
        return
    assert found == value


@given(st.text(max_size=200))
def test_no_text_makes_it_fail_in_another_way(text: str) -> None:
    try:
        read_mapping(text)
    except BadDocument:
        pass
