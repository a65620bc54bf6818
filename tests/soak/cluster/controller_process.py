"""A controller's process in a soak: the controller with the driver of the plan, and its extender's responses."""

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.soak.cluster.leased import LeasedProcess
from tests.soak.cluster.processes import acting_as
from tests.soak.drivers.counted import CountedDriver
from tests.soak.drivers.misbehaving import Broke, MisbehavingDriver
from tests.soak.drivers.variants import ReservingDriver, ZonedTokens, driver_kind
from tests.soak.kinds.classes import BORROWER
from tests.soak.plan import Plan
from tests.soak.rules.controller_memory import ControllerMemory
from tests.soak.rules.evictions import WatchedEvictions
from tests.soak.rules.pod_state import Use
from tests.support.trouble import Rates

from parley.control.nominations import Nomination
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.kube.lease import LeaseLost
from parley.scheduler.controller import Controller
from parley.scheduler.settings import ControllerSettings
from parley.sdk import Driver
from parley.sdk.checks import DriverFault
from parley.simulate.extender_calls import ExtenderUnavailable

if TYPE_CHECKING:
    from tests.soak.cluster.world import World

CONTROLLERS_LEASE = "parley-controller"

SECOND_SCHEDULER = "parley"
"""The scheduler that asks Parley as its extender."""


class ControllerProcess(LeasedProcess):
    """A controller's process, started at once. `controller` is set while it leads."""

    def __init__(self, world: "World", name: str, plan: Plan) -> None:
        lease = CONTROLLERS_LEASE if plan.lease else ""
        super().__init__(world.server, world.chance, world.clock, name, lease, plan.network_faults)
        self.driver = new_driver(plan, world.chance)
        self.driver.failing = plan.allocation_faults
        if isinstance(self.driver, MisbehavingDriver):
            self.driver.is_misbehaving = plan.misbehaving_driver
            self.driver.may_go_on = lambda: self.may_send() and not self.ends
        self.driver.allocating = world.serving_order.allocating
        self.tokens = ZonedTokens()
        self.controller: Controller | None = None
        self._world = world
        self._requests: dict[asyncio.Task[bytes], None] = {}

    def _transport(self) -> Client:
        return WatchedEvictions(self.client, self._evicts)

    async def _work(self, client: Client) -> None:
        self.controller = new_controller(client, self._world.plan, self.driver, self.tokens, self.clock)
        restored = asyncio.create_task(self._restored(self.controller))
        try:
            await self.controller.run()
        finally:
            restored.cancel()
            self.controller = None
            for request in self._requests:
                request.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)

    def _evicts(self, victim: str) -> None:
        memory = self.memory
        assert memory is not None
        believed = memory.believed_to_allow_preemption(self._world.server)
        self._world.evictions.asked(victim, memory.nominations, believed)
        self._world.plans.asked(memory, victim)

    @property
    def memory(self) -> ControllerMemory | None:
        """What the controller has in memory, None unless it leads."""
        return (
            ControllerMemory(self.controller, self.driver._inventory._held)
            if self.controller is not None
            else None
        )

    @property
    def nominations(self) -> Sequence[Nomination]:
        """The nodes that it keeps for preemptors."""
        return self.memory.nominations if self.memory is not None else ()

    async def _restored(self, controller: Controller) -> None:
        await controller.ready.wait()
        self._world.invariants.memory_lost(known_uses(controller))
        self._world.plans.memory_lost()
        self._world.serving_order.memory_lost()

    async def answer(self, verb: str, body: bytes) -> bytes:
        """The response of its extender path. Raises ExtenderUnavailable when the process ends meanwhile."""
        assert self.controller is not None
        assert self.controller.extender is not None
        with acting_as(self.name):
            request = asyncio.create_task(self.controller.extender.answer(verb, body))
        self._requests[request] = None
        request.add_done_callback(self._requests.pop)
        await asyncio.wait({request})
        try:
            return request.result()
        except (asyncio.CancelledError, LeaseLost, Broke, DriverFault):
            raise ExtenderUnavailable from None  # or 500, which is the same to the scheduler

    @property
    def leads(self) -> bool:
        """Whether it reconciles pods now."""
        return not self.dead and self.controller is not None and self.controller.ready.is_set()

    def set_trouble(self, rates: Rates, failing: float, *, misbehaving: bool) -> None:
        self.client.rates = rates
        self.driver.failing = failing
        if isinstance(self.driver, MisbehavingDriver):
            self.driver.is_misbehaving = misbehaving


def new_driver(plan: Plan, chance: random.Random) -> CountedDriver:
    """The driver of a controller's process."""
    driver = driver_kind(plan)(chance)
    if isinstance(driver, ReservingDriver) and plan.room_yields:
        driver.yields_to = (BORROWER,)
    return driver


def new_controller(
    client: Client, plan: Plan, driver: CountedDriver, tokens: ZonedTokens, clock: Clock
) -> Controller:
    """A controller with these drivers, as far as the plan has them."""
    settings = ControllerSettings(
        scheduler_names=(SECOND_SCHEDULER,), reservation_schedulers=("default-scheduler",)
    )
    drivers: list[Driver[Any, Any]] = [driver, *([tokens] if plan.tokens else [])]
    return Controller(client, drivers, settings, clock=clock)


def known_uses(controller: Controller) -> set[Use]:
    """The pods' uses of claims that are in the controller's ledger."""
    return {
        (uid, (holding.uid, "") if holding.named else (uid, holding.entry))
        for holding in controller.ledger
        for uid in holding.pods
    }
