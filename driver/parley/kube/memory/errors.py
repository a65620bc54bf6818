"""The API server's errors, with the messages of a real server."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.resources import Resource
from parley.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A validation error of one field. `blocking`: with such an error, the server does not evaluate CEL rules."""

    field: str
    message: str
    blocking: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def _plural(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _kind(resource: Resource[Any]) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def not_found(resource: Resource[Any], name: str) -> NotFound:
    """The object does not exist."""
    return NotFound(404, "NotFound", f'{_plural(resource)} "{name}" not found')


def no_such_path() -> NotFound:
    """The kind has no such subresource."""
    return NotFound(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource[Any], name: str) -> AlreadyExists:
    """An object of that name exists."""
    return AlreadyExists(409, "AlreadyExists", f'{_plural(resource)} "{name}" already exists')


def conflict(resource: Resource[Any], name: str, why: str, subresource: str = "") -> Conflict:
    """The object is not in the state that the request needs."""
    plural = f"{_plural(resource)}/{subresource}" if subresource else _plural(resource)
    return Conflict(409, "Conflict", f'Operation cannot be fulfilled on {plural} "{name}": {why}')


def changed_meanwhile(resource: Resource[Any], name: str) -> Conflict:
    """The object's resourceVersion differs from the request's."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def other_uid(resource: Resource[Any], name: str, wanted: str) -> Invalid:
    """A patch with a UID that differs from the object's."""
    return invalid(resource, name, [Fault("metadata.uid", f'Invalid value: "{wanted}": field is immutable')])


def replaced_meanwhile(resource: Resource[Any], name: str, wanted: str, actual: str) -> Conflict:
    """A deletion whose UID precondition does not match the object."""
    why = f"the UID in the precondition ({wanted}) does not match the UID in record ({actual})"
    return _not_deleted(resource, name, f"{why}. The object might have been deleted and then recreated")


def other_version(resource: Resource[Any], name: str, wanted: str, actual: str) -> Conflict:
    """A deletion whose resourceVersion precondition does not match the object."""
    why = (
        f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record"
        f" ({actual}). The object might have been modified"
    )
    return _not_deleted(resource, name, why)


def _not_deleted(resource: Resource[Any], name: str, why: str) -> Conflict:
    return Conflict(409, "Conflict", f'Operation cannot be fulfilled on {_kind(resource)} "{name}": {why}')


def invalid(resource: Resource[Any], name: str, faults: Sequence[Fault]) -> Invalid:
    """The object violates rules of its kind. All violations are listed."""
    listed = str(faults[0]) if len(faults) == 1 else f"[{', '.join(map(str, faults))}]"
    return Invalid(422, "Invalid", f'{_kind(resource)} "{name}" is invalid: {listed}')


def bad_request(message: str) -> BadRequest:
    """The request itself is malformed."""
    return BadRequest(400, "BadRequest", message)


def expired(wanted: int, oldest: int) -> Expired:
    """A watch starts from a resourceVersion that was compacted."""
    return Expired(410, "Expired", f"too old resource version: {wanted} ({oldest})")


def no_version(text: str) -> ServerError:
    """A resourceVersion that is not a number. The real server, too, returns an internal error."""
    why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    return ServerError(500, "InternalError", f"resourceVersion: {why}")


def version_at_creation() -> ServerError:
    """A resourceVersion in an object to be created. The real server, too, returns an internal error."""
    return ServerError(500, "InternalError", "resourceVersion should not be set on objects to be created")


def budget_exceeded() -> TooManyRequests:
    """An eviction that a PodDisruptionBudget does not allow now."""
    why = "Cannot evict pod as it would violate the pod's disruption budget."
    return TooManyRequests(429, "TooManyRequests", why)


def several_budgets() -> ServerError:
    """An eviction of a pod that several PodDisruptionBudgets select. The real server, too, returns status 500."""
    why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    return ServerError(500, "", why)


def no_target() -> ServerError:
    """A binding without a node. The real server, too, returns an internal error."""
    return ServerError(500, "InternalError", "target.name: Required value")


def no_manager() -> Invalid:
    """An apply without `field_manager`."""
    why = "fieldManager: Required value: is required for apply patch"
    return Invalid(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {why}')
