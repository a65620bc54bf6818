"""Where pods could run, decided independently, by trying all ways: it shares no code with the negotiation but the
filters of the simulated scheduler, which decide what a pod can run on.

The API's state is judged, or what a controller has in memory by then.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

from tests.soak.kinds.claims import CLAIM_KINDS, is_on_demand
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS, STANDALONE_CLASS_KINDS, TOKEN_CLASS_KINDS
from tests.soak.rules.holds import Hold, Source
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.kept_claims import allocation, has_failed, is_immediate, is_kept
from tests.soak.rules.mirrors import Device, Json, are_standalone, identity_of_claim, is_parleys, read
from tests.soak.rules.reading import bodies
from tests.soak.rules.reservations import Room
from tests.soak.rules.views import SOURCE, VIEW

from parley.api.quantity import parse
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES, RESOURCE_SLICES, Resource
from parley.kube.memory import MemoryServer
from parley.simulate.anti_affinity import PODS as SCHEDULED_PODS
from parley.simulate.anti_affinity import Pod
from parley.simulate.placement import NodeInfo, place

Taken = tuple[Device, Hold]

NOBODY: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Want:
    """What one claim asks for."""

    count: int
    memory: Fraction
    shared: bool
    standalone: bool


@dataclass(frozen=True, slots=True)
class Use:
    """That pods, by UID, use a named claim on a node."""

    name: str
    node: str
    pods: Set[str]


class Judge:
    """One look at the whole cluster. Devices are taken as the API says, or as `taken` does; `assumed` are nodes of
    pods, by UID, that count for them though they are not bound. `reserving`: claims reserve room on nodes.
    `in_memory` is what the leader knows to be taken, `used` which named claims pods use where, by UID, and
    `unconfirmed` for which claims it waits for nodes: of claims that were forced away there may be no other
    record."""

    def __init__(
        self,
        server: MemoryServer,
        invariants: Invariants,
        taken: Sequence[Taken] | None = None,
        assumed: Mapping[str, str] | None = None,
        *,
        reserving: bool = False,
        in_memory: Iterable[Taken] = (),
        used: Mapping[str, Use] | None = None,
        unconfirmed: Set[str] = NOBODY,
    ) -> None:
        pods = (SCHEDULED_PODS.decode(data) for data in _data(server, SCHEDULED_PODS))
        self.pods = [pod for pod in pods if not pod.spec.scheduling_gates]
        self._nodes = {
            node.metadata.name: NodeInfo(node) for node in (NODES.decode(data) for data in _data(server, NODES))
        }
        for pod in self.pods:
            node = pod.spec.node_name or (assumed or {}).get(pod.metadata.uid, "")
            if node in self._nodes and not done(pod):
                self._nodes[node].add(pod)
        self._records = {
            body["metadata"]["name"]: read(body) for body in bodies(server, BUILTIN_CLAIMS) if is_parleys(body)
        }
        self._needed = frozenset(record.uses for record in self._records.values() if record.uses)
        self._going = {
            body["metadata"]["name"]
            for body in bodies(server, BUILTIN_CLAIMS)
            if body["metadata"].get("deletionTimestamp")
        }
        self.claims = {body["metadata"]["name"]: body for body in bodies(server, CLAIMS)}
        there = {body["metadata"]["uid"] for body in self.claims.values()}
        left = [one for one in self._records.values() if not one.identity[1] and one.identity[0] not in there]
        forced_away: dict[str, tuple[str, Sequence[str]]] = {
            record.identity[0]: (record.name[1], record.nodes) for record in left
        }
        self._used = used or {}
        forced_away |= {uid: (use.name, (use.node,)) for uid, use in self._used.items() if uid not in there}
        self.forced_away = frozenset(forced_away)
        """UIDs of named claims that are gone while pods use them."""
        reserving_still = [(name, node) for name, nodes in forced_away.values() for node in nodes]
        living_pods = [pod for pod in self.pods if not done(pod)] if reserving else ()
        room = Room(self.claims.values(), reserving_still, living_pods, self._records.values())
        self.room = room if reserving else None
        """What claims reserve, where they do."""
        self._devices = dict(_published(bodies(server, RESOURCE_SLICES)))
        self._uses = {pod.uid: pod.uses for pod in invariants.pods.values() if pod.running}
        self._given_up = invariants.given_up
        living = self._living = {pod.uid for pod in invariants.pods.values() if pod.alive}
        recorded = [*_recorded(self.claims.values(), living, self._needed)]
        kept = self._needed | unconfirmed | {uid for uid, use in self._used.items() if use.pods & living}
        recorded += [one for one in in_memory if one[1].identity[1] in kept - there]
        self._taken = taken if taken is not None else [*_by_device(invariants.holds.by_device), *recorded]
        self._held = _held(self._taken)

    def strands(self, claim: Json) -> bool:
        """Whether the only node where the claim can be used takes no pods."""
        found = allocation(claim)
        if found is None or len(found[0]) != 1:
            return False
        node = self._nodes.get(found[0][0])
        return node is None or node.node.spec.unschedulable

    def unreserved(self, pod: Pod) -> Iterator[str]:
        """What the running pod uses and has not reserved. A claim that is being deleted can't be reserved; and
        nothing is reserved any more for a pod that names one that was forced away, or that was not seen to start
        before one was cleared."""
        uses = self._uses.get(pod.metadata.uid, {})
        named = [self._records.get(entry.resource_claim_name or "") for entry in pod.spec.resource_claims]
        if any(record is not None and record.identity[0] in self.forced_away for record in named):
            return
        for name, record in self._records.items():
            unreserved = record.identity in uses and pod.metadata.uid not in record.users
            given_up = (pod.metadata.uid, record.identity) in self._given_up
            if unreserved and name not in self._going and not given_up:
                yield name

    def is_awaited(self, claim: Json) -> bool:
        """Whether the claim is held until a pod has ended that runs with it unreserved."""
        identity = (claim["metadata"]["uid"], "")
        return any((uid, identity) in self._given_up for uid in self._living)

    def could_run(self, pod: Pod) -> str:
        """A node where everything it asks for is there; "" if there is none."""
        return next((name for name in self._nodes if self.would_run([pod], name)), "")

    def would_run(
        self, pods: Sequence[Pod], node: str, gone: Set[str] = NOBODY, evicted: Set[str] = NOBODY
    ) -> bool:
        """Whether there is everything on the node for all of them, once pods with these UIDs have left it. Those
        `evicted` leave their CPU and the like only."""
        wants: list[Want] = []
        for pod in pods:
            found = self._wants(pod, node)
            if found is None:
                return False
            wants += found
        if node not in self._nodes or not self._fit(pods, node, gone | evicted):
            return False
        before = self._held
        if gone:
            self._held = _held(one for one in self._taken if one[1].identity[0] not in gone)
        serves = self._fits(wants, node, self._mine(pods))
        self._held = before
        return serves

    def has_devices(self, pod: Pod, node: str) -> bool:
        """Whether there are devices enough for it on the node, whatever else it needs."""
        wants = self._wants(pod, node)
        return wants is not None and self._fits(wants, node, self._mine([pod]))

    def _fit(self, pods: Sequence[Pod], node: str, gone: Set[str]) -> bool:
        """By the scheduler's filters."""
        there = self._nodes[node]
        if gone:
            there = NodeInfo(there.node, [pod for pod in there.pods if pod.metadata.uid not in gone])
        for pod in pods:
            if not place(pod, (), {node: there}).node:
                return False
            there = NodeInfo(there.node, [*there.pods, pod]) if len(pods) > 1 else there
        return True

    def below(self, pod: Pod, node: str) -> Set[str]:
        """UIDs of the pods of lower priority on the node: what its scheduler may evict for the pod."""
        there = self._nodes[node].pods if node in self._nodes else ()
        return {other.metadata.uid for other in there if (other.spec.priority or 0) < (pod.spec.priority or 0)}

    def could_preempt(self, pod: Pod, evictable: Set[str]) -> str:
        """A node where everything would be there without the pods of these UIDs that are of lower priority."""
        for name in self._nodes:
            if (lower := self.below(pod, name) & evictable) and self.would_run([pod], name, lower):
                return name
        return ""

    def holders(self) -> frozenset[str]:
        """UIDs of the pods for which a claim is allocated."""
        return frozenset(user for record in self._records.values() if record.definite for user in record.users)

    def could_start(self, pod: Pod) -> bool:
        """Whether the bound pod's claims can all be had on its node, besides what it has already."""
        wants = self._wants(pod, pod.spec.node_name)
        there = wants is not None and pod.spec.node_name in self._nodes
        return there and self._fits(wants or (), pod.spec.node_name, self._mine([pod]))

    def _mine(self, pods: Sequence[Pod]) -> Mapping[Device, int]:
        """What they have already."""
        uids = {pod.metadata.uid for pod in pods}
        own = (
            record
            for record in self._records.values()
            if (len(record.users) == 1 and record.users[0] in uids) or record.identity[0] in uids
        )
        return dict.fromkeys((device for record in own for device in record.devices), 1)

    def _wants(self, pod: Pod, node: str) -> list[Want] | None:
        """What the pod's claims ask for on the node; None if one of them can't be had there at all."""
        wants: list[Want] = []
        reserving: list[str] = []
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name:
                if entry.resource_claim_template_name not in ALL_TEMPLATE_KINDS:
                    return None
                if entry.resource_claim_template_name == VIEW and not self._is_shown(pod):
                    return None
                if ALL_TEMPLATE_KINDS[entry.resource_claim_template_name][0] in TOKEN_CLASS_KINDS:
                    continue  # see `limits`
                wants.append(_want(ALL_TEMPLATE_KINDS[entry.resource_claim_template_name]))
                continue
            name = entry.resource_claim_name or ""
            claim, record = self.claims.get(name), self._records.get(name)
            if claim is None and _is_made_for(pod, name) and name not in self._records:
                wants.append(_want(CLAIM_KINDS[name]))
                reserving.append(name)
                continue
            if claim is not None and is_immediate(claim) and not allocation(claim):
                return None
            stays = claim is not None and self._stays(claim)
            if (
                claim is None
                or name not in CLAIM_KINDS
                or has_failed(claim)
                or claim["metadata"].get("deletionTimestamp")
                or record is None
                or name in self._going
            ):
                return None
            others = [user for user in record.users if user != pod.metadata.uid]
            if others and record.identity[0] != claim["metadata"]["uid"]:
                return None  # they use an earlier claim of the name, which was forced away
            exclusive = record.exclusive or _was_allocated_for_one(claim)
            if not record.users and exclusive and self._runs_with(claim) - {pod.metadata.uid}:
                return None  # its built-in claim was recreated, and a pod's reservation is not restored
            if others and exclusive:
                return None
            if CLAIM_KINDS[name][0] in TOKEN_CLASS_KINDS:
                counts = others or (pod.spec.node_name and record.users)  # as one whose node has lost the labels
                if counts and not record.is_usable_on(node):
                    return None
                continue
            if others and node not in record.nodes:
                return None
            if not others and stays:
                nodes, *_ = allocation(claim) or ((),)
                if node not in nodes:
                    return None
            if not others and (record.users or not stays):  # what it uses alone counts as free: `_mine`
                wants.append(_want(CLAIM_KINDS[name]))
                reserving.append(name)
        return wants if self.room is None or self.room.serves(pod, reserving, node) else None

    def allocatable_immediately(self) -> Iterator[str]:
        """Claims that are to be allocated without a pod, and are not, though some node has what they ask for."""
        for name, claim in self.claims.items():
            if name not in CLAIM_KINDS or not is_immediate(claim) or allocation(claim):
                continue
            record = self._records.get(name)
            if record is None or record.identity[0] != claim["metadata"]["uid"]:
                continue  # it, or an earlier claim of its name, is on its way out
            if any(self._takes_claim(name, node) for node in self._nodes):
                yield name

    def _takes_claim(self, name: str, node: str) -> bool:
        if self._nodes[node].node.spec.unschedulable or not self._fits([_want(CLAIM_KINDS[name])], node, {}):
            return False
        return self.room is None or self.room.serves(None, [name], node)

    def _runs_with(self, claim: Json) -> Set[str]:
        """The living pods that use the claim by the leader's memory."""
        use = self._used.get(claim["metadata"]["uid"])
        return use.pods & self._living if use is not None else NOBODY

    def _is_shown(self, pod: Pod) -> bool:
        """Whether what views need is there, or comes to be for the same pod."""
        own = any(entry.resource_claim_name == SOURCE for entry in pod.spec.resource_claims)
        return own or (SOURCE in self.claims and allocation(self.claims[SOURCE]) is not None)

    def _stays(self, claim: Json) -> bool:
        """Whether it is allocated, and stays so without users."""
        is_needed = claim["metadata"]["uid"] in self._needed and allocation(claim) is not None
        return is_kept(claim) or is_needed

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
        if (
            device[0] != node
            or are_standalone([device]) != want.standalone
            or (memory / shares if want.shared else memory) < want.memory
        ):
            return False
        count, shared = self._held.get(device, (0, True))
        count -= mine.get(device, 0)
        return count <= 0 or (want.shared and shared and count < shares)


def _was_allocated_for_one(claim: Json) -> bool:
    """Whether it was allocated as not shareable, whatever its class said when its mirror was created."""
    found = (claim.get("status") or {}).get("allocation")
    return found is not None and not found.get("shareable", False)


def _is_made_for(pod: Pod, claim: str) -> bool:
    """Whether a template makes the claim that the pod names, for which the pod needs the template's label."""
    label, _, number = claim.rpartition("-")
    return claim in CLAIM_KINDS and is_on_demand(claim) and pod.metadata.labels.get(label) == number


def _want(kind: tuple[str, Json]) -> Want:
    class_name, parameters = kind
    memory = Fraction(parse(parameters.get("memory", "0")))
    shared = parameters.get("shared", False)
    return Want(parameters.get("count", 1), memory, shared, standalone=class_name in STANDALONE_CLASS_KINDS)


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


def _recorded(claims: Iterable[Json], living: Set[str], needed: Set[str]) -> Iterator[tuple[Device, Hold]]:
    """By a Parley claim's own record for a living pod, or for a view: its built-in claim may be in deletion, or
    without users, and show nothing."""
    for body in claims:
        users = (body.get("status") or {}).get("reservedFor") or ()
        in_use = any(user["uid"] in living for user in users) or body["metadata"]["uid"] in needed
        if in_use and (found := allocation(body)) is not None:
            _, devices, shared = found
            identity = identity_of_claim(body["metadata"])
            yield from ((device, Hold(identity, shared)) for device in devices)


def _published(slices: Iterator[Json]) -> Iterator[tuple[Device, tuple[Fraction, int]]]:
    """Each device's memory and number of shares; a pool is a node."""
    for body in slices:
        for device in body["spec"].get("devices") or ():
            capacity = device["capacity"]
            memory, shares = Fraction(parse(capacity["memory"]["value"])), int(capacity["slices"]["value"])
            yield (body["spec"]["nodeName"], device["name"]), (memory, shares)


def done(pod: Pod) -> bool:
    """It has ended."""
    return pod.status.phase in ("Succeeded", "Failed")


def _data(server: MemoryServer, resource: Resource[Any]) -> Iterator[bytes]:
    return (stored.data for stored in server.store.collection(resource).objects.values())
