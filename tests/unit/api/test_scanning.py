"""Where JSON values begin and end, told without a decoder: for all JSON, however it nests and is written."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.effort import cpu_seconds

from parley.api.scanning import elements, members, nests_deeper, value_end

words = st.text(alphabet='"\\[]{},: a\u00e9\u2028\x00', max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner) | st.dictionaries(words, inner),
    max_leaves=20,
)
texts = st.sampled_from(["{}", "[[]]", '"}"', '"\\"]"', '"\\ud800"', "1e400", "-0.0E-7", '{"a":[{"]":"["}]}'])
blanks = st.sampled_from(["", " ", "\n", "\t \r\n"])


@st.composite
def written(draw: st.DrawFn) -> str:
    """A JSON text as some server may write it."""
    if draw(st.booleans()):
        return draw(texts)
    indent = draw(st.sampled_from([None, 0, 2]))
    return json.dumps(draw(values), indent=indent, ensure_ascii=draw(st.booleans()))


def depth(value: Any) -> int:
    inner: Iterator[Any] = iter(value.values() if isinstance(value, dict) else value)
    return 1 + max((depth(child) for child in inner if isinstance(child, dict | list)), default=0)


@given(st.lists(written(), max_size=6), blanks)
def test_a_list_is_told_apart(items: list[str], blank: str) -> None:
    text = f"[{blank}{f'{blank},{blank}'.join(items)}{blank}]".encode(errors="surrogatepass")

    assert [item.decode(errors="surrogatepass") for item in elements(text, 0)] == items
    assert value_end(text + b", 1]}", 0) == len(text)


@given(st.lists(st.tuples(words, written()), max_size=6), blanks)
def test_an_object_is_told_apart(pairs: list[tuple[str, str]], blank: str) -> None:
    parts = (f"{json.dumps(name)}{blank}:{blank}{value}" for name, value in pairs)
    text = f"{blank}{{{blank}{f'{blank},{blank}'.join(parts)}{blank}}}".encode(errors="surrogatepass")

    found = [
        (json.loads(b'"' + m.name + b'"'), text[m.start : m.end].decode(errors="surrogatepass"))
        for m in members(text)
    ]

    assert found == pairs


@given(st.binary(max_size=60) | st.text(alphabet='[]{}",:\\ a1', max_size=60).map(str.encode))
def test_what_is_no_json_is_an_error_or_cut_somewhere_but_never_hangs(text: bytes) -> None:
    for read in (value_end, lambda t, at: list(elements(t, at)), lambda t, at: list(members(t, at))):
        try:
            read(text, 0)
        except ValueError:
            continue


@given(values.filter(lambda value: isinstance(value, dict | list)), st.integers(1, 6))
def test_depth_is_counted(value: Any, limit: int) -> None:
    assert nests_deeper(json.dumps(value).encode(), limit) == (depth(value) > limit)


@pytest.mark.parametrize("deep", [65, 2_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":[', b"]}]")])
def test_nothing_recurses(deep: int, opening: bytes, closing: bytes) -> None:
    text = opening * deep + b"1" + closing * deep

    assert value_end(text + b"]]]}", 0) == len(text)
    assert nests_deeper(text, 64)
    assert not nests_deeper(b'"' + text.replace(b'"', b"") + b'"', 64)


@pytest.mark.parametrize(
    "unit", [b"[],", b"[[]],", b'{"":{"":{"":1}}},', b'"\\"",', b"[1" + b"]", b"[" * 100 + b"]" * 100 + b","]
)
def test_work_is_linear_in_the_text(unit: bytes) -> None:
    steps = [_units_per_second(unit, count) for count in (2_000, 20_000)]

    assert steps[1] > steps[0] / 5


def _units_per_second(unit: bytes, count: int) -> float:
    text = b"[" + (unit.rstrip(b",") + b",") * count + b"1]"
    return count / max(cpu_seconds(lambda: value_end(text, 0)), 1e-6)
