"""A standalone driver of a soak: a process of its own, which works through the API alone.

It has devices of its own, of which it knows by the claims' records after a kill. What must be so at rest is here,
too: it holds what the claims record, and remembers nothing of what is gone.
"""

import random
from collections.abc import Collection, Iterator, Set

from tests.soak.counted import CountedDriver
from tests.soak.leased import LeasedProcess
from tests.soak.mirrors import FAR, Json, is_far
from tests.soak.observed import ObservedServer
from tests.support.trouble import Rates

from parley.api.names import driver_lease
from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.sdk.standalone import StandaloneDriver


class FarDriver(CountedDriver):
    """Its devices are in slices of its own."""

    name = FAR


class OutsideProcess(LeasedProcess):
    """The driver's process. `runner` is there as soon as it leads."""

    def __init__(
        self,
        server: ObservedServer,
        chance: random.Random,
        clock: Clock,
        name: str,
        rates: Rates,
        *,
        leased: bool,
    ) -> None:
        super().__init__(server, chance, clock, name, driver_lease(FAR) if leased else "", rates)
        self.driver = FarDriver(chance)
        self.runner: StandaloneDriver | None = None
        self._clock = clock

    async def _work(self, client: Client) -> None:
        self.runner = StandaloneDriver(client, self.driver, self._clock)
        try:
            await self.runner.run()
        finally:
            self.runner = None

    @property
    def leads(self) -> bool:
        return not self.dead and self.runner is not None and self.runner.ready.is_set()

    def set_trouble(self, rates: Rates, failing: float, *, unruly: bool) -> None:
        self.client.rates = rates
        self.driver.failing = failing


def disagreeing(process: OutsideProcess | None, claims: Collection[Json]) -> Iterator[str]:
    """Where what the driver holds is not what the claims record."""
    if process is None:
        yield "no standalone driver: none leads"
        return
    recorded = {body["metadata"]["uid"]: body["metadata"]["name"] for body in claims if is_far(body)}
    held = process.driver.held()
    for uid in held.keys() - recorded.keys():
        names = [body["metadata"]["name"] for body in claims if body["metadata"]["uid"] == uid]
        yield f"the standalone driver holds {held[uid]} for claim {names or uid}, which records nothing"
    for uid in recorded.keys() - held.keys():
        yield f"the standalone driver holds nothing for claim {recorded[uid]}, which records something"


def remembered(process: OutsideProcess | None, server: ObservedServer) -> Iterator[str]:
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
        "marked": runner._claim_reconciler._marked.keys() - there,
        "holdings": runner._holdings._by_uid.keys() - uids,
    }
    for what, left in found.items():
        if left:
            yield f"{what}, remembered by the standalone driver: {sorted(map(str, left))}"
