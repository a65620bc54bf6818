"""What a write sends: JSON, as the server will read it back."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from parley.api.resources import Resource
from parley.kube.client import Body


def encoded(body: Body | Sequence[Any]) -> bytes:
    """The body as JSON, with those characters escaped that Go escapes.

    An API server stores opaque parameters as they were sent, and escapes these when it reads them: it would take
    no patch of the object's metadata any more, because the spec seems to change with it.
    """
    content = orjson.dumps(body, default=_plain)
    for character, escaped in _ESCAPED:
        content = content.replace(character, escaped)
    return content


_ESCAPED = tuple((character.encode(), f"\\u{ord(character):04x}".encode()) for character in "<>&\u2028\u2029")
"""As `encoding/json` does. They stand nowhere in JSON but in strings."""


def _plain(value: object) -> dict[Any, Any]:
    """For orjson, which knows no mappings but dictionaries."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def with_kind(resource: Resource[Any], body: Body) -> dict[str, Any]:
    """The body with what the server wants to be told although the path says it."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
