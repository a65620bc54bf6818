"""The one interface through which Parley talks to an API server, and the errors it raises.

Two implementations pass the same conformance tests: `http` (a real server) and `memory`. Reads are typed
(`Resource.type`), writes are plain JSON so that nothing the server knows and we do not can get lost.

    ApiError                  the server answered, and refused
      BadRequest (400)  Unauthorized (401)  Forbidden (403)  NotFound (404)
      AlreadyExists, Conflict (409)   Expired (410)   Invalid (422)
      TooManyRequests (429)   ServerError (500 and above)
    OutcomeUnknown            no answer: a write may or may not have happened, read before acting on it
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from parley.api.resources import Resource

T = TypeVar("T")
Body = Mapping[str, Any]


class ApiError(Exception):
    """Raised when the API server refused a request.

    `status` is the HTTP code, `reason` the API's own word ("NotFound"), `message` the server's sentence,
    `retry_after` the seconds that the server asked to wait, if it did.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class BadRequest(ApiError):
    """Raised when the request itself is malformed (400)."""


class Unauthorized(ApiError):
    """Raised when the server does not know who is asking (401)."""


class Forbidden(ApiError):
    """Raised when the account lacks the permission, or an admission policy refused (403)."""


class NotFound(ApiError):
    """Raised when the object or its kind does not exist (404)."""


class AlreadyExists(ApiError):
    """Raised when an object of that name is there already (409, reason AlreadyExists)."""


class Conflict(ApiError):
    """Raised when the object changed since the resourceVersion or UID that was sent, or another field
    manager owns a field (409)."""


class Expired(ApiError):
    """Raised when a watch or list continues from a resourceVersion that the server no longer has (410)."""


class Invalid(ApiError):
    """Raised when the object does not pass validation (422); the message names the field."""


class TooManyRequests(ApiError):
    """Raised when the server asks to slow down (429)."""


class ServerError(ApiError):
    """Raised when the server failed (500 and above)."""


class OutcomeUnknown(Exception):
    """Raised when no answer came (connection lost, time-out): the write may have happened or may yet happen."""


class EventType(Enum):
    """What a watch reports."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An object that is there and can't be decoded: which one it is, in which state, and what is wrong with it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    reason: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change. `object` is the last state for DELETED and None for BOOKMARK, and where there is a tombstone."""

    type: EventType
    object: T | None
    resource_version: str
    tombstone: Tombstone | None = None


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A consistent list, and the resourceVersion to watch from. `tombstones` stand for what can't be decoded."""

    items: tuple[T, ...]
    resource_version: str
    tombstones: tuple[Tombstone, ...] = ()


class PatchType(Enum):
    """The media type of a patch."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client(Protocol):
    """An API server. Every method raises ApiError or OutcomeUnknown; none retries by itself."""

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """The object as the server has it now."""
        ...

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        """All objects of that kind, of one namespace or of all."""
        ...

    def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        """Changes after `resource_version`, with bookmarks, until the server ends the stream.

        Raises Expired when that version is too old. An object that starts or ceases to match the selectors
        is reported as ADDED or DELETED.
        """
        ...

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str = "",
    ) -> T:
        """Create the object; `metadata.generateName` is honoured. Status is dropped where it is a subresource."""
        ...

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body | Sequence[Any],
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Change the object. A `metadata.resourceVersion` in the body is a precondition (Conflict); APPLY creates
        the object if it is missing; `force` takes over fields of other managers.

        A `metadata.uid` that differs is refused as Invalid ("field is immutable"), and in the status of a custom
        resource it is ignored: there a JSON patch with a `test` of /metadata/uid (Invalid) protects what was
        made anew under the same name."""
        ...

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        """Delete the object, or mark it if it has finalizers. `uid` and `resource_version` are preconditions."""
        ...

    async def create_subresource(
        self,
        resource: Resource[T],
        name: str,
        subresource: str,
        body: Body,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        """POST to a subresource, such as a pod's `binding` or `eviction`, or a service account's `token`."""
        ...

    async def close(self) -> None:
        """Release connections. Idempotent."""
        ...
