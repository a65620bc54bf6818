"""Values that nobody means well with: JSON as raw bytes, because clients repair much of it before they send it.

A manifest carries them as marks, which `encode` replaces by the bytes in the finished JSON.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_MARK = re.compile(rb'"<<hostile:([a-z0-9-]+)>>"')


def _deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def _deep_object(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


VALUES: Final[Mapping[str, bytes]] = {
    "null": b"null",
    "true": b"true",
    "empty-object": b"{}",
    "empty-list": b"[]",
    "empty-text": b'""',
    "nulls": b"[" + b",".join([b"null"] * 300) + b"]",
    "deep-63": _deep(63),
    "deep-65": _deep(65),
    "deep-250": _deep(250),
    "deep-2000": _deep(2_000),
    "deep-4900": _deep(4_900),
    "deep-9000": _deep(9_000),
    "deep-object-1500": _deep_object(1_500),
    "lone-surrogate": rb'"\ud800"',
    "surrogates-reversed": rb'"\udc00\ud800"',
    "invalid-utf8": b'"\xff\xfe\x80"',
    "cut-utf8": b'"\xe2\x82"',
    "nul": rb'"a\u0000b"',
    "line-separators": '"\u2028\u2029\u0085\ufeff"'.encode(),
    "text-300": b'"' + b"x" * 300 + b'"',
    "text-9000": b'"' + b"x" * 9_000 + b'"',
    "text-200000": b'"' + b"x" * 200_000 + b'"',
    "zero": b"0",
    "minus-one": b"-1",
    "minus-zero": b"-0.0",
    "past-int32": b"2147483648",
    "past-int64": b"9223372036854775808",
    "past-uint64": b"18446744073709551616",
    "past-float": b"1e400",
    "exponent": b"1e1000000000",
    "many-digits": b"9" * 5_000,
    "tiny": b"1e-1000000000",
    "exponent-text": b'"1e1000000000"',
    "exponent-small-text": b'"1e-1000000000"',
    "many-digits-text": b'"' + b"9" * 5_000 + b'"',
    "infinity-text": b'"Infinity"',
    "not-a-number-text": b'"NaN"',
    "suffix-text": b'"9223372036854775807Ei"',
    "spread-text": b'"' + b"a" * 40 + b'!"',
    "same-key-twice": b'{"count":1,"count":"two"}',
    "empty-key": b'{"":{"":{}}}',
    "many-keys": b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(700)) + b"}",
    "odd-keys": rb'{"__proto__":1,"\u0000":2,"a.b/c":3,"\ud800":4}',
}


def mark(name: str) -> str:
    """What stands in a manifest for the value of that name."""
    return f"<<hostile:{name}>>"


def encode(manifest: Any) -> bytes:
    """The manifest as JSON, with the values' own bytes where their marks are."""
    return _MARK.sub(lambda found: VALUES[found[1].decode()], json.dumps(manifest).encode())
