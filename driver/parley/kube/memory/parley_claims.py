"""Rules of Parley's claims and templates that relate fields to each other or to what they were.

The CRD states the same as CEL rules; what one field may hold is checked by the pydantic models.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from parley.kube.memory.refusals import Fault

Json = dict[str, Any]


def rules(old: Json | None, new: Json) -> Sequence[Fault]:
    """Of a claim."""
    faults = list(_status(new.get("status") or {}))
    if old is not None:
        if old.get("spec") != new.get("spec"):
            faults.append(Fault("spec", "Invalid value: spec is immutable; delete the claim and create it anew"))
        faults += _changes(old.get("status") or {}, new.get("status") or {})
    return faults


def template_rules(old: Json | None, new: Json) -> Sequence[Fault]:
    """Of a template."""
    if old is None or old.get("spec") == new.get("spec"):
        return ()
    return [Fault("spec", "Invalid value: spec is immutable; delete the template and create it anew")]


def _status(status: Json) -> Iterator[Fault]:
    allocation, users = status.get("allocation"), status.get("reservedFor") or []
    if allocation is not None and not status.get("driverName"):
        yield Fault("status.driverName", "Required value: an allocated claim names its driver")
    if users and allocation is None:
        yield Fault("status.reservedFor", "Forbidden: only an allocated claim can be reserved")
    if len(users) > 1 and allocation is not None and not allocation.get("shareable"):
        yield Fault("status.reservedFor", "Forbidden: the allocation is not shareable, so one consumer at most")
    if status.get("deallocationRequested") and allocation is None:
        yield Fault("status.deallocationRequested", "Forbidden: only an allocated claim can be deallocated")


def _changes(before: Json, after: Json) -> Iterator[Fault]:
    was, now = before.get("allocation"), after.get("allocation")
    if was is not None and now is not None and was != now:
        yield Fault("status.allocation", "Invalid value: allocation is immutable; it can only be cleared")
    had, has = bool(before.get("deallocationRequested")), bool(after.get("deallocationRequested"))
    users = {user["uid"] for user in after.get("reservedFor") or []}
    added = users - {user["uid"] for user in before.get("reservedFor") or []}
    if had and has and added:
        yield Fault("status.reservedFor", "Forbidden: no new consumers while deallocationRequested is set")
    if has and not had and users:
        yield Fault("status.deallocationRequested", "Forbidden: the claim is reserved; drop its consumers first")
    if had and not has and now is not None:
        yield Fault("status.deallocationRequested", "Forbidden: it is cleared only together with the allocation")
