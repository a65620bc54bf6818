"""What must hold at rest, when nothing changes any more: feasible pods run, and deleted pods left nothing behind.

Whether a pod can run is decided independently, from the API's state alone, by trying all ways: it shares no code
with the negotiation but the filters of the simulated scheduler, which decide what a pod can run on.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

from tests.soak.invariants import Hold, Source
from tests.soak.keeping import NOWHERE, allocation, is_kept, kept_too_long
from tests.soak.mirrors import Device, Json, is_parleys, read
from tests.soak.pods import CLAIM_KINDS, TEMPLATE_KINDS
from tests.soak.world import Broken, World

from parley.api.quantity import parse
from parley.api.resources import (
    BUILTIN_CLAIMS,
    CLAIM_RELEASES,
    CLAIMS,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    Resource,
)
from parley.simulate.anti_affinity import PODS as SCHEDULED_PODS
from parley.simulate.anti_affinity import Pod
from parley.simulate.placement import Occupied, place

QUIET = 320.0
"""Seconds: longer than anything waits before it is tried again."""
LONGEST = 2000.0
MOST_WRITES = 12
"""So many writes of Parley's a pod may cost in QUIET seconds when the scheduler refuses it wherever Parley could
allocate: it is offered again and again, after ever longer pauses.

A scheduler's own writes are not Parley's doing. It reserves one claim of a pod, is refused another, and takes the
first back, again and again (PreBind and Unreserve in pkg/scheduler/framework/plugins/dynamicresources, v1.37.0).
"""


async def feasible_pods_run(world: World) -> None:
    """Wait until nothing is pending any more, then check every pod."""
    if not await world.settle(QUIET, LONGEST):
        waiting = sum(1 for pod in _pods(world) if not pod.spec.node_name)
        await world.let_pass(QUIET)
        before = world.server.controllers_steps
        await world.let_pass(QUIET)
        writes = world.server.controllers_steps - before
        if writes > MOST_WRITES * waiting:
            raise Broken(f"never quiet: {writes} writes in {QUIET:.0f} s for {waiting} pods")
    await world.check()
    Judge(world).judge()


async def nothing_is_left(world: World) -> None:
    """All pods are deleted: wait for the rest to follow, then look for what stayed."""
    if not await world.settle(QUIET, LONGEST):
        raise Broken(f"never quiet: no pod is left, and it still writes after {LONGEST:.0f} s")
    if left := list(_left(world)):
        raise Broken("\n".join(f"left over: {what}" for what in left))


def _left(world: World) -> Iterator[str]:
    for body in _bodies(world, PODS):
        yield f"pod {body['metadata']['name']} ({body['metadata'].get('deletionTimestamp')})"
    for body in _bodies(world, POD_SCHEDULINGS):
        yield f"PodScheduling {body['metadata']['name']}"
    for body in _bodies(world, CLAIM_RELEASES):
        yield f"ClaimRelease {body['metadata']['name']} for node {body['spec']['nodeName']}"
    for body in _bodies(world, BUILTIN_CLAIMS):
        yield from _left_of(body, "built-in claim", body["metadata"]["name"] not in CLAIM_KINDS)
    for body in _bodies(world, CLAIMS):
        yield from _left_of(body, "Parley claim", False)
    yield from (f"data of claim {claim} on node {node}" for claim, node in world.invariants.data.places)
    yield from _left_in_memory(world)


def _left_of(body: Json, kind: str, generated: bool) -> Iterator[str]:
    name, status = body["metadata"]["name"], body.get("status") or {}
    if generated:
        yield f"{kind} {name}, generated"
    if body["metadata"].get("deletionTimestamp"):
        yield f"{kind} {name}, being deleted, with finalizers {body['metadata'].get('finalizers')}"
    for field in ("allocation", "reservedFor", "deallocationRequested", "keptUntil", "devices", "driverName"):
        if status.get(field):
            yield f"{kind} {name}: status.{field} = {status[field]}"


def _left_in_memory(world: World) -> Iterator[str]:
    leader = world.leader
    if leader is None or leader.controller is None:
        yield "no controller: none leads"
        return
    for holding in leader.controller.ledger:
        yield f"holding of {holding.claim} for {[pod.name for pod in holding.pods.values()]} in the ledger"
    for uid, devices in leader.driver.held().items():
        yield f"devices {devices} of claim {uid} in the driver"


@dataclass(frozen=True, slots=True)
class Want:
    """What one claim asks for."""

    count: int
    memory: Fraction
    shared: bool


class Judge:
    """One look at the whole cluster."""

    def __init__(self, world: World) -> None:
        self._pods = list(_pods(world))
        self._nodes = {
            node.metadata.name: Occupied(node) for node in (NODES.decode(data) for data in _data(world, NODES))
        }
        for pod in self._pods:
            if pod.spec.node_name in self._nodes and not _done(pod):
                self._nodes[pod.spec.node_name].add(pod)
        self._records = {
            body["metadata"]["name"]: read(body) for body in _bodies(world, BUILTIN_CLAIMS) if is_parleys(body)
        }
        self._going = {
            body["metadata"]["name"]
            for body in _bodies(world, BUILTIN_CLAIMS)
            if body["metadata"].get("deletionTimestamp")
        }
        self._claims = {body["metadata"]["name"]: body for body in _bodies(world, CLAIMS)}
        self._now = world.clock()
        self._devices = dict(_published(_bodies(world, RESOURCE_SLICES)))
        self._uses = {pod.uid: pod.uses for pod in world.invariants.pods.values() if pod.running}
        recorded = _recorded(self._claims.values(), {p.uid for p in world.invariants.pods.values() if p.alive})
        self._held = _held([*_by_device(world.invariants.holds), *recorded])

    def judge(self) -> None:
        """Raises Broken for pods that wait although they could run, are bound and don't run, or run and have not
        reserved what they use, for claims whose conditions contradict the rest of their status, and for those
        that are kept for too long."""
        faults = []
        for pod in self._pods:
            if _done(pod) or pod.metadata.deletion_timestamp:
                continue
            if not pod.spec.node_name and (node := self._could_run(pod)):
                faults.append(f"waits in vain: pod {pod.metadata.name} could run on node {node}")
            elif pod.spec.node_name and pod.status.phase != "Running" and self._could_start(pod):
                faults.append(
                    f"waits in vain: pod {pod.metadata.name} is bound to {pod.spec.node_name}, not running"
                )
            faults += [f"not reserved: claim {name} for pod {pod.metadata.name}" for name in self._unreserved(pod)]
        faults += [f"conditions disagree: {what}" for body in self._claims.values() for what in _disagreeing(body)]
        faults += [f"kept too long: {what}" for what in kept_too_long(self._claims.values(), self._now)]
        if faults:
            raise Broken("\n".join(faults))

    def _unreserved(self, pod: Pod) -> Iterator[str]:
        """What the running pod uses and has not reserved. A claim that is being deleted can't be reserved."""
        uses = self._uses.get(pod.metadata.uid, {})
        for name, record in self._records.items():
            if record.identity in uses and pod.metadata.uid not in record.users and name not in self._going:
                yield name

    def _could_run(self, pod: Pod) -> str:
        """A node where everything it asks for is there; "" if there is none."""
        for name, occupied in self._nodes.items():
            if place(pod, (), {name: occupied}).node and self._serves(pod, name):
                return name
        return ""

    def _could_start(self, pod: Pod) -> bool:
        return pod.spec.node_name in self._nodes and self._serves(pod, pod.spec.node_name)

    def _serves(self, pod: Pod, node: str) -> bool:
        """Whether the pod's claims can all be had on the node, besides what the pod has already."""
        wants: list[Want] = []
        mine: set[Device] = set()
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name:
                if entry.resource_claim_template_name not in TEMPLATE_KINDS:
                    return False
                wants.append(_want(TEMPLATE_KINDS[entry.resource_claim_template_name][1]))
                continue
            name = entry.resource_claim_name or ""
            claim, record = self._claims.get(name), self._records.get(name)
            if (
                claim is None
                or name not in CLAIM_KINDS
                or claim["metadata"].get("deletionTimestamp")
                or record is None
                or name in self._going
            ):
                return False
            others = [user for user in record.users if user != pod.metadata.uid]
            if others and record.exclusive:
                return False
            if others and node not in record.nodes:
                return False
            if not others and is_kept(claim):
                if node not in (allocation(claim) or NOWHERE)[0]:
                    return False
            elif not others:
                wants.append(_want(CLAIM_KINDS[name][1]))
        for record in self._records.values():
            if set(record.users) == {pod.metadata.uid} or record.identity[0] == pod.metadata.uid:
                mine.update(record.devices)
        return self._fits(wants, node, dict.fromkeys(mine, 1))

    def _fits(self, wants: Sequence[Want], node: str, mine: Mapping[Device, int]) -> bool:
        """Whether there are devices for all wants together, by trying all ways. What is `mine` counts as free."""
        if not wants:
            return True
        want, rest = wants[0], wants[1:]
        suitable = [device for device in self._devices if self._suits(device, want, node, mine)]
        for chosen in combinations(suitable, want.count):
            before = self._held
            self._held = {**before, **{d: (before.get(d, (0, True))[0] + 1, want.shared) for d in chosen}}
            found = self._fits(rest, node, mine)
            self._held = before
            if found:
                return True
        return False

    def _suits(self, device: Device, want: Want, node: str, mine: Mapping[Device, int]) -> bool:
        memory, shares = self._devices[device]
        if device[0] != node or (memory / shares if want.shared else memory) < want.memory:
            return False
        count, shared = self._held.get(device, (0, True))
        count -= mine.get(device, 0)
        return count <= 0 or (want.shared and shared and count < shares)


def _disagreeing(body: Json) -> Iterator[str]:
    """Conditions of the claim that are not what its fields say, or are about an older state of it."""
    meta, status = body["metadata"], body.get("status") or {}
    if meta["name"] not in CLAIM_KINDS:
        return  # a tenant's, which may be anything
    found = {condition["type"]: condition for condition in status.get("conditions") or ()}
    true = {type_ for type_, condition in found.items() if condition["status"] == "True"}
    allocated = bool(status.get("allocation"))
    ends = bool(meta.get("deletionTimestamp") or status.get("deallocationRequested") or "Releasing" in true)
    expected = {"Allocated": allocated, "Ready": allocated and "Accepted" in true and not ends}
    for type_, holds in expected.items():
        if (type_ in true) != holds or type_ not in found:
            yield f"claim {meta['name']} is {found.get(type_)}, with status {status} and metadata {meta}"
        elif found[type_].get("observedGeneration") != meta["generation"]:
            yield f"claim {meta['name']}: {found[type_]} is not about generation {meta['generation']}"


def _want(parameters: Json) -> Want:
    memory = Fraction(parse(parameters.get("memory", "0")))
    return Want(parameters.get("count", 1), memory, parameters.get("shared", False))


def _held(holds: Iterable[tuple[Device, Hold]]) -> dict[Device, tuple[int, bool]]:
    """How many claims hold each device, and whether only shares of it."""
    found: defaultdict[Device, list[Hold]] = defaultdict(list)
    for device, hold in holds:
        found[device].append(hold)
    return {
        device: (len({hold.identity for hold in holds}), all(hold.shared for hold in holds))
        for device, holds in found.items()
    }


def _by_device(holds: Mapping[Device, Mapping[Source, Hold]]) -> Iterator[tuple[Device, Hold]]:
    """By a built-in claim's record or a running pod's use."""
    return ((device, hold) for device, found in holds.items() for hold in found.values())


def _recorded(claims: Iterable[Json], living: Set[str]) -> Iterator[tuple[Device, Hold]]:
    """By a Parley claim's own record for a living pod: its built-in claim may be in deletion, and show nothing."""
    for body in claims:
        users = (body.get("status") or {}).get("reservedFor") or ()
        if any(user["uid"] in living for user in users) and (found := allocation(body)) is not None:
            _, devices, shared = found
            yield from ((device, Hold((body["metadata"]["uid"], ""), shared)) for device in devices)


def _published(slices: Iterator[Json]) -> Iterator[tuple[Device, tuple[Fraction, int]]]:
    """Each device's memory and number of shares; a pool is a node."""
    for body in slices:
        for device in body["spec"].get("devices") or ():
            capacity = device["capacity"]
            memory, shares = Fraction(parse(capacity["memory"]["value"])), int(capacity["slices"]["value"])
            yield (body["spec"]["nodeName"], device["name"]), (memory, shares)


def _done(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _pods(world: World) -> Iterator[Pod]:
    return (SCHEDULED_PODS.decode(data) for data in _data(world, PODS))


def _data(world: World, resource: Resource[Any]) -> Iterator[bytes]:
    return (stored.data for stored in world.server.store.collection(resource).objects.values())


def _bodies(world: World, resource: Resource[Any]) -> Iterator[Json]:
    return (stored.body for stored in world.server.store.collection(resource).objects.values())
