"""What an answer of an API server means: which error a refusal is, which event a line of a watch is.

Source of the codes and reasons: the Status object of the Kubernetes API (meta/v1).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from parley.api.resources import Resource
from parley.kube.client import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    EventType,
    Expired,
    Forbidden,
    Invalid,
    Listing,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    WatchEvent,
)

T = TypeVar("T")

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


class _Details(msgspec.Struct, rename="camel", frozen=True):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, frozen=True):
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
_frame = msgspec.json.Decoder(_Frame)


def refusal(code: int, phrase: str, content: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer with that code; `phrase` and the content's start where it is no Status object.

    `retry_after` is the header of that name; a date in it is ignored, API servers send seconds.
    """
    try:
        status = _status.decode(content)
    except ValueError:
        status = _Status()
    reason = status.reason or phrase
    message = status.message or content[:300].decode(errors="replace").strip() or "the answer has no text"
    seconds = status.details.retry_after_seconds if status.details else None
    if seconds is None and retry_after and retry_after.isdecimal():
        seconds = float(retry_after)
    return _kind(code, reason)(code, reason, message, seconds)


def _kind(code: int, reason: str) -> type[ApiError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    return _BY_CODE.get(code, ServerError if code >= 500 else ApiError)


def leaves_write_open(error: ApiError) -> bool:
    """Whether a write that was answered so may have happened, or may yet.

    A gateway lost sight of it (502, 504; the API server's own time limit is a 504 too), or etcd did not answer
    in time: the API server passes that on as an internal error with etcd's words.
    """
    return error.status in (502, 504) or (error.status >= 500 and "etcdserver:" in error.message)


def page(resource: Resource[T], content: bytes) -> tuple[Listing[T], str]:
    """A list answer, and with what to ask for the rest of the list, "" at its end.

    Raises ValueError when it is none, or an item does not fit the type.
    """
    answer = _list.decode(content)
    decode = resource.decode
    items = tuple(decode(bytes(item)) for item in answer.items or ())
    return Listing(items, answer.metadata.resource_version), answer.metadata.continue_


def event_decoder(resource: Resource[T]) -> Callable[[bytes], WatchEvent[T]]:
    """Turns a line of a watch into its event.

    That raises what the server reported in an ERROR event (Expired and others), and ValueError for a line that
    is no event of this kind.
    """
    decode = resource.decode

    def event(line: bytes) -> WatchEvent[T]:
        frame = _frame.decode(line)
        if frame.type == "ERROR":
            status = _status.decode(frame.object)
            raise refusal(status.code or 500, "Unknown", bytes(frame.object))
        kind = EventType(frame.type)
        if kind is EventType.BOOKMARK:
            return WatchEvent(kind, None, _version.decode(frame.object).metadata.resource_version)
        return WatchEvent(kind, item := decode(bytes(frame.object)), _resource_version(item))

    return event


def _resource_version(item: Any) -> str:
    if isinstance(item, dict):
        return str(item["metadata"]["resourceVersion"])
    return str(item.metadata.resource_version)


class Lines:
    """Cuts a stream of chunks into lines at newlines only, however long a line is.

    Text readers would also split at U+0085 and its like inside a value, and limit a line's length.
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
