"""Whether what victims give up goes to the pod for which they were evicted.

The rule "given away", after every step: devices that victims had, or nobody, are allocated for no pod of lower or
equal priority while the controller keeps the node for the preemptor, and has allocated nothing for it; unless
enough is left for it, or both are nominated for the node and are equals.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tests.soak.rules.controller_memory import RELEVANT_KINDS, ControllerMemory
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.judge import Judge, Taken
from tests.soak.rules.mirrors import Device, Json, are_standalone
from tests.soak.rules.reading import bodies, named_claims, priority

from parley.api.resources import BUILTIN_CLAIMS, RESOURCE_SLICES
from parley.control.nominations import Nomination
from parley.kube.memory import MemoryServer


@dataclass(frozen=True, slots=True)
class Kept:
    """Devices that a plan keeps: those on its node that terminating pods had, or nobody, at the time `since`.
    `by_victim` are those of them that each of these pods had, by its UID: it may have them again."""

    devices: frozenset[Device]
    by_victim: Mapping[str, frozenset[Device]]
    since: float


class KeptDevices:
    """The devices that plans keep for preemptors."""

    def __init__(
        self, server: MemoryServer, invariants: Invariants, leader: Callable[[], ControllerMemory | None]
    ) -> None:
        self._server = server
        self._invariants = invariants
        self._leader = leader
        self._kept: dict[tuple[str, str], Kept] = {}
        """By preemptor and node, as long as the preemptor is nominated there."""

    def observe(self) -> None:
        """Forget what is not kept any more, before a change is looked at."""
        if self._kept:
            memory = self._leader()
            nominations = memory.nominations if memory is not None else ()
            nominated = {(one.pod.uid, one.node) for one in nominations}
            self._kept = {key: kept for key, kept in self._kept.items() if key in nominated}

    def plan_made(self, memory: ControllerMemory, plan: Nomination, taken: Sequence[Taken]) -> None:
        """From now on the node is kept for the preemptor. The controller has `taken` in memory."""
        released = memory.released_by(plan)
        staying = {device for device, hold in taken if hold.identity[0] not in released}
        devices = frozenset(set(self._devices(plan.node)) - staying)
        by_victim: defaultdict[str, set[Device]] = defaultdict(set)
        for device, hold in taken:
            by_victim[hold.identity[0]].add(device)
        had = {uid: frozenset(by_victim[uid]) for uid in plan.terminating}
        self._kept[plan.pod.uid, plan.node] = Kept(devices, had, _now())

    def of(self, plan: Nomination) -> Kept | None:
        """What is kept by the plan."""
        return self._kept.get((plan.pod.uid, plan.node))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        return not self._kept

    def _devices(self, node: str) -> Iterator[Device]:
        """The node's devices that the controller allocates. Nothing of a standalone driver is kept."""
        for body in bodies(self._server, RESOURCE_SLICES):
            if body["spec"]["nodeName"] == node:
                devices = [(node, device["name"]) for device in body["spec"].get("devices") or ()]
                yield from (device for device in devices if not are_standalone([device]))

    def allocated(self, pod: Json, devices: frozenset[Device]) -> frozenset[str]:
        """A controller has recorded an allocation of these devices for the pod. Returns the UIDs of the preemptors
        for which not enough is left, also once their victims have left: the pod is their equal, and nominated for
        the same node."""
        uid, level = pod["metadata"]["uid"], priority(pod)
        memory, outdone = self._leader(), set[str]()
        nominations = memory.nominations if memory is not None else ()
        for one in nominations:
            kept = self._kept.get((one.pod.uid, one.node))
            if kept is None or one.pod.uid == uid or level > one.priority:
                continue
            if memory is not None and memory.controller.ledger.of_pod(one.pod):
                continue  # it has what it asks for
            lost = devices & kept.devices - self._had(uid) - kept.by_victim.get(uid, frozenset())
            left = kept.devices - devices
            if lost and _shares(nominations, uid, level, one):
                if memory is not None and not self._finds_enough(memory, one, memory.released_by(one)):
                    outdone.add(one.pod.uid)
            elif lost and not self._has_enough(memory, one, left):
                text = f"{sorted(lost)} for pod {pod['metadata']['name']}, kept for {one.pod.name}"
                self._invariants.fault("given away", text)
        return frozenset(outdone)

    def _has_enough(self, memory: ControllerMemory | None, plan: Nomination, left: frozenset[Device]) -> bool:
        """Whether enough devices are left for the preemptor, by the controller's memory. Its caches may lack the
        allocation that was just written."""
        if memory is None or not memory.is_complete(self._server, RELEVANT_KINDS - {BUILTIN_CLAIMS.untyped()}):
            return True
        if any(map(memory.is_unwritten, named_claims(self._server, plan.pod.uid))):
            return True  # it may share what another pod has just got
        released = memory.released_by(plan)
        others = _taken_by_others(memory, plan)
        if any(device in left and hold.identity[0] not in released for device, hold in others):
            return True  # somebody else took of it, perhaps since this was decided, and may have been let to
        return self._finds_enough(memory, plan)

    def _finds_enough(self, memory: ControllerMemory, plan: Nomination, gone: Set[str] = frozenset()) -> bool:
        """Whether there are devices enough for the preemptor on its node, without pods and claims with the UIDs
        `gone`."""
        others = [one for one in _taken_by_others(memory, plan) if one[1].identity[0] not in gone]
        judge = Judge(self._server, self._invariants, others, memory.assumed())
        return any(judge.has_devices(one, plan.node) for one in judge.pods if one.metadata.uid == plan.pod.uid)

    def _had(self, uid: str) -> frozenset[Device]:
        """The devices that the pod runs with: a claim that was recreated meanwhile gets these again."""
        pod = self._invariants.pods.get(uid)
        return (
            frozenset(device for found, _ in pod.uses.values() for device in found)
            if pod is not None
            else frozenset()
        )


def _taken_by_others(memory: ControllerMemory, plan: Nomination) -> Sequence[Taken]:
    """What drivers are allocating for the preemptor is its own."""
    own = {claim.uid for request in plan.requests.values() for claim in request.claims}
    return [one for one in memory.taken() if one[1].identity[1] not in own]


def _shares(nominations: Sequence[Nomination], uid: str, level: int, one: Nomination) -> bool:
    """Whether the pod, of that priority, is nominated for the same node, as its equal."""
    own = (other for other in nominations if other.pod.uid == uid)
    return level == one.priority and any(other.node == one.node for other in own)


def _now() -> float:
    return asyncio.get_running_loop().time()
