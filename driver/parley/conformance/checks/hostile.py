"""Hostile parameters, which users may send and drivers do not expect: wrong types, long, deep, huge, empty."""

from collections.abc import Iterator, Mapping
from typing import Any

MOST_DEEP = 60
"""Levels below the parameters: Parley negotiates for no claim with more than 64."""


def hostile(parameters: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The parameters with each value replaced by every odd value, and sets of unknown parameters."""
    for value in odd_values():
        for name in parameters or {"conformance": None}:
            yield {**(parameters or {}), name: value}
    yield {}
    yield {"": ""}
    yield {f"parameter-{number}": number for number in range(300)}


def odd_values() -> Iterator[Any]:
    """Odd values that the API server accepts, within 10 KiB."""
    yield from (-1, 0, 2**63 - 1, -(2**63), 1.5, 1e308, True, "", "NaN", "-1", [], {}, [[]], [{}])
    yield "a" * 8000
    yield "\u0000\u001b[2J\u202e\U0001f4a3 ; $(reboot) ' \" \\"
    yield list(range(2000))
    deep: Any = 0
    for _ in range(MOST_DEEP):
        deep = {"a": deep}
    yield deep


def of_a_wrong_type(value: Any) -> Any:
    """A value of another type."""
    return "wrong" if isinstance(value, dict | list) else {"wrong": ["type"]}
