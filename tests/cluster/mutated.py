"""Objects made from a structural schema, and what is worth putting into them to break something. Strategies."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
Path = tuple[str | int, ...]

MOST_INT64 = 2**63 - 1
ODD_TEXTS = (
    "",
    " ",
    "a",
    "é",
    "\u202eabc",
    "💥",
    "\x00",
    "a\n",
    "\ud800",
    "A_b.c",
    "٣",
    "-1",
    "null",
    "2026-02-31T25:61:61Z",
    "2026-02-31T23:59:59Z",
    "1e1000000000",
)
NUMBERS = (-MOST_INT64 - 1, -1, 0, 1, 1.0, 1.5, 101, 1e3, 2**31, 2**53, 2.0**53, MOST_INT64, MOST_INT64 + 1, 1e300)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [None], {"": None}, {"a": None}, "text", 7)


def _deep(depth: int) -> Json:
    return json.loads('{"a":' * depth + "1" + "}" * depth)  # type: ignore[no-any-return]


odd = st.one_of(st.sampled_from(ODD_TEXTS), st.sampled_from(NUMBERS), st.sampled_from(OTHERS), st.just(_deep(230)))


def texts(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Texts at the limits of a field: one character, or one of two bytes, too many."""
    most = schema.get("maxLength", 300)
    sizes = st.sampled_from([most - 1, most, most + 1])
    return st.one_of(
        st.builds(lambda size, letter: letter * size, sizes, st.sampled_from("aAé💥")), st.sampled_from(ODD_TEXTS)
    )


def valid(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """What the schema allows, short."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return st.just("2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "a")
        case "integer":
            return st.integers(schema.get("minimum", 0), schema.get("maximum", 9))
        case "boolean":
            return st.booleans()
        case "array":
            # one item: those of list maps would have the same key
            return st.lists(valid(schema["items"]), min_size=schema.get("minItems", 0), max_size=1)
    return _valid_object(schema)


def _valid_object(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if "additionalProperties" in schema:
        return st.dictionaries(st.sampled_from(["a", "b"]), valid(schema["additionalProperties"]), max_size=2)
    if "properties" not in schema:
        return st.dictionaries(st.sampled_from(["a", "b"]), odd, max_size=2)
    parts = {name: valid(part) for name, part in schema["properties"].items()}
    needed = {name: part for name, part in parts.items() if name in schema.get("required", ())}
    return st.fixed_dictionaries(needed, optional={n: part for n, part in parts.items() if n not in needed})


def places(schema: Mapping[str, Any], value: Any, path: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every place in a valid value that the schema knows, whether anything is there or not."""
    if path:
        yield path, schema
    for name, part in schema.get("properties", {}).items():
        inner = value.get(name) if isinstance(value, dict) else None
        yield from places(part, inner, (*path, name))
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from places(schema["items"], item, (*path, index))
    if isinstance(value, dict) and "additionalProperties" in schema:
        for name, item in value.items():
            yield from places(schema["additionalProperties"], item, (*path, name))


def at_limits(schema: Mapping[str, Any], value: Any) -> st.SearchStrategy[Any]:
    """Values for one place: right types at their limits, or anything else."""
    match schema.get("type"):
        case "string":
            return st.one_of(texts(schema), odd)
        case "integer":
            bounds = [schema.get("minimum", 0), schema.get("maximum", MOST_INT64)]
            return st.one_of(st.sampled_from([b + n for b in bounds for n in (-1, 0, 1)]), odd)
        case "array" if isinstance(value, list) and value:
            return st.one_of(st.integers(0, schema.get("maxItems", 9) + 1).map(lambda n: [value[0]] * n), odd)
        case "object" if "additionalProperties" in schema:
            return st.one_of(_maps(schema), odd)
        case "object" if isinstance(value, dict):
            return st.one_of(st.just({**value, "unknown": 1}), st.just({}), odd)
    return odd


def _maps(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    inner = valid(schema["additionalProperties"])
    names = st.one_of(
        st.sampled_from([*ODD_TEXTS, "a" * 253, "a" * 254, "💥" * 253, "a" * 317, "a" * 318]), st.just("a")
    )
    many = st.sampled_from([0, 1]).flatmap(
        lambda n: st.fixed_dictionaries({f"k{i}": inner for i in range(schema.get("maxProperties", 9) + n)})
    )
    return st.one_of(st.dictionaries(names, st.one_of(inner, odd), max_size=2), many)


@st.composite
def mutated(draw: st.DrawFn, schema: Mapping[str, Any]) -> Json:
    """A valid object with up to two places changed."""
    body: Json = deepcopy(draw(valid(schema)))
    for _ in range(draw(st.integers(0, 2))):
        path, part = draw(st.sampled_from(list(places(schema, body)) or [((), schema)]))
        if path:
            put(body, path, deepcopy(draw(at_limits(part, found(body, path)))))
    return body


def found(body: Any, path: Path) -> Any:
    """What is there; None if nothing is."""
    for step in path:
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return None
    return body


def put(body: Any, path: Path, value: Any) -> None:
    """Put it there, with the objects around it; nothing happens where something else is in the way."""
    for step in path[:-1]:
        if isinstance(step, str) and isinstance(body, dict) and body.get(step) is None:
            body[step] = {}
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(body, dict) or (isinstance(body, list) and isinstance(path[-1], int) and path[-1] < len(body)):
        body[path[-1]] = value  # type: ignore[index]


keys = st.sampled_from(
    [
        "a",
        "A_b.c",
        "x.dev/a",
        "/a",
        "x.dev/",
        "é",
        "",
        "a" * 63,
        "a" * 64,
        "x" * 253 + "/a",
        "a.b" * 80 + "/" + "a" * 63,
    ]
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(keys, st.sampled_from(["", "a", "a" * 63, "a" * 64, "é", "-"]), max_size=3),
        "annotations": st.dictionaries(keys, st.sampled_from(["", "💥", "\x00", "a" * 5_000]), max_size=2),
        "finalizers": st.lists(keys, max_size=2),
    },
)
