"""Builds the `Explanation` of a pod: the entry point of this package.

`explain` reads and explains one pod, `explain_waiting` all that wait; `explain_in` explains from a snapshot that
was read before. All raise Unanswerable, with a message for the user, if they can't answer.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import orjson

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import PodScheduling
from parley.api.resources import POD_SCHEDULINGS, PODS, VOLUMES, Undecodable
from parley.api.wording import listed, noun_for
from parley.control.objects.pod import is_terminal
from parley.explain import matrix
from parley.explain.claims import details, uses_parley
from parley.explain.constraints import UNCONSTRAINED, PlacementConstraints, read_constraints
from parley.explain.errors import NothingToExplain, Unanswerable
from parley.explain.feasibility import PodFeasibility, is_unasked
from parley.explain.findings import EVENTS, TimedEvent, findings, written_at
from parley.explain.missing import no_such_pod
from parley.explain.model import Explanation
from parley.explain.remedies import remedies
from parley.explain.snapshot import Snapshot, read
from parley.kube.cache import Key
from parley.kube.client import Client, Forbidden, NotFound
from parley.kube.clock import rfc3339
from parley.negotiation.states import ClaimState
from parley.scheduler.reporting import not_bound

_RECORDED_WHEN_ASKED = frozenset(
    {
        reasons.NO_CANDIDATES,
        reasons.NOTHING_VIABLE,
        reasons.LIMIT_REACHED,
        reasons.CLAIM_STRANDED,
        reasons.CLAIM_IN_USE,
        reasons.CLAIM_FULL,
        reasons.CLAIM_PENDING,
    }
)
"""Codes that the controller records for a pod of a second scheduler only when that scheduler asks it."""


_MOST_EVENTS = 200
"""The most events of one pod that are shown, the latest: users may write any number about their pods."""


@dataclass(frozen=True, slots=True)
class PodObjects:
    """The objects read for a single pod, besides the `Snapshot`: the pod and its PodScheduling with every field
    (None if there is none), the events about it (`unread` is why these could not be read), and what constrains
    its placement."""

    raw: Mapping[str, Any]
    scheduling: Mapping[str, Any] | None
    events: Sequence[TimedEvent]
    unread: tuple[str, ...] = ()
    constraints: PlacementConstraints = UNCONSTRAINED


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A waiting pod: the classes of the claims that it waits for, and the code and message of why it waits, as far
    as known. `node` is "" unless the pod is bound already and waits there."""

    created: str
    uid: str
    title: str
    node: str
    classes: frozenset[str]
    code: str
    message: str


async def explain(client: Client, now: datetime, namespace: str, name: str) -> Explanation:
    """Explains one pod. Raises NothingToExplain if the pod does not exist or has no Parley claims."""
    objects = await read_pod(client, namespace, name)
    pod = _decoded(objects.raw)
    snapshot = await read(client, now, namespace, everywhere=_may_lack_claims(pod))
    return _explained(snapshot, pod, objects)


async def read_pod(
    client: Client, namespace: str, name: str, known: Callable[[], Awaitable[Iterable[Key]]] | None = None
) -> PodObjects:
    """Reads what `explain_in` needs. Raises NothingToExplain if the pod does not exist or has no claims. `known`
    returns the pods among which the one that was meant is searched then; without it they are listed."""
    try:
        raw = await client.get(PODS.untyped(), name, namespace)
    except NotFound:
        others = await (known() if known is not None else _others(client, namespace, name))
        raise NothingToExplain(no_such_pod(namespace, name, others)) from None
    if not raw.get("spec", {}).get("resourceClaims"):
        raise NothingToExplain(
            f"pod {namespace}/{name} has no claims (spec.resourceClaims is empty): there is nothing to negotiate"
        )
    about = f"regarding.uid={raw['metadata']['uid']}"
    constraints = await read_constraints(client, _decoded(raw))
    scheduling = await _scheduling(client, namespace, name, raw["metadata"]["uid"])
    events, unread = await _events(client, namespace, about)
    return PodObjects(raw, scheduling, _latest(events), unread, constraints)


def explain_in(snapshot: Snapshot, objects: PodObjects) -> Explanation:
    """As `explain`, with the PodScheduling as it was read with the pod: for pods that wait for nothing, a snapshot
    may have only its counts. Raises NothingToExplain if none of the pod's claims is Parley's."""
    pod = _decoded(objects.raw)
    if objects.scheduling is not None:
        with suppress(Undecodable):  # the snapshot says so under "Not read"
            whole: PodScheduling = POD_SCHEDULINGS.decode(orjson.dumps(objects.scheduling))
            key = pod.metadata.namespace, pod.metadata.name
            snapshot = replace(snapshot, schedulings={**snapshot.schedulings, key: whole})
    return _explained(snapshot, pod, objects)


def _decoded(raw: Mapping[str, Any]) -> Pod:
    try:
        return PODS.decode(orjson.dumps(raw))
    except Undecodable as error:
        meta = raw["metadata"]
        title = f"pod {meta['namespace']}/{meta['name']}"
        raise Unanswerable(f"{title} can't be read: {error}: check whether there is a newer Parley") from error


async def namespaces_of(client: Client, name: str) -> list[str]:
    """The namespaces that have a pod of that name. Raises NothingToExplain if there are none."""
    pods = (await client.list(PODS, field_selector=f"metadata.name={name}")).items
    namespaces = [pod.metadata.namespace for pod in pods]
    if not namespaces:
        raise NothingToExplain(f"no namespace has a pod {name}: see `kubectl get pods -A`")
    return namespaces


async def explain_waiting(
    client: Client,
    snapshot: Snapshot,
    namespace: str | None,
    selects: Callable[[Mapping[str, str]], bool] = lambda _: True,
) -> list[Explanation]:
    """Explains every pod with Parley claims that is not bound, or is bound but lacks claims on its node, oldest
    first. Only pods of the namespace (None: all) whose labels `selects` accepts."""
    chosen = [
        pod
        for pod in snapshot.pods.values()
        if namespace in (None, pod.metadata.namespace) and not is_terminal(pod) and pod.spec.resource_claims
    ]
    events, unread = await _events(client, namespace)
    by_pod = _by_pod(events)
    waiting = waiting_pods(snapshot)
    lacking = {one.uid for one in waiting if one.node}
    unbound = [pod for pod in chosen if not pod.spec.node_name or pod.metadata.uid in lacking]
    explanations = []
    for pod in sorted(unbound, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
        if selects(pod.metadata.labels) and uses_parley(snapshot, pod, PodFeasibility(snapshot, pod).claims):
            own, constraints = _latest(by_pod[pod.metadata.uid]), await read_constraints(client, pod)
            objects = PodObjects({}, None, own, unread, constraints)
            explanations.append(_explained(snapshot, pod, objects, waiting))
    return explanations


def waiting_pods(snapshot: Snapshot) -> list[WaitingPod]:
    """The waiting pods, oldest first, including those that the controller has not reported on yet, and bound pods
    whose claims were not allocated before they were bound."""
    found = []
    for key, pod in snapshot.pods.items():
        if not pod.spec.resource_claims or not (state_of(pod) == "waits" or _may_lack_claims_on_node(pod)):
            continue
        feasibility = PodFeasibility(snapshot, pod)
        if pod.spec.node_name and not _lacks_claims_on_node(snapshot, feasibility):
            continue
        if uses_parley(snapshot, pod, feasibility.claims):
            why = _wait_reason(snapshot, feasibility, _own_scheduling(pod, snapshot.schedulings.get(key)))
            meta, wanted = pod.metadata, feasibility.awaited_classes
            created = meta.creation_timestamp or ""
            found.append(WaitingPod(created, meta.uid, "/".join(key), pod.spec.node_name, wanted, *why))
    return sorted(found, key=lambda one: (one.created, one.uid))


async def _others(client: Client, namespace: str, name: str) -> Sequence[Key]:
    """The pods of that name in all namespaces, and those of the namespace."""
    try:
        elsewhere = (await client.list(PODS, field_selector=f"metadata.name={name}")).items
        here = (await client.list(PODS, namespace)).items
    except Forbidden:
        raise NothingToExplain(f"pod {namespace}/{name} does not exist: name its namespace with -n") from None
    return [(pod.metadata.namespace, pod.metadata.name) for pod in (*elsewhere, *here)]


async def _scheduling(client: Client, namespace: str, name: str, uid: str) -> Mapping[str, Any] | None:
    """The pod's PodScheduling; None also if the one that exists belongs to an earlier pod of that name."""
    try:
        found = await client.get(POD_SCHEDULINGS.untyped(), name, namespace)
    except (NotFound, Forbidden):
        return None
    owners = found["metadata"].get("ownerReferences") or ()
    return found if any(owner.get("uid") == uid for owner in owners) else None


async def _events(
    client: Client, namespace: str | None, fields: str = ""
) -> tuple[Sequence[TimedEvent], tuple[str, ...]]:
    """The events, and the reason if they could not be read."""
    try:
        return (await client.list(EVENTS, namespace, field_selector=fields)).items, ()
    except Forbidden as error:
        return (), (error.message,)


def _by_pod(events: Sequence[TimedEvent]) -> defaultdict[str, list[TimedEvent]]:
    """The events by the UID of what they are about."""
    found = defaultdict[str, list[TimedEvent]](list)
    for event in events:
        found[(event.regarding or {}).get("uid") or ""].append(event)
    return found


def _latest(events: Sequence[TimedEvent]) -> Sequence[TimedEvent]:
    return sorted(events, key=lambda event: event.at)[-_MOST_EVENTS:]


def _explained(
    snapshot: Snapshot, pod: Pod, objects: PodObjects, waiting: Sequence[WaitingPod] | None = None
) -> Explanation:
    meta, key = pod.metadata, (pod.metadata.namespace, pod.metadata.name)
    if objects.constraints.unread:
        snapshot = replace(snapshot, incomplete_kinds=snapshot.incomplete_kinds | {VOLUMES})
    objects.constraints.apply_to(snapshot.state.cluster)
    feasibility = PodFeasibility(snapshot, pod)
    scheduling = _own_scheduling(pod, snapshot.schedulings.get(key))
    if not uses_parley(snapshot, pod, feasibility.claims):
        raise NothingToExplain(
            f"pod {key[0]}/{key[1]} has no Parley claims: its claims belong to other DRA drivers "
            "(`kubectl describe pod` shows their events)"
        )
    state = state_of(pod)
    lacks = state == "waits" or _lacks_claims_on_node(snapshot, feasibility)
    code, message = _wait_reason(snapshot, feasibility, scheduling) if lacks else ("", "")
    waits, status = state == "waits", scheduling.status if scheduling is not None else None
    return Explanation(
        namespace=meta.namespace,
        name=meta.name,
        state=state,
        phase=pod.status.phase,
        node=pod.spec.node_name,
        since=_since(pod, state),
        code=code,
        message=message,
        round=scheduling.spec.round if scheduling is not None else 0,
        candidates=status.candidates if status is not None else 0,
        viable=status.viable if status is not None else 0,
        recorded=scheduling is not None or not snapshot.hides_scheduling(key),
        claims=details(snapshot, pod, feasibility.claims),
        nodes=matrix.present(snapshot, feasibility, scheduling)
        if waits and snapshot.complete
        else matrix.recorded(pod, scheduling),
        findings=findings(
            snapshot,
            pod,
            objects.raw,
            scheduling,
            written_at(objects.scheduling),
            feasibility.claims,
            objects.events,
            code,
        ),
        remedies=remedies(snapshot, feasibility, code, scheduling) if lacks else (),
        ahead=_ahead(pod, feasibility, waiting_pods(snapshot) if waiting is None else waiting) if lacks else (),
        unread=(*snapshot.unread, *objects.unread, *objects.constraints.unread),
        now=rfc3339(snapshot.now),
    )


def _own_scheduling(pod: Pod, scheduling: PodScheduling | None) -> PodScheduling | None:
    """The PodScheduling, unless it belongs to an earlier pod of that name."""
    if scheduling is None or all(o.uid != pod.metadata.uid for o in scheduling.metadata.owner_references):
        return None
    return scheduling


def state_of(pod: Pod) -> str:
    """The pod's state: waits, bound, ended, deleting or gated."""
    if is_terminal(pod):
        return "ended"
    if pod.metadata.deletion_timestamp:
        return "deleting"
    if pod.spec.node_name:
        return "bound"
    return "gated" if pod.spec.scheduling_gates else "waits"


def _may_lack_claims(pod: Pod) -> bool:
    """Whether the pod is not bound, or may have been bound before its claims were allocated on its node."""
    return (not pod.spec.node_name and not is_terminal(pod)) or pod.status.phase in ("", "Pending")


def _may_lack_claims_on_node(pod: Pod) -> bool:
    return state_of(pod) == "bound" and _may_lack_claims(pod)


def _lacks_claims_on_node(snapshot: Snapshot, feasibility: PodFeasibility) -> bool:
    """Whether the pod is bound and its containers wait for claims that are not allocated on its node."""
    return _may_lack_claims_on_node(feasibility.pod) and snapshot.knows_claims and not feasibility.allocated


def _since(pod: Pod, state: str) -> str:
    if state == "bound":
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "True":
                return condition.last_transition_time or ""
    return pod.metadata.creation_timestamp or ""


def _wait_reason(
    snapshot: Snapshot, feasibility: PodFeasibility, scheduling: PodScheduling | None
) -> tuple[str, str]:
    """The reason code and message of why the pod waits: those that the controller recorded, or else the first
    claim's problem, or that claims are allocated where the pod can't go. If only the binding is missing, the
    answer is that: the controller records it late, and an older reason stands until then. A reason recorded when a
    scheduler last asked is ignored if that scheduler now finds no node by its own filters."""
    pod = feasibility.pod
    if feasibility.claims and feasibility.allocated and snapshot.knows_claims:
        return reasons.BINDING, not_bound(pod)
    if scheduling is not None and scheduling.status.waiting_for in _RECORDED_WHEN_ASKED and is_unasked(pod):
        scheduling = None
    if scheduling is not None and scheduling.status.waiting_for:
        return scheduling.status.waiting_for, scheduling.status.message
    if scheduling is not None and scheduling.spec.selected_node and scheduling.spec.claims:
        return reasons.ALLOCATING, _allocating(scheduling)
    problems = (claim.problem for claim in feasibility.claims if claim.problem is not None)
    if (problem := next(filter(snapshot.is_certain, problems), None)) is not None:
        return "" if problem.passes else problem.code, problem.message
    stranded = feasibility.stranded() if snapshot.complete else None
    if stranded is not None:
        return reasons.CLAIM_STRANDED, stranded.message
    if feasibility.problem:
        return "", feasibility.problem
    if pod.spec.node_name and not snapshot.hides_scheduling((pod.metadata.namespace, pod.metadata.name)):
        return "", _not_allocated_on_node(feasibility)
    return "", "" if scheduling is not None else _unreported(snapshot, pod)


def _not_allocated_on_node(feasibility: PodFeasibility) -> str:
    """Names the claims that a bound pod lacks if the controller recorded no reason, as after a cleared
    allocation."""
    pod = feasibility.pod
    lacking = [c.entry for c in feasibility.claims if c.problem or c.state(pod) is not ClaimState.ALLOCATED]
    claims = f"{noun_for(len(lacking), 'claim')} {listed(lacking)} {'is' if len(lacking) == 1 else 'are'}"
    return (
        f"the pod is bound to node {pod.spec.node_name}, and {claims} not allocated for it there yet: the "
        "controller does that within seconds; if it does not, run `parley doctor`"
    )


def _unreported(snapshot: Snapshot, pod: Pod) -> str:
    """Why there is no report of the controller to show."""
    key = (pod.metadata.namespace, pod.metadata.name)
    if key in snapshot.undecodable_schedulings:
        why = _first_fault(snapshot.undecodable_schedulings[key])
        text = f"PodScheduling {'/'.join(key)}, which has what the controller reported, can't be read: {why}"
        return f"{text}: check whether there is a newer Parley"
    if POD_SCHEDULINGS in snapshot.unread_kinds:
        return "what the controller reported can't be read"
    if is_unasked(pod):
        return f"scheduler {pod.spec.scheduler_name} found no node by its own filters, before it asked Parley"
    return "the controller has not reported on it yet"


def _first_fault(reason: str) -> str:
    """The first field, and what is wrong with it, from a decoder's message; pydantic's have many lines."""
    lines = [line.strip() for line in reason.splitlines()]
    return f"{lines[1]}: {lines[2].partition(' [type=')[0]}" if len(lines) > 2 else reason


def _allocating(scheduling: PodScheduling) -> str:
    """The message while drivers allocate. The controller itself reports that only after some seconds if it
    selected the node without asking them."""
    work = ", ".join(f"{one.driver_name} (claim {one.resource_claim_name})" for one in scheduling.spec.claims)
    return f"allocating on node {scheduling.spec.selected_node}: {work}"


def _ahead(pod: Pod, feasibility: PodFeasibility, waiting: Sequence[WaitingPod]) -> tuple[str, ...]:
    """Pods created earlier that wait for claims of one of the same classes."""
    classes = feasibility.awaited_classes
    mine = (pod.metadata.creation_timestamp or "", pod.metadata.uid)
    return tuple(other.title for other in waiting if (other.created, other.uid) < mine and classes & other.classes)
