"""Decodes an API server's responses: pages of lists, Status objects (as errors), and the lines of a watch.

Each object is decoded by itself, even if the decoder can't separate one from the next: one that fails becomes a
tombstone, and does not affect the others.

Source of the codes and reasons: the Status object of the Kubernetes API (meta/v1).
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from parley.api.resources import Resource
from parley.api.scanning import elements, members
from parley.kube.cache import identity
from parley.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Garbled,
    Invalid,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooLarge,
    TooManyRequests,
    Unauthorized,
)
from parley.kube.transport import Call, EventType, RawEvent

T = TypeVar("T")

DECODED_AT_ONCE: Final = 1024 * 1024
"""The bytes of a list's page that are decoded before other tasks run: 20 to 30 ms, the most for our own kinds."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Stands for an existing object that can't be decoded: its identity, resourceVersion, and what is wrong."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event. `object` is the last state for DELETED, None for BOOKMARK, and None if there is a tombstone."""

    type: EventType
    object: T | None
    resource_version: str
    tombstone: Tombstone | None = None


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A consistent list, and the resourceVersion to watch from. `tombstones` stand for undecodable objects."""

    items: tuple[T, ...]
    resource_version: str
    tombstones: tuple[Tombstone, ...] = ()


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}


_TOO_LARGE = ("etcdserver: request is too large", "trying to send message larger than max")
"""Parts of the messages of etcd, and of the API server's client of etcd, about an object that is too large."""


_GIVEN_UP = ("context deadline exceeded", "context canceled")
"""The whole messages of etcd's client about a write whose time ran out after it was sent: `ContextError` in
client/v3 of etcd 3.7. The message about a webhook, which is called before the write, only ends so."""

_NO_PATH = b"404 page not found"


class _Details(msgspec.Struct, rename="camel", frozen=True):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, frozen=True):
    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _List(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    items: list[msgspec.Raw] | None = None


class _Frame(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_status = msgspec.json.Decoder(_Status)
_version = msgspec.json.Decoder(_Versioned)
_list = msgspec.json.Decoder(_List)
_metadata = msgspec.json.Decoder(_Metadata)
_frame = msgspec.json.Decoder(_Frame)


def refusal(code: int, phrase: str, content: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer with that code; with `phrase` and the content's start if it is no Status object.

    `retry_after` is the header of that name; a date in it is ignored, as API servers send seconds.
    """
    status = _status_in(content)
    reason = status.reason or phrase
    message = status.message or content[:300].decode(errors="replace").strip() or "the answer has no text"
    seconds = status.details.retry_after_seconds if status.details else None
    if seconds is None and retry_after and retry_after.isdecimal():
        seconds = float(retry_after)
    return _kind(code, reason, message)(code, reason, message, seconds)


def _status_in(content: bytes) -> _Status:
    try:
        return _status.decode(content)
    except (ValueError, RecursionError):
        return _Status()


def _kind(code: int, reason: str, message: str) -> type[ApiError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if code >= 500 and any(words in message for words in _TOO_LARGE):
        return TooLarge
    return _BY_CODE.get(code, ServerError if code >= 500 else ApiError)


def leaves_write_open(error: ApiError, content: bytes) -> bool:
    """Whether a write with this error may have happened, or may yet happen.

    True if a gateway lost track of it (502, 504; the API server's own time limit is a 504 too), or if etcd did not
    answer in time, or the connection to etcd broke: the API server passes that on as an internal error with the
    message of etcd or of gRPC. A failure that is no Status object comes from a gateway as well (Envoy sends 503
    when a connection breaks after the request was sent), or from a crashed API server. A too large object was not
    written.
    """
    if isinstance(error, TooLarge):
        return False
    if error.status >= 500 and _status_in(content).kind != "Status":
        return True
    lost = any(origin in error.message for origin in ("etcdserver:", "rpc error:")) or error.message in _GIVEN_UP
    return error.status in (502, 504) or (error.status >= 500 and lost)


def unreadable(call: Call, error: Exception) -> OutcomeUnknown:
    """The error to raise for an answer that does not fit the requested type."""
    return Garbled(f"{call}: the answer cannot be read as {call.resource.kind}: {error}")


def is_foreign_not_found(code: int, content: bytes) -> bool:
    """Whether the answer is a 404 of a gateway or a web server, which does not mean that the object is absent. For
    a kind that it does not serve, an API server sends the 404 of Go's library."""
    return code == 404 and not content.startswith(_NO_PATH) and _status_in(content).kind != "Status"


def check_object(call: Call, found: Any) -> None:
    """Raises ValueError if the answer is no object: JSON of another server, such as a gateway's, would be read as
    one without a name and UID, by which a caller recognises that another object is there."""
    posted = call.verb == "create" and bool(call.subresource)
    if call.name and not posted and call.resource.has_metadata and not _name_in(found):
        raise ValueError("it has no name")


def _name_in(found: Any) -> str:
    try:
        return identity(found).key[1]
    except AttributeError:  # JSON of other types than those of an object
        return ""


def check_deletion(call: Call, content: bytes) -> None:
    """Raises Garbled if the answer to a deletion is neither a Status nor an object."""
    if b'"kind"' not in content:
        raise Garbled(f"{call}: the answer does not come from an API server")


async def page(resource: Resource[T], content: bytes) -> tuple[Listing[T], str]:
    """Decodes a page of a list; also returns the `continue` token for the next page, "" at the end.

    Gives way to other tasks between objects: 30 MiB of claims take most of a second. Raises ValueError if the
    content is no list: each list of an API server has a resourceVersion, but JSON of another server would be read
    as an empty list. An item that does not fit the type becomes a tombstone.
    """
    about, contents = _opened(content)
    if not about.resource_version:
        raise ValueError("it has no resourceVersion")
    items: list[T] = []
    tombstones: list[Tombstone] = []
    decode, left = resource.decode, DECODED_AT_ONCE
    for item in contents:
        if (left := left - len(item)) < 0:
            left = DECODED_AT_ONCE
            await asyncio.sleep(0)
        try:
            items.append(decode(item))
        except ValueError as error:
            tombstones.append(_tombstone(item, error))
    return Listing(tuple(items), about.resource_version, tuple(tombstones)), about.continue_


def _opened(content: bytes) -> tuple[_Metadata, Iterable[bytes]]:
    """A list's metadata and items. The decoder looks into items; if that fails, they are only separated."""
    try:
        answer = _list.decode(content)
        return answer.metadata, (bytes(item) for item in answer.items or ())
    except (ValueError, RecursionError):
        found = {member.name: member for member in members(content)}
    about, items = found.get(b"metadata"), found.get(b"items")
    metadata = _metadata.decode(content[about.start : about.end]) if about is not None else _Metadata()
    return metadata, elements(content, items.start) if items is not None else ()


def _tombstone(item: bytes, why: Exception) -> Tombstone:
    """The tombstone for an object that could not be decoded. Raises ValueError if it has no name."""
    parts = {member.name: member for member in members(item)}
    about = parts.get(b"metadata")
    if about is None:
        raise ValueError(f"an object without metadata: {why}")
    raw = {
        member.name: item[member.start : member.end]
        for member in members(item, about.start)
        if member.name in (b"namespace", b"name", b"uid", b"resourceVersion")
    }
    found = {name.decode(): msgspec.json.decode(value, type=str) for name, value in raw.items()}
    if not {"name", "uid", "resourceVersion"} <= found.keys():
        raise ValueError(f"an object without name, UID or resourceVersion: {why}")
    return Tombstone(found.get("namespace", ""), found["name"], found["uid"], found["resourceVersion"], str(why))


def raw_event(line: bytes) -> RawEvent:
    """Parses a line of a watch. Raises the error in an ERROR event (Expired and others), and ValueError for a
    line that is no event."""
    type_, content = _unwrapped(line)
    if type_ == "ERROR":
        status = _status.decode(content)
        raise refusal(status.code or 500, "Unknown", content)
    return RawEvent(EventType(type_), content)


def event(resource: Resource[T], raw: RawEvent) -> WatchEvent[T]:
    """Decodes the event; an object that does not fit the type becomes a tombstone. Raises ValueError if it has no
    name."""
    kind, content = raw
    if kind is EventType.BOOKMARK:
        return WatchEvent(kind, None, _version.decode(content).metadata.resource_version)
    try:
        return WatchEvent(kind, item := resource.decode(content), _resource_version(item))
    except ValueError as error:
        found = _tombstone(content, error)
        return WatchEvent(kind, None, found.resource_version, found)


def _unwrapped(line: bytes) -> tuple[str, bytes]:
    """The type and the object of a watch's event."""
    try:
        frame = _frame.decode(line)
        return frame.type, bytes(frame.object)
    except (ValueError, RecursionError):
        found = {member.name: line[member.start : member.end] for member in members(line)}
    if not {b"type", b"object"} <= found.keys():
        raise ValueError("a line of a watch without type or object")
    return msgspec.json.decode(found[b"type"], type=str), found[b"object"]


def _resource_version(item: Any) -> str:
    if isinstance(item, dict):
        return str(item["metadata"]["resourceVersion"])
    return str(item.metadata.resource_version)


class LineSplitter:
    """Splits a stream of chunks into lines at newlines only, however long a line is.

    Text readers would also split at U+0085 and the like inside a value, and limit a line's length.
    """

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that the chunk completes, blank ones left out."""
        *complete, rest = chunk.split(b"\n")
        if complete and self._begun:
            complete[0] = b"".join((*self._begun, complete[0]))
            self._begun.clear()
        if rest:
            self._begun.append(rest)
        return [line for line in complete if line.strip()]

    @property
    def unfinished(self) -> bool:
        """Whether the stream so far ends in the middle of a line."""
        return bool(self._begun)
