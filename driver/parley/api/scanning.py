"""Finds where the parts of a JSON text begin and end, without decoding them. Pure.

A decoder fails as a whole: one value that nests too deep, or one string of invalid Unicode, makes a list of 500
objects undecodable. This file examines only quotes and brackets, without recursion, so that each part can be
decoded by itself. The work is linear in the text's length. Invalid JSON raises ValueError, or is cut.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_RUN = rb'[^"\[\]{}]*+'
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*"'
_FLAT = rb"[\[{]" + _RUN + rb"(?:" + _STRING + _RUN + rb")*[\]}]"
_ALMOST_FLAT = rb"[\[{]" + _RUN + rb"(?:(?:" + _STRING + rb"|" + _FLAT + rb")" + _RUN + rb")*[\]}]"
_SPACE = re.compile(rb"[ \t\r\n]*+")
_WORD = re.compile(rb'[^\s,:"\[\]{}]++')
_QUOTED = re.compile(rb"(?s:" + _STRING + rb")")
_BRACKETS = re.compile(
    rb"(?s:" + _RUN + rb"(?:(?:" + _STRING + rb"|" + _ALMOST_FLAT + rb")" + _RUN + rb")*([\[{]*+)([\]}]*+))"
)
"""The next opening and closing brackets. Values that nest at most two deep, as most do, are skipped as a whole.

Only sets of characters are repeated possessively: a group that is repeated so matches wrongly before Python 3.11.5
(python/cpython#106052). Each text can be matched in one way only, so that giving up takes no longer than matching.
"""


class Member(NamedTuple):
    """A member of an object: its name as written, without quotes, and the start and end of its value."""

    name: bytes
    start: int
    end: int


def value_end(text: bytes, start: int) -> int:
    """The end of the value that begins at `start`. Raises ValueError if there is no value, or it has no end."""
    first = text[start : start + 1]
    if first not in (b"[", b"{"):
        return _end((_QUOTED if first == b'"' else _WORD).match(text, start), start)
    depth, place = 1, start + 1
    while depth > 0:
        found = _BRACKETS.match(text, place)
        opening, closing = (found.span(1), found.span(2)) if found else ((0, 0), (0, 0))
        if opening[0] == closing[1]:
            raise ValueError(f"the JSON value at byte {start} has no end")
        depth += opening[1] - opening[0] - (closing[1] - closing[0])
        place = closing[1]
    return place + depth


def _end(found: re.Match[bytes] | None, start: int) -> int:
    if found is None:
        raise ValueError(f"no JSON value at byte {start}")
    return found.end()


def members(text: bytes, start: int = 0) -> Iterator[Member]:
    """The members of the object that begins at `start`, perhaps after blanks."""
    place = _after(text, _blank(text, start), b"{")
    while text[place : place + 1] != b"}":
        name = _end(_QUOTED.match(text, place), place)
        value = _after(text, name, b":")
        end = value_end(text, value)
        yield Member(text[place + 1 : name - 1], value, end)
        place = _next(text, end, b"}")


def elements(text: bytes, start: int) -> Iterator[bytes]:
    """The items of the list that begins at `start`; none of `null`."""
    if text.startswith(b"null", start):
        return
    place = _after(text, start, b"[")
    while text[place : place + 1] != b"]":
        end = value_end(text, place)
        yield text[place:end]
        place = _next(text, end, b"]")


def _blank(text: bytes, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _after(text: bytes, start: int, mark: bytes) -> int:
    """The position after blanks, the mark, and blanks. Raises ValueError if the mark is missing."""
    place = _blank(text, start)
    if text[place : place + 1] != mark:
        raise ValueError(f"byte {place} is {text[place : place + 1]!r}, not {mark!r}")
    return _blank(text, place + 1)


def _next(text: bytes, end: int, closing: bytes) -> int:
    """The position of the next part, or of the closing bracket."""
    place = _blank(text, end)
    return place if text[place : place + 1] == closing else _after(text, place, b",")


_BRACKETS_ONLY = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")


def nests_deeper(text: bytes, limit: int) -> bool:
    """Whether lists and objects are nested more than `limit` deep."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    left = _QUOTED.sub(b"", text).translate(_BRACKETS_ONLY, _NO_BRACKETS)
    for _ in range(limit):
        if not left:
            return False
        left = left.replace(b"[]", b"")
    return bool(left)
