"""What a write sends: JSON, as the server will read it back."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from parley.api.resources import Resource
from parley.kube.client import Body


def encoded(body: Body | Sequence[Any]) -> bytes:
    """The body as JSON, with line separators (U+2028, U+2029) escaped.

    An API server stores opaque parameters as they were sent, and escapes these two when it reads them: it would
    take no patch of the object's metadata any more, because the spec seems to change with it.
    """
    content = orjson.dumps(body, default=_plain)
    if b"\xe2\x80" not in content:
        return content
    return content.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")


def _plain(value: object) -> dict[Any, Any]:
    """For orjson, which knows no mappings but dictionaries."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def with_kind(resource: Resource[Any], body: Body) -> dict[str, Any]:
    """The body with what the server wants to be told although the path says it."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
