"""The transport between a client and an API server: sends a request, opens a watch's stream, closes both.

    Transport   `http.HttpTransport` (a real server), `memory.MemoryTransport`, and every `client.Client`
    Call        a request as a value: which verb, which object, what is sent
    RawEvent    one line of a watch

A transport handles bytes, a client (`client`) typed objects. A `Client` is a transport around a transport:
to measure, refuse, delay or corrupt requests, override `request`, `stream` or both in a subclass.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from parley.api.resources import Resource

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

LONGEST_PAGE: Final = 32 * 1024 * 1024
"""The most bytes of one page of a list, unless it has a single object. A page of a few hundred objects, as the API
server may store them, would take most of a process's memory; several kinds are listed at once."""

_METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}


class EventType(Enum):
    """The type of a watch's event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class RawEvent(NamedTuple):
    """One event of a watch, with the object as JSON. ERROR events are raised as exceptions instead."""

    type: EventType
    object: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an API server.

    `verb` is that of RBAC: get, list, watch, create, patch or delete. For a new object, `name` is its future name,
    or its `generateName` if the server is to complete that. `query` has the parameters in the URL, `body` is sent
    as JSON of the media type `content_type`.
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
        """The HTTP method."""
        return _METHODS.get(self.verb, "GET")

    @property
    def writes(self) -> bool:
        """Whether the request may change an object."""
        return self.verb in _METHODS


class Transport(Protocol):
    """The connection to an API server. It raises ApiError or OutcomeUnknown, and retries nothing."""

    async def request(self, call: Call) -> bytes:
        """Sends the request; returns the content of the answer, for a list one page."""
        ...

    def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        """The events of a watch, until the server ends it."""
        ...

    async def close(self) -> None:
        """Releases connections. Idempotent."""
        ...
