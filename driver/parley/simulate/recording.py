"""Records what happens to each pod in a simulated cluster, by watching the API.

Keeps a step for each change of interest to users, and the last state of the pod, its claims and its negotiation.
The command line shows the records.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from parley.api.builtin import BuiltinClaim, Event, Pod
from parley.api.models import PodScheduling
from parley.api.names import POD_CLAIM_NAME_ANNOTATION
from parley.api.reasons import CLAIM_UNUSED
from parley.api.resources import BUILTIN_CLAIMS, EVENTS, POD_SCHEDULINGS, PODS
from parley.control.objects.mirror import allocated, driver_of, nodes_of, offer_stands, owner_pod_uid, whereabouts
from parley.kube.cache import Key
from parley.kube.client import Client
from parley.kube.informer import Informer

GATED = "SchedulingGated: the pod's claims are not negotiated until its scheduling gates are removed"
"""The reason of gated pods; the API server sets a condition for it, which a simulation does not have."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A change; `at` is in seconds since the recording began."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """The last state of a pod's claim. `entry` is the pod's name for it; `claim` is "" before the object
    exists."""

    entry: str
    claim: str = ""
    driver: str = ""
    devices: tuple[str, ...] = ()


@dataclass(slots=True)
class PodRecord:
    """The record of a pod. `waits` is why it is not bound ("NothingViable: ..."), or what it lacks on its node;
    `round` is the last negotiation in which drivers answered, `left_out` are the nodes that were not candidates in
    it, with the reasons. `gone`: the pod was deleted, as by preemption."""

    namespace: str
    name: str
    pod: Pod = field(default_factory=Pod)
    steps: list[RecordedStep] = field(default_factory=list)
    claims: dict[str, ClaimRecord] = field(default_factory=dict)
    round: PodScheduling | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    waits: str = ""
    gone: bool = False

    @property
    def node(self) -> str:
        """The node that the pod is bound to; "" if it waits or was deleted."""
        return "" if self.gone else self.pod.spec.node_name

    @property
    def runs(self) -> bool:
        """Whether the pod is bound and can run there."""
        return bool(self.node) and not self.reason

    @property
    def reason(self) -> str:
        """Why the pod does not run: Parley's message, or else the scheduler's."""
        if self.gone and self.pod.spec.node_name:
            return f"Gone: it was deleted on node {self.pod.spec.node_name}, as by preemption"
        if self.node:
            return self.waits if self.pod.status.phase in ("", "Pending") else ""
        conditions = [c for c in self.pod.status.conditions if c.type == "PodScheduled" and c.status == "False"]
        found = self.waits or (f"{conditions[0].reason}: {conditions[0].message}" if conditions else "")
        return found or (GATED if self.pod.spec.scheduling_gates else "")


LeftOut = Callable[[Pod, PodScheduling], Mapping[str, str]]
"""The nodes that are no candidates in the pod's negotiation, each with the reason."""


class Recording:
    """Records pods until cancelled. `pods` has the records in the order of the pods' creation."""

    def __init__(self, client: Client, left_out: LeftOut) -> None:
        self._left_out = left_out
        self._records: dict[Key, PodRecord] = {}
        self._pods_by_claim: defaultdict[Key, dict[tuple[Key, str], None]] = defaultdict(dict)
        self._reserved: dict[str, frozenset[str]] = {}
        """UIDs of the pods that each allocated claim was last reserved for, by the claim's UID."""
        self.bound = 0
        """The number of pods that are or were bound."""
        self._start = asyncio.get_running_loop().time()
        self._informers: tuple[Informer[Any], ...] = (
            Informer(client, PODS, on_change=self._pod),
            Informer(client, BUILTIN_CLAIMS, on_change=self._claim),
            Informer(client, POD_SCHEDULINGS, on_change=self._scheduling),
            Informer(client, EVENTS, on_change=self._event),
        )

    @property
    def pods(self) -> list[PodRecord]:
        """All records, including those of deleted pods."""
        return list(self._records.values())

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start recording; returns when all watches are established."""
        for informer in self._informers:
            tasks.create_task(informer.run())
            await informer.synced.wait()

    def _record(self, namespace: str, name: str) -> PodRecord:
        return self._records.setdefault((namespace, name), PodRecord(namespace, name))

    def _step(self, record: PodRecord, text: str) -> None:
        if not record.steps or record.steps[-1].text != text:
            record.steps.append(RecordedStep(asyncio.get_running_loop().time() - self._start, text))

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        record = self._record(pod.metadata.namespace, pod.metadata.name)
        self.bound += int(bool(pod.spec.node_name)) - int(bool(record.pod.spec.node_name))
        record.pod, record.gone = pod, new is None
        if old is None:
            self._index_claims(pod)
        for text in _pod_steps(old, new):
            if text == _bound_to(pod) and record.steps and record.steps[-1].text == _chosen(pod.spec.node_name):
                record.steps.pop()  # every binding begins with that step; nothing happened in between
            self._step(record, text)

    def _index_claims(self, pod: Pod) -> None:
        """Index the entries by which the pod names claims."""
        key = (pod.metadata.namespace, pod.metadata.name)
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_name:
                self._pods_by_claim[key[0], entry.resource_claim_name][key, entry.name] = None

    def _claim(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        claim = new or old
        if claim is None:
            return
        for record, entry in self._users(claim):
            if new is not None:
                _remember(record, entry, new)
            text = _claim_step(entry, old, new)
            if text and (_is_for(record, old) or _is_for(record, new) or self._held_claim(record, old, new)):
                self._step(record, text)
        if new is None or new.status.allocation is None:
            self._reserved.pop(claim.metadata.uid, None)
        elif new.status.reserved_for:
            self._reserved[new.metadata.uid] = frozenset(user.uid for user in new.status.reserved_for)

    def _held_claim(self, record: PodRecord, old: BuiltinClaim | None, new: BuiltinClaim | None) -> bool:
        """Whether the claim was released, and was last reserved for the pod: the claim controller may have removed
        the reservation earlier."""
        if old is None or old.status.reserved_for or new is None or new.status.allocation is not None:
            return False
        return record.pod.metadata.uid in self._reserved.get(old.metadata.uid, ())

    def _users(self, claim: BuiltinClaim) -> Iterator[tuple[PodRecord, str]]:
        """The records of pods that use the claim, and their entries for it."""
        namespace, uid = claim.metadata.namespace, owner_pod_uid(claim)
        for owner in claim.metadata.owner_references:
            if uid and owner.uid == uid:
                yield self._record(namespace, owner.name), claim.metadata.annotations[POD_CLAIM_NAME_ANNOTATION]
        for key, entry in self._pods_by_claim.get((namespace, claim.metadata.name), ()):
            yield self._records[key], entry

    def _scheduling(self, _old: PodScheduling | None, new: PodScheduling | None) -> None:
        if new is None:
            return
        record = self._record(new.metadata.namespace, new.metadata.name)
        if any(claim.viable_nodes or claim.reason for claim in new.status.claims):
            record.round = new
            record.left_out = self._left_out(record.pod, new)
        status = new.status
        if status.waiting_for:
            record.waits = f"{status.waiting_for}: {status.message}"
            self._step(record, f"waits: {record.waits}")
        elif record.pod.spec.node_name:
            record.waits = ""

    def _event(self, _old: Event | None, new: Event | None) -> None:
        if new is None or not isinstance(new.regarding, dict) or new.regarding.get("kind") != "Pod":
            return
        record = self._record(new.metadata.namespace, str(new.regarding.get("name")))
        if new.reason == CLAIM_UNUSED:  # whether it waits or not
            self._step(record, f"warning: {new.note}")
            return
        record.waits = f"{new.reason}: {new.note}"
        if not record.node:
            self._step(record, f"waits: {record.waits}")


def _pod_steps(old: Pod | None, new: Pod | None) -> Iterator[str]:
    if new is None:
        yield "gone"
        return
    if old is None:
        yield "created"
    before = old or Pod()
    if new.status.nominated_node_name and new.status.nominated_node_name != before.status.nominated_node_name:
        yield _chosen(new.status.nominated_node_name)
    if new.spec.node_name and not before.spec.node_name:
        yield _bound_to(new)
    if new.status.phase != before.status.phase and new.status.phase in ("Running", "Succeeded", "Failed"):
        yield new.status.phase.lower()


def _chosen(node: str) -> str:
    return f"the scheduler chooses {node}"


def _bound_to(pod: Pod) -> str:
    return f"bound to {pod.spec.node_name}"


def _is_for(record: PodRecord, claim: BuiltinClaim | None) -> bool:
    """Whether the claim is generated for some pod, or reserved for this one."""
    return claim is not None and (
        bool(owner_pod_uid(claim)) or record.pod.metadata.uid in {user.uid for user in claim.status.reserved_for}
    )


def _claim_step(entry: str, old: BuiltinClaim | None, new: BuiltinClaim | None) -> str:
    if new is None or (old is not None and _outcome(old) == _outcome(new)):
        return ""
    outcome = _outcome(new) or ("released" if old is not None else "")
    return f"claim {entry}: {outcome}" if outcome else ""


def _outcome(claim: BuiltinClaim) -> str:
    """The allocated devices, or where the claim is allocated if it has none; "" without an allocation."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    if offer_stands(claim):
        return f"offered to the scheduler on {', '.join(nodes_of(allocation))}"
    devices = _devices(claim)
    return f"allocated {', '.join(devices)}" if devices else whereabouts(allocation)


def _devices(claim: BuiltinClaim) -> tuple[str, ...]:
    """The allocated devices. An offer has none until a node is chosen."""
    allocation = claim.status.allocation
    found = allocated(claim, driver_of(allocation)) if allocation is not None else None
    return tuple(device.device for device in found.devices) if found else ()


def _remember(record: PodRecord, entry: str, claim: BuiltinClaim) -> None:
    allocation = claim.status.allocation
    driver = driver_of(allocation) if allocation and _is_for(record, claim) else ""
    if record.pod.spec.node_name and not driver:
        return  # the pod has ended: the record keeps what it had
    devices = _devices(claim) if driver else ()
    record.claims[entry] = ClaimRecord(entry, claim.metadata.name, driver, devices)
