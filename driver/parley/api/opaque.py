"""Opaque parameters and handles: users and drivers write them for each other, and the API server checks little.

They stay bytes until they are used, and are decoded only if they do not nest deeper than `MAX_DEPTH`. A value that
can't be decoded is replaced by an object with the one member `UNREADABLE`, which has the reason: so the rest of
the object can be read, and reading the parameters fails with that reason.

A decoder examines every byte, even of values that it leaves raw, and the API server stores text that no decoder
accepts (lone surrogates, invalid UTF-8, thousands of levels). `without_unreadable` makes an object decodable that
has such text in its opaque values.

The API server stores integers of more than 64 bits as floats, but writes those below 1e21 in digits. JSON encoders
accept no integers of more than 64 bits, so they are read as floats.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from parley.api.scanning import nests_deeper, value_end

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 64 * 1024
"""Far more than parameters may have: the built-in claim with them is limited to 10 KiB."""

UNREADABLE: Final = "parley.dev/unreadable"

NOTHING: Final = msgspec.Raw(b"null")
"""The absence of an opaque value."""

_WRAPPED = 1
"""The levels that Parley adds around a user's parameters."""

_TOO_DEEP = f"they nest deeper than {MAX_DEPTH} levels: make them flatter"
LONG_NUMBER = re.compile(rb"[0-9]{19}")
"""Matches in every text with an integer of more than 64 bits (and in some others)."""

_OPAQUE = re.compile(rb'"(parameters|data|managedFields)"[ \t\r\n]*:[ \t\r\n]*')


_ESCAPED = tuple((character.encode(), f"\\u{ord(character):04x}".encode()) for character in "<>&\u2028\u2029")
"""The characters that Go's `encoding/json` escapes. In JSON they occur only in strings."""


def escaped(text: bytes) -> bytes:
    """The JSON with the same characters escaped as in Go: it is sent and stored so, and its length limited."""
    for character, written in _ESCAPED:
        text = text.replace(character, written)
    return text


def read(opaque: msgspec.Raw) -> Any:
    """The JSON value; an object with the member UNREADABLE if it can't be read."""
    return _read(bytes(opaque))


def _read(text: bytes) -> Any:
    if len(text) > MAX_BYTES:
        return {UNREADABLE: f"they have {len(text)} bytes, more than {MAX_BYTES}: make them shorter"}
    if nests_deeper(text, MAX_DEPTH + _WRAPPED):
        return {UNREADABLE: _TOO_DEEP}
    try:
        return orjson.loads(text)
    except ValueError as error:
        return {UNREADABLE: f"they are not JSON that can be read: {error}"}


def why_unreadable(value: Mapping[str, Any] | None) -> str:
    """Why a value from `read`, or from another decoder, must not be used; "" if it may be used."""
    if not value:
        return ""
    if isinstance(why := value.get(UNREADABLE), str):
        return why
    return _TOO_DEEP if _is_deep(value) else ""


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, Mapping) else value
    return [child for child in children if isinstance(child, Mapping | list | tuple)]


def without_unreadable(text: bytes) -> bytes:
    """The JSON of an object with every opaque value that can't be read replaced, long integers as floats, and
    without `managedFields`, which nest as deep as the fields they describe. Raises ValueError if it is no JSON."""
    kept: list[bytes] = []
    done = 0
    while found := _OPAQUE.search(text, done):
        start, end = found.end(), value_end(text, found.end())
        kept += text[done:start], _shown(found[1], text[start:end])
        done = end
    return b"".join((*kept, text[done:]))


def _shown(name: bytes, value: bytes) -> bytes:
    if name == b"managedFields":
        return b"[]"
    if value[:1] not in (b"{", b"["):
        return value  # an annotation of that name, or another thing that cannot nest
    shown = _read(value)
    unreadable = isinstance(shown, dict) and shown.keys() == {UNREADABLE}
    return orjson.dumps(shown) if unreadable or LONG_NUMBER.search(value) else value
