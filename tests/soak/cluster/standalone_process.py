"""A standalone driver of a soak: a process of its own, which works through the API alone.

It has devices of its own. After a kill it restores what it holds from the claims' records, or from what is outside
of its process. The rules about it at rest are here, too: it holds what the claims record, and remembers nothing
of objects that are gone.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from tests.soak.cluster.leased import LeasedProcess
from tests.soak.cluster.observed import ObservedServer
from tests.soak.drivers.counted import CountedDriver
from tests.soak.kinds.names import STANDALONE_DRIVER
from tests.soak.rules.mirrors import Json, is_standalone
from tests.support.trouble import Rates

from parley.api.names import driver_lease
from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.sdk import Allocation, Answer
from parley.sdk.standalone import StandaloneDriver


class StandaloneDeviceDriver(CountedDriver):
    """The device driver under another name, with ResourceSlices of its own."""

    name = STANDALONE_DRIVER

    def begin(self) -> None:
        """Called before the driver runs."""

    def lose(self, uid: str) -> None:
        """Called when what is held outside for the claim was freed by hand: here nothing is."""


@dataclass
class Array:
    """What is held outside of every process, by the claim's UID: the node, and what was allocated there."""

    fault: Callable[[str, str], None]
    held: dict[str, tuple[str, Allocation]] = field(default_factory=dict)


class ArrayDriver(StandaloneDeviceDriver):
    """It is slow, and restores what it holds from the array."""

    asynchronous = True

    def __init__(self, chance: random.Random, array: Array) -> None:
        super().__init__(chance)
        self._array = array
        self._changed: Callable[[], None] = lambda: None

    def begin(self) -> None:
        for uid, (_, found) in self._array.held.items():
            self._inventory.hold(uid, found.devices, shared=bool((found.data or {}).get("shared")))

    async def consider(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        await asyncio.sleep(self._chance.uniform(0, 2))
        own = {claim.uid for claim in request.claims} & self._inventory._held.keys()
        before = {uid: self._inventory._held[uid] for uid in own}
        for uid in own:
            self._inventory.release(uid)
        found = self.viable(request, nodes)
        for uid, (devices, shared) in before.items():
            self._inventory.hold(uid, devices, shared=shared)
        return found

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        there = self._array.held
        new = tuple(claim for claim in request.claims if claim.uid not in there)
        found = await super().allocate(replace(request, claims=new), node) if new else {}
        there.update({claim.uid: (node, found[claim.name]) for claim in new})
        for claim in request.claims:
            if there[claim.uid][0] != node:
                self._array.fault("moved outside", f"{claim.uid} is on {there[claim.uid][0]}, wanted on {node}")
        allocations = {claim.name: there[claim.uid][1] for claim in request.claims}
        for second in range(self._chance.choice((0, 1, 20))):
            request.progress(f"attached for {second} s")
            await asyncio.sleep(1)
        return allocations

    async def deallocate(self, uid: str) -> None:
        await asyncio.sleep(self._chance.choice((0, 0.5)))
        await super().deallocate(uid)
        self._array.held.pop(uid, None)

    async def follow(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        await asyncio.Event().wait()

    def lose(self, uid: str) -> None:
        """Called when what the array holds for the claim was freed by hand."""
        self._inventory.release(uid)
        self._changed()


class StandaloneProcess(LeasedProcess):
    """The driver's process. `runner` is set while it leads."""

    def __init__(
        self,
        server: ObservedServer,
        chance: random.Random,
        clock: Clock,
        name: str,
        rates: Rates,
        *,
        leased: bool,
        array: Array | None,
    ) -> None:
        super().__init__(server, chance, clock, name, driver_lease(STANDALONE_DRIVER) if leased else "", rates)
        self.driver = StandaloneDeviceDriver(chance) if array is None else ArrayDriver(chance, array)
        self.runner: StandaloneDriver | None = None

    async def _work(self, client: Client) -> None:
        self.driver.begin()
        self.runner = StandaloneDriver(client, self.driver, self.clock)
        try:
            await self.runner.run()
        finally:
            self.runner = None

    @property
    def leads(self) -> bool:
        return not self.dead and self.runner is not None and self.runner.ready.is_set()

    def set_trouble(self, rates: Rates, failing: float, *, misbehaving: bool) -> None:
        self.client.rates = rates
        self.driver.failing = failing


def disagreeing(process: StandaloneProcess | None, claims: Collection[Json]) -> Iterator[str]:
    """Where what the driver holds is not what the claims record, but for what it is allocating at this moment: for
    a pod that its scheduler refuses everywhere it is asked again and again."""
    if process is None or process.runner is None:
        yield "no standalone driver: none leads"
        return
    recorded = {body["metadata"]["uid"]: body["metadata"]["name"] for body in claims if is_standalone(body)}
    held = process.driver.held()
    for uid in [uid for uid in held.keys() - recorded.keys() if process.runner._operations.free(uid)]:
        names = [body["metadata"]["name"] for body in claims if body["metadata"]["uid"] == uid]
        yield f"the standalone driver holds {held[uid]} for claim {names or uid}, which records nothing"
    for uid in recorded.keys() - held.keys():
        yield f"the standalone driver holds nothing for claim {recorded[uid]}, which records something"


def remembered(process: StandaloneProcess | None, server: ObservedServer) -> Iterator[str]:
    """What the driver's process has in memory of PodSchedulings and claims that are gone."""
    if process is None or process.runner is None:
        return
    runner = process.runner
    there = set(server.store.collection(CLAIMS).objects)
    asked = set(server.store.collection(POD_SCHEDULINGS).objects)
    uids = {stored.meta["uid"] for stored in server.store.collection(CLAIMS).objects.values()}
    answering, immediate = runner._answering, runner._immediate
    found: dict[str, Set[object]] = {
        "first seen": runner._first_seen.keys() - asked,
        "answered": answering._answered.keys() - asked,
        "stale": answering._stale - asked,
        "considered": answering._considering.keys() - asked,
        "in lines": answering.waiting._pods.keys() - asked,
        "failures": runner._pod_allocations._failures.keys() - asked,
        "allocating": runner._pod_allocations._allocating.keys() - asked,
        "immediate": immediate._uids.keys() - there,
        "immediate, failed": immediate._failed.keys() - there,
        "immediate, begun": immediate._begun.keys() - there,
        "immediate, in lines": immediate._waiting - there,
        "unselected": runner._claim_reconciler._unselected.keys() - there,
        "holdings": runner._holdings._by_uid.keys() - uids,
    }
    for what, left in found.items():
        if left:
            yield f"{what}, remembered by the standalone driver: {sorted(map(str, left))}"
