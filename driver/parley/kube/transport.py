"""The transport between a client and an API server: sends a request, opens a watch's stream, closes both.

    Transport   `http.HttpTransport` (a real server), `memory.MemoryTransport`, and every `client.Client`
    Call        a request as a value: which verb, which object, what is sent
    RawEvent    one line of a watch

Below it there are bytes, above it (`client`) typed objects. A `Client` is a transport around a transport:
who times, refuses, delays or spoils requests is a subclass of it that overrides `request`, `stream` or both.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from parley.api.resources import Resource

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}


class EventType(Enum):
    """What a watch reports."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class RawEvent(NamedTuple):
    """One event of a watch, with the object as JSON. The server's ERROR events are raised instead."""

    type: EventType
    object: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an API server.

    `verb` is the one that RBAC knows: get, list, watch, create, patch or delete. `name` of an object to be created
    is what it is to be called, its `generateName` if the server is to complete that. `query` holds what goes into
    the URL, `body` what is sent as JSON of the media type `content_type`.
    """

    verb: str
    resource: Resource[Any]
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = JSON

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name, self.subresource) if part)
        shown = "WATCH" if self.verb == "watch" else self.method
        return f"{shown} {self.resource.plural} {place}".rstrip()

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return _METHODS.get(self.verb, "GET")

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.verb in _METHODS


class Transport(Protocol):
    """The way to an API server. It raises ApiError or OutcomeUnknown, and repeats nothing by itself."""

    async def request(self, call: Call) -> bytes:
        """Send the request; returns the content of the answer, for a list one page of it."""
        ...

    def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        """The events of a watch, until the server ends it."""
        ...

    async def close(self) -> None:
        """Release connections. Idempotent."""
        ...
