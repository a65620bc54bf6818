"""Puts together what is known about a pod: the entry to this package.

`explain` reads and explains one pod, `explain_waiting` all that wait; `explain_in` explains from a snapshot that
was read before. What can't be answered is raised as Unanswerable, with a message for the user.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import orjson

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import PodScheduling
from parley.api.resources import POD_SCHEDULINGS, PODS, VOLUMES, Undecodable
from parley.api.wording import listed, noun_for
from parley.control.objects.pod import done
from parley.explain import matrix
from parley.explain.claims import details, ours
from parley.explain.errors import NothingToExplain, Unanswerable
from parley.explain.feasibility import PodFeasibility, is_unasked
from parley.explain.findings import EVENTS, TimedEvent, findings, written_at
from parley.explain.model import Explanation
from parley.explain.remedies import remedies
from parley.explain.snapshot import Snapshot, read
from parley.explain.whereabouts import ANYWHERE, Whereabouts, whereabouts
from parley.kube.client import Client, Forbidden, NotFound
from parley.kube.clock import rfc3339
from parley.negotiation.states import ClaimState
from parley.scheduler.reporting import not_bound

_WHEN_ASKED = frozenset(
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
"""Codes that the controller records for a pod of a second scheduler when that asks it, and not again before."""


@dataclass(frozen=True, slots=True)
class PodObjects:
    """What is read about a single pod, besides the `Snapshot`: the pod and its PodScheduling with every field
    (None if there is none), and the events about it; `unread` is why there are none of these. `where` it can go is
    read, too."""

    raw: Mapping[str, Any]
    scheduling: Mapping[str, Any] | None
    events: Sequence[TimedEvent]
    unread: tuple[str, ...] = ()
    where: Whereabouts = ANYWHERE


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that waits, if it is bound already on its `node`, the classes of the claims that it waits for, and why
    it waits, as far as is known."""

    created: str
    uid: str
    title: str
    node: str
    classes: frozenset[str]
    code: str
    message: str


async def explain(client: Client, now: datetime, namespace: str, name: str) -> Explanation:
    """One pod. Raises NothingToExplain if there is none, or none with claims of Parley's."""
    objects = await read_pod(client, namespace, name)
    pod = _decoded(objects.raw)
    snapshot = await read(client, now, namespace, everywhere=_may_lack_claims(pod))
    return _explained(snapshot, pod, objects, waiting(snapshot))


async def read_pod(client: Client, namespace: str, name: str) -> PodObjects:
    """What `explain_in` has to know. Raises NothingToExplain if there is no such pod, or it has no claims."""
    try:
        raw = await client.get(PODS.untyped(), name, namespace)
    except NotFound:
        raise NothingToExplain(await _no_such_pod(client, namespace, name)) from None
    if not raw.get("spec", {}).get("resourceClaims"):
        raise NothingToExplain(
            f"pod {namespace}/{name} has no claims (spec.resourceClaims is empty): there is nothing to negotiate"
        )
    about = f"regarding.uid={raw['metadata']['uid']}"
    where = await whereabouts(client, _decoded(raw))
    scheduling = await _scheduling(client, namespace, name, raw["metadata"]["uid"])
    return PodObjects(raw, scheduling, *await _events(client, namespace, about), where)


def explain_in(snapshot: Snapshot, objects: PodObjects) -> Explanation:
    """As `explain`, with the PodScheduling as it was read with the pod: of pods that wait for nothing a snapshot
    may have no more than numbers. Raises NothingToExplain if none of the pod's claims is Parley's."""
    pod = _decoded(objects.raw)
    if objects.scheduling is not None:
        with suppress(Undecodable):  # the snapshot says so under "Not read"
            whole: PodScheduling = POD_SCHEDULINGS.decode(orjson.dumps(objects.scheduling))
            key = pod.metadata.namespace, pod.metadata.name
            snapshot = replace(snapshot, schedulings={**snapshot.schedulings, key: whole})
    return _explained(snapshot, pod, objects, waiting(snapshot))


def _decoded(raw: Mapping[str, Any]) -> Pod:
    try:
        return PODS.decode(orjson.dumps(raw))
    except Undecodable as error:
        meta = raw["metadata"]
        title = f"pod {meta['namespace']}/{meta['name']}"
        raise Unanswerable(f"{title} can't be read: {error}: check whether there is a newer Parley") from error


async def namespaces_of(client: Client, name: str) -> list[str]:
    """Where there are pods of that name. Raises NothingToExplain if there are none."""
    pods = (await client.list(PODS, field_selector=f"metadata.name={name}")).items
    found = [pod.metadata.namespace for pod in pods]
    if not found:
        raise NothingToExplain(f"no namespace has a pod {name}: see `kubectl get pods -A`")
    return found


async def explain_waiting(
    client: Client,
    snapshot: Snapshot,
    namespace: str | None,
    selects: Callable[[Mapping[str, str]], bool] = lambda _: True,
) -> list[Explanation]:
    """Every pod with claims of Parley's that is not bound, or lacks some on its node, of the namespace or of all,
    the oldest first; of those whose labels are selected."""
    chosen = [
        pod
        for pod in snapshot.pods.values()
        if namespace in (None, pod.metadata.namespace) and not done(pod) and pod.spec.resource_claims
    ]
    objects = PodObjects({}, None, *await _events(client, namespace))
    line = waiting(snapshot)
    lacking = {one.uid for one in line if one.node}
    unbound = [pod for pod in chosen if not pod.spec.node_name or pod.metadata.uid in lacking]
    told = []
    for pod in sorted(unbound, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name)):
        if selects(pod.metadata.labels) and ours(snapshot, pod, PodFeasibility(snapshot, pod).claims):
            about = replace(objects, where=await whereabouts(client, pod))
            told.append(_explained(snapshot, pod, about, line))
    return told


def waiting(snapshot: Snapshot) -> list[Waiting]:
    """The pods that wait, the oldest first; those that the controller has not reported on, too, and those that
    wait on their nodes for what was not allocated before they were bound."""
    found = []
    for key, pod in snapshot.pods.items():
        if not pod.spec.resource_claims or not (state_of(pod) == "waits" or _may_lack_on_node(pod)):
            continue
        feasibility = PodFeasibility(snapshot, pod)
        if pod.spec.node_name and not _lacks_on_node(snapshot, feasibility):
            continue
        if ours(snapshot, pod, feasibility.claims):
            why = _why(snapshot, feasibility, _of(pod, snapshot.schedulings.get(key)))
            meta, wanted = pod.metadata, feasibility.wanted
            created = meta.creation_timestamp or ""
            found.append(Waiting(created, meta.uid, "/".join(key), pod.spec.node_name, wanted, *why))
    return sorted(found, key=lambda one: (one.created, one.uid))


async def _no_such_pod(client: Client, namespace: str, name: str) -> str:
    text = f"pod {namespace}/{name} does not exist"
    try:
        elsewhere = (await client.list(PODS, field_selector=f"metadata.name={name}")).items
        here = (await client.list(PODS, namespace)).items
    except Forbidden:
        return f"{text}: name its namespace with -n"
    if elsewhere:
        found = elsewhere[0].metadata.namespace
        return f"{text}: there is one of that name in namespace {found} (-n {found})"
    if alike := get_close_matches(name, [pod.metadata.name for pod in here], n=1):
        return f"{text}: did you mean {alike[0]}?"
    return f"{text}: see `kubectl get pods -n {namespace}`, or name another namespace with -n"


async def _scheduling(client: Client, namespace: str, name: str, uid: str) -> Mapping[str, Any] | None:
    """None too if an earlier pod of that name left it behind."""
    try:
        found = await client.get(POD_SCHEDULINGS.untyped(), name, namespace)
    except (NotFound, Forbidden):
        return None
    owners = found["metadata"].get("ownerReferences") or ()
    return found if any(owner.get("uid") == uid for owner in owners) else None


async def _events(
    client: Client, namespace: str | None, fields: str = ""
) -> tuple[Sequence[TimedEvent], tuple[str, ...]]:
    """With why they could not be read."""
    try:
        return (await client.list(EVENTS, namespace, field_selector=fields)).items, ()
    except Forbidden as error:
        return (), (error.message,)


def _explained(snapshot: Snapshot, pod: Pod, objects: PodObjects, line: Sequence[Waiting]) -> Explanation:
    meta, key = pod.metadata, (pod.metadata.namespace, pod.metadata.name)
    if objects.where.unread:
        snapshot = replace(snapshot, partial=snapshot.partial | {VOLUMES})
    objects.where.show(snapshot.state.cluster)
    feasibility = PodFeasibility(snapshot, pod)
    scheduling = _of(pod, snapshot.schedulings.get(key))
    if not ours(snapshot, pod, feasibility.claims):
        raise NothingToExplain(
            f"pod {key[0]}/{key[1]} has no Parley claims: its claims belong to other DRA drivers "
            "(`kubectl describe pod` shows their events)"
        )
    state = state_of(pod)
    lacks = state == "waits" or _lacks_on_node(snapshot, feasibility)
    code, message = _why(snapshot, feasibility, scheduling) if lacks else ("", "")
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
        ahead=_ahead(pod, feasibility, line) if lacks else (),
        unread=(*snapshot.unread, *objects.unread, *objects.where.unread),
        now=rfc3339(snapshot.now),
    )


def _of(pod: Pod, scheduling: PodScheduling | None) -> PodScheduling | None:
    """The PodScheduling, unless an earlier pod of that name left it behind."""
    if scheduling is None or all(o.uid != pod.metadata.uid for o in scheduling.metadata.owner_references):
        return None
    return scheduling


def state_of(pod: Pod) -> str:
    """waits, bound, ended, deleting or gated."""
    if done(pod):
        return "ended"
    if pod.metadata.deletion_timestamp:
        return "deleting"
    if pod.spec.node_name:
        return "bound"
    return "gated" if pod.spec.scheduling_gates else "waits"


def _may_lack_claims(pod: Pod) -> bool:
    """Whether it is not bound, or somebody may have put it on its node before its claims were allocated there."""
    return (not pod.spec.node_name and not done(pod)) or pod.status.phase in ("", "Pending")


def _may_lack_on_node(pod: Pod) -> bool:
    return state_of(pod) == "bound" and _may_lack_claims(pod)


def _lacks_on_node(snapshot: Snapshot, feasibility: PodFeasibility) -> bool:
    """Whether the pod is bound, and its containers wait for claims that are not allocated for it there."""
    return _may_lack_on_node(feasibility.pod) and snapshot.knows_claims and not feasibility.allocated


def _since(pod: Pod, state: str) -> str:
    if state == "bound":
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "True":
                return condition.last_transition_time or ""
    return pod.metadata.creation_timestamp or ""


def _why(snapshot: Snapshot, feasibility: PodFeasibility, scheduling: PodScheduling | None) -> tuple[str, str]:
    """The reason and message that the controller recorded. Before it has, or where nobody asked it, the first
    claim's problem, or that claims are where the pod can't go. It records only after a while that the binding
    alone is missing: until then what the pod waited for before stands there. What it recorded when a scheduler
    last asked says nothing if that finds no node by itself now."""
    pod = feasibility.pod
    if feasibility.claims and feasibility.allocated and snapshot.knows_claims:
        return reasons.BINDING, not_bound(pod)
    if scheduling is not None and scheduling.status.waiting_for in _WHEN_ASKED and is_unasked(pod):
        scheduling = None
    if scheduling is not None and scheduling.status.waiting_for:
        return scheduling.status.waiting_for, scheduling.status.message
    if scheduling is not None and scheduling.spec.selected_node and scheduling.spec.claims:
        return reasons.ALLOCATING, _allocating(scheduling)
    problem = next((claim.problem for claim in feasibility.claims if claim.problem is not None), None)
    if problem is not None and snapshot.knows_claims:
        return "" if problem.passes else problem.code, problem.message
    stranded = feasibility.stranded() if snapshot.complete else None
    if stranded is not None:
        return reasons.CLAIM_STRANDED, stranded.message
    if feasibility.problem:
        return "", feasibility.problem
    if pod.spec.node_name and not snapshot.hides_scheduling((pod.metadata.namespace, pod.metadata.name)):
        return "", _not_allocated_there(feasibility)
    return "", "" if scheduling is not None else _unreported(snapshot, pod)


def _not_allocated_there(feasibility: PodFeasibility) -> str:
    """What a bound pod lacks, if the controller has not said why: as when somebody cleared its claim."""
    pod = feasibility.pod
    lacking = [c.entry for c in feasibility.claims if c.problem or c.state(pod) is not ClaimState.ALLOCATED]
    claims = f"{noun_for(len(lacking), 'claim')} {listed(lacking)} {'is' if len(lacking) == 1 else 'are'}"
    return (
        f"the pod is bound to node {pod.spec.node_name}, and {claims} not allocated for it there yet: the "
        "controller does that within seconds; if it does not, run `parley doctor`"
    )


def _unreported(snapshot: Snapshot, pod: Pod) -> str:
    """Why no report of the controller's is shown."""
    key = (pod.metadata.namespace, pod.metadata.name)
    if key in snapshot.undecodable_schedulings:
        why = _first_fault(snapshot.undecodable_schedulings[key])
        text = f"PodScheduling {'/'.join(key)}, which has what the controller reported, can't be read: {why}"
        return f"{text}: check whether there is a newer Parley"
    if POD_SCHEDULINGS in snapshot.blind:
        return "what the controller reported can't be read"
    if is_unasked(pod):
        return f"scheduler {pod.spec.scheduler_name} found no node by its own filters, before it asked Parley"
    return "the controller has not reported on it yet"


def _first_fault(reason: str) -> str:
    """Of a decoder's message in many lines, which is pydantic's, the first field and what is wrong with it."""
    lines = [line.strip() for line in reason.splitlines()]
    return f"{lines[1]}: {lines[2].partition(' [type=')[0]}" if len(lines) > 2 else reason


def _allocating(scheduling: PodScheduling) -> str:
    """What a node was selected for without a question is shown as waiting only after some seconds."""
    work = ", ".join(f"{one.driver_name} (claim {one.resource_claim_name})" for one in scheduling.spec.claims)
    return f"allocating on node {scheduling.spec.selected_node}: {work}"


def _ahead(pod: Pod, feasibility: PodFeasibility, line: Sequence[Waiting]) -> tuple[str, ...]:
    """Other pods that wait for claims of one of the same classes, and were made earlier."""
    classes = feasibility.wanted
    mine = (pod.metadata.creation_timestamp or "", pod.metadata.uid)
    return tuple(other.title for other in line if (other.created, other.uid) < mine and classes & other.classes)
