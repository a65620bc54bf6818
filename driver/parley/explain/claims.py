"""The state of each of a pod's claims: what it holds, what it waits for, how far its allocation is. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from parley.api.builtin import BuiltinAllocation, BuiltinClaim, Pod, PodResourceClaim
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.names import CONDITION_ALLOCATING
from parley.api.wording import listed
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.holding import Holding
from parley.control.objects.class_request import class_request
from parley.control.objects.mirror import allocated, driver_of, is_mirror, nodes_of, offer_stands, whereabouts
from parley.control.objects.pod import is_terminal
from parley.control.room import reserved
from parley.control.state import State
from parley.explain.model import ClaimDetails
from parley.explain.snapshot import Snapshot
from parley.kube.clock import rfc3339
from parley.negotiation.nowhere import where
from parley.negotiation.reservations import amount_of
from parley.sdk import Allocation


def details(snapshot: Snapshot, pod: Pod, claims: Sequence[PodClaim]) -> tuple[ClaimDetails, ...]:
    """The details of each of the pod's claim entries that is Parley's, in the order of the pod's spec."""
    gathered = {claim.entry: claim for claim in claims}
    return tuple(
        _details(snapshot, pod, entry, gathered[entry.name])
        for entry in pod.spec.resource_claims
        if entry.name in gathered
    )


def code_of(problem: Problem) -> str:
    """The code of what keeps a claim from being negotiated; "pending" if that passes within moments."""
    return "pending" if problem.passes else problem.code


def uses_parley(snapshot: Snapshot, pod: Pod, claims: Sequence[PodClaim]) -> bool:
    """Whether any of the pod's claims is, or was, Parley's: the claims of a terminal pod may be gone already."""
    return bool(claims) or snapshot.is_negotiated((pod.metadata.namespace, pod.metadata.name))


def _details(snapshot: Snapshot, pod: Pod, entry: PodResourceClaim, claim: PodClaim) -> ClaimDetails:
    namespace = pod.metadata.namespace
    mirror = claim.mirror or snapshot.mirrors.get((namespace, claim.name))
    record = claim.written or snapshot.state.cluster.claim((namespace, claim.name))
    class_name = class_name_of(snapshot.state, pod, claim)
    class_ = claim.class_ or snapshot.state.cluster.class_(class_name)
    state, message = _state(snapshot, pod, claim, mirror, record)
    allocation = mirror.status.allocation if mirror is not None else None
    return ClaimDetails(
        entry=entry.name,
        source=_source(entry),
        claim=claim.name,
        class_name=class_name,
        driver=_driver(claim, allocation, class_),
        state=state,
        message=message,
        nodes=nodes_of(allocation) if allocation is not None else (),
        holds=tuple(_holds(claim, mirror)),
        since=(allocation.allocation_timestamp or "") if allocation is not None else "",
        users=tuple(user.name for user in mirror.status.reserved_for) if mirror is not None else (),
    )


def _source(entry: PodResourceClaim) -> str:
    if entry.resource_claim_template_name:
        return f"template {entry.resource_claim_template_name}"
    return f"claim {entry.resource_claim_name}"


def class_name_of(state: State, pod: Pod, claim: PodClaim) -> str:
    """The class that the pod's claim requests, also if the claim has a problem. If Kubernetes has not created the
    claim yet, its template's class. "" if that is not known."""
    namespace, cluster = pod.metadata.namespace, state.cluster
    if claim.class_name:
        return claim.class_name
    if not claim.name:
        entry = next(entry for entry in pod.spec.resource_claims if entry.name == claim.entry)
        template = cluster.template((namespace, entry.resource_claim_template_name or ""))
        return template.spec.spec.resource_class_name if template is not None else ""
    mirror, record = cluster.mirror((namespace, claim.name)), cluster.claim((namespace, claim.name))
    wanted = class_request(mirror) if mirror is not None and is_mirror(mirror) else None
    if wanted is not None and wanted.class_name:
        return wanted.class_name
    return record.spec.resource_class_name if record is not None else ""


def _driver(claim: PodClaim, allocation: BuiltinAllocation | None, class_: ResourceClass | None) -> str:
    if claim.holding is not None:
        return claim.holding.driver
    if allocation is not None:
        return driver_of(allocation)
    return class_.driver_name if class_ is not None else ""


def _state(
    snapshot: Snapshot, pod: Pod, claim: PodClaim, mirror: BuiltinClaim | None, record: ResourceClaim | None
) -> tuple[str, str]:
    if claim.problem is not None and not snapshot.is_certain(claim.problem):
        return "pending", ""
    if is_terminal(pod) and not (
        claim.problem is None and (claim.holding or (mirror and mirror.status.allocation))
    ):
        return "released", ""  # a terminal pod's claim is never allocated again: its problem does not matter
    if claim.problem is not None:
        return code_of(claim.problem), claim.problem.message
    if mirror is not None and offer_stands(mirror):
        return "offered", "the scheduler is choosing a node"
    if claim.holding is not None:
        return "allocated", _whereabouts(claim.holding)
    if mirror is not None and mirror.status.allocation is not None:
        return "allocated", whereabouts(mirror.status.allocation)
    return "pending", _progress(snapshot, record)


def _whereabouts(holding: Holding) -> str:
    """Where the claim can be used, what it reserves there, and until when it is kept if no pod uses it."""
    reserves = listed(amount_of(*one) for one in reserved(holding).items())
    there = where(holding.nodes) + (f", reserves {reserves} there" if reserves else "")
    if classes := holding.yields_to:
        there += f" and yields to pods of class {listed(classes)}"
    if holding.pods or holding.kept_until is None:
        return there
    return f"{there}, unused, kept until {rfc3339(holding.kept_until)}"


def _progress(snapshot: Snapshot, record: ResourceClaim | None) -> str:
    """The driver's progress, from the claim's condition."""
    for condition in record.status.conditions if record is not None else ():
        if condition.type == CONDITION_ALLOCATING and condition.message:
            seconds = snapshot.seconds_since(condition.last_transition_time)
            since = f" (for {seconds:.0f} s)" if seconds is not None and condition.status == "True" else ""
            return f"{condition.message}{since}"
    return ""


def _holds(claim: PodClaim, mirror: BuiltinClaim | None) -> Iterator[str]:
    found: Allocation | None = claim.holding.allocation if claim.holding is not None else None
    if found is None and mirror is not None and mirror.status.allocation is not None:
        found = allocated(mirror, driver_of(mirror.status.allocation))
    if found is not None:
        yield from held(found)


def held(allocation: Allocation) -> Iterator[str]:
    """The allocated devices as "pool/device"; if there are none, the short values of the driver's data."""
    yield from (f"{device.pool}/{device.device}" for device in allocation.devices)
    if not allocation.devices and allocation.data:
        yield ", ".join(f"{key}={_short(value)}" for key, value in _plain(allocation.data).items())


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """The scalar values: these fit on one line."""
    return {key: value for key, value in data.items() if isinstance(value, str | int | float | bool)}


def _short(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
