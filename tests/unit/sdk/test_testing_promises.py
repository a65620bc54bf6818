"""Each promise of a driver that `check_driver` checks, and what the author of one that breaks it alone reads."""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from parley.sdk import Allocation, Answer, Capacity, Device, Driver, Held, NoParameters, Request
from parley.sdk.testing import Scenario, check_driver, request

NODES = ("a", "b")
ROOM = 2


class Full(Exception):
    """The node has no slot left."""


class Slots(Driver[NoParameters, NoParameters]):
    """Two slots on each node, one for a claim. Keeps all promises."""

    name = "slots.example.com"
    parameters = NoParameters
    class_parameters = NoParameters

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def used(self, node: str) -> int:
        return list(self.held.values()).count(node)

    def fits(self, request: Request[Any, Any], node: str) -> bool:
        return self.used(node) + len(request.claims) <= ROOM

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return dict.fromkeys(
            [c.name for c in request.claims], Answer(tuple(n for n in nodes if self.fits(request, n)))
        )

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        if not self.fits(request, node):
            raise Full(node)
        self.held.update((claim.uid, node) for claim in request.claims)
        return {claim.name: Allocation((Device(node, "slots"),), {"node": node}) for claim in request.claims}

    async def deallocate(self, uid: str) -> None:
        self.held.pop(uid, None)

    def restore(self, held: Held) -> None:
        self.held[held.uid] = held.devices[0].pool

    def forget(self, uid: str) -> None:
        self.held.pop(uid, None)


class FloatUnits(Slots):
    def units(self, claim: Any) -> int:
        return 1.5  # type: ignore[return-value]


class NegativeUnits(Slots):
    def units(self, claim: Any) -> int:
        return -1


class Percents(Slots):
    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        return dict.fromkeys(nodes, 80)


class Quoted(Slots):
    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        return dict.fromkeys(nodes, "0.5")  # type: ignore[arg-type]


class QuotedRoom(Slots):
    def room_left(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        return dict.fromkeys(nodes, "2")  # type: ignore[arg-type]


class ListedScores(Slots):
    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        return [1.0 for _ in nodes]  # type: ignore[return-value]


class ListedRoom(Slots):
    def room_left(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        return [1.0 for _ in nodes]  # type: ignore[return-value]


class FloatCapacity(Slots):
    def capacity(self, of: Any) -> Capacity | None:
        return Capacity(4.0, 2.0)  # type: ignore[arg-type]


class UnhashableLines(Slots):
    def alike(self, request: Request[Any, Any]) -> Any:
        return [request.pod.namespace]


class AnswersWithout(Slots):
    def viable_without(self, request: Request[Any, Any], node: str, uids: Collection[str]) -> bool:
        return self.viable(request, (node,))  # type: ignore[return-value]


class NothingStranded(Slots):
    def stranded(self, claim: Any, node: str, cause: Any) -> Any:
        return None


class KnownNodes(Slots):
    def used(self, node: str) -> int:
        return {"a": super().used("a"), "b": super().used("b")}[node]


class Apart(Slots):
    """Judges each claim by itself."""

    def fits(self, request: Request[Any, Any], node: str) -> bool:
        return self.used(node) < ROOM


class Racing(Slots):
    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        if not self.fits(request, node):
            raise Full(node)
        await asyncio.sleep(0)
        self.held.update((claim.uid, node) for claim in request.claims)
        return {claim.name: Allocation((Device(node, "slots"),), {"node": node}) for claim in request.claims}


class Reluctant(Slots):
    """Refuses in allocate() what is viable, once it holds something."""

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        if self.held:
            raise Full(node)
        return await super().allocate(request, node)


class Shared(Slots):
    """The slots are for all nodes together."""

    node_local = True

    def used(self, node: str) -> int:
        return len(self.held)


class Stuck(Slots):
    """Counts what it restores where deallocate() does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.restored: dict[str, str] = {}

    def used(self, node: str) -> int:
        return super().used(node) + list(self.restored.values()).count(node)

    def restore(self, held: Held) -> None:
        self.restored[held.uid] = held.devices[0].pool

    def forget(self, uid: str) -> None:
        self.restored.pop(uid, None)


class SharedByOthers(Slots):
    """Nodes a and c have the same slots, node b has its own."""

    node_local = True

    def used(self, node: str) -> int:
        return super().used(node) if node == "b" else super().used("a") + super().used("c")


class Partly(Slots):
    """Allocates claim by claim, and raises in the middle."""

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        each = [await Slots.allocate(self, replace(request, claims=(claim,)), node) for claim in request.claims]
        return {name: allocation for one in each for name, allocation in one.items()}


class Leaking(Slots):
    """Notes each pod that it refuses, and counts it on node b once there is room."""

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        if not self.fits(request, node):
            self.held["refused"] = "b"
        return await super().allocate(request, node)

    def used(self, node: str) -> int:
        return min(super().used(node), ROOM)


class BelowNone(Slots):
    def capacity(self, of: Any) -> Capacity | None:
        return Capacity(2, 2 - len(self.held))


class RestoringOnce(Slots):
    def restore(self, held: Held) -> None:
        if held.uid in self.held:
            raise KeyError(held.uid)
        super().restore(held)


class ForgettingOnce(Slots):
    def forget(self, uid: str) -> None:
        del self.held[uid]


class RestoringData(Slots):
    def restore(self, held: Held) -> None:
        self.held[held.uid] = held.data["node"]  # type: ignore[index]


class Considering(Slots):
    asynchronous = True
    viable = Driver.viable

    async def consider(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        return Slots.viable(self, request, nodes)


class Unforgetting(Slots):
    def forget(self, uid: str) -> None:
        """Leaves it where it is."""


class Strict(Slots):
    async def deallocate(self, uid: str) -> None:
        if not uid.startswith("p-"):
            raise KeyError(uid)
        await super().deallocate(uid)


class Plain(Slots):
    def deallocate(self, uid: str) -> None:  # type: ignore[override]
        self.held.pop(uid, None)


class PlainAllocate(Slots):
    def allocate(self, request: Request[Any, Any], node: str) -> Any:
        return None


class Nothing(Slots):
    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Any:
        super().viable(request, nodes)


class NoName(Slots):
    name = "Slots"


class NoRestore(Driver[NoParameters, NoParameters]):
    name = "slots.example.com"
    parameters = NoParameters
    class_parameters = NoParameters
    viable = Slots.viable
    allocate = Slots.allocate
    deallocate = Slots.deallocate


BROKEN: list[tuple[type[Driver[Any, Any]], str]] = [
    (
        FloatUnits,
        "driver slots.example.com counts 1.5 units for claim 'claim-0'; it must be a whole number, 0 or more",
    ),
    (NegativeUnits, "counts -1 units for claim 'claim-0'; it must be a whole number, 0 or more"),
    (Percents, "gave node 'a' the score 80; it must be a number from 0 to 1"),
    (Quoted, "gave node 'a' the score '0.5'; it must be a number from 0 to 1"),
    (QuotedRoom, "has '2' left on node 'a'; it must be a number, 0 or more"),
    (ListedScores, "returned [1.0, 1.0] from score; it must be a mapping from nodes to numbers"),
    (ListedRoom, "returned [1.0, 1.0] from room_left; it must be a mapping from nodes to numbers"),
    (
        FloatCapacity,
        "returned Capacity(total=4.0, free=2.0); it must be None, or whole numbers, 0 <= free <= total",
    ),
    (UnhashableLines, "driver slots.example.com failed in alike: TypeError: unhashable type: 'list'"),
    (AnswersWithout, "from viable_without; it must be True or False"),
    (NothingStranded, "returned None of a claim whose node takes no pods"),
    (
        KnownNodes,
        "viable() raised KeyError: 'unknown-node', asked about a node that it does not know",
    ),
    (
        Apart,
        "node a is viable for a pod with 12 claims, and has enough for 2: judge all claims of a request together",
    ),
    (Racing, "allocate() gave two pods at once what is enough for one on node b"),
    (Reluctant, "viable() and allocate() disagree about node a: allocate() raised Full: a"),
    (Shared, "releasing what was allocated on node a made node b viable: it is not local to its node"),
    (Partly, "a refused allocation left something behind"),
    (Leaking, "a refused allocation left something behind"),
    (BelowNone, "returned Capacity(total=2, free=-2); it must be None, or whole numbers, 0 <= free <= total"),
    (RestoringOnce, "restore() raised KeyError: 'p-claim-0-0', called twice with what allocate() returned"),
    (ForgettingOnce, "forget() raised KeyError: 'p-claim-0-0', called twice"),
    (
        RestoringData,
        "restore() raised TypeError: 'NoneType' object is not subscriptable for devices that ordinary DRA "
        "allocated: data is None",
    ),
    (Considering, "viable is missing: check a driver with `consider` alone by parley driver conformance"),
    (Stuck, "deallocate() did not release everything that restore() counted, each claim twice"),
    (Unforgetting, "forget() left something of what restore() counted"),
    (Strict, "deallocate() raised KeyError: 'uid-of-unallocated-claim' for a claim that holds nothing"),
    (Plain, "deallocate() returned None, which cannot be awaited: deallocate must be async def"),
    (PlainAllocate, "allocate() returned None, which cannot be awaited: allocate must be async def"),
    (Nothing, "answered None; it must be a mapping from the names of the request's claims to an Answer each"),
    (NoName, "name='Slots' must be a DNS subdomain of at most 63 characters, such as disks.example.com"),
    (NoRestore, "restore and forget are missing: every driver has to write them"),
]


def scenario(kind: type[Driver[Any, Any]]) -> Scenario:
    return Scenario(kind, NODES, (request(Slots(), "p", {}), request(Slots(), "q", {}, {})))


async def test_a_driver_that_keeps_all_promises_passes() -> None:
    await check_driver(scenario(Slots))


@pytest.mark.parametrize(("kind", "told"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_driver_that_breaks_one_is_told_which(kind: type[Driver[Any, Any]], told: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(told)):
        await check_driver(scenario(kind))


async def test_any_release_may_show_that_a_driver_is_not_local_to_its_nodes() -> None:
    """Not only that of the last allocation, here on node b."""
    asked = request(Slots(), "p", {})
    with pytest.raises(AssertionError, match="allocated on node a made node c viable"):
        await check_driver(Scenario(SharedByOthers, ("a", "c", "b"), (asked,)))
