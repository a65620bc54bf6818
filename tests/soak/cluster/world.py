"""The cluster of a soak: an observed API server, Kubernetes' components, and Parley's processes.

Controllers and standalone drivers are processes that can be killed, stopped and cut off. One that ends because it
lost its lease is started again, as a Deployment would do. What users and others do to it is in `actions`.
"""

import asyncio
import random
from dataclasses import replace

from tests.soak.actions.priorities import Preemption
from tests.soak.cluster.controller_process import SECOND_SCHEDULER, ControllerProcess, known_uses
from tests.soak.cluster.leased import MOST_SKEW, LeasedProcess, lost_lease
from tests.soak.cluster.observed import AT_ONCE_SECONDS, MOST_AT_ONCE, ObservedServer, Step
from tests.soak.cluster.parts import KubernetesParts
from tests.soak.cluster.processes import ProcessLoop
from tests.soak.cluster.standalone_process import Array, StandaloneProcess
from tests.soak.drivers.variants import starting_over
from tests.soak.plan import CALM, Plan
from tests.soak.rules.controller_memory import ControllerMemory
from tests.soak.rules.evictions import Evictions
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.limits import ClassLimits
from tests.soak.rules.plans import Plans
from tests.soak.rules.pod_state import Use
from tests.soak.rules.reservations import Reservations
from tests.soak.rules.serving_order import ServingOrder
from tests.soak.rules.views import Views
from tests.support.trouble import LATE_WRITE, LATEST

from parley.api.resources import CLAIMS
from parley.simulate import admission
from parley.simulate.cluster import loop_clock
from parley.simulate.extender_calls import ExtenderUnavailable


class Broken(Exception):
    """Raised when a rule was broken, with what was found."""


class World:
    """One cluster. All that is random in it is drawn from `chance`."""

    def __init__(self, chance: random.Random, plan: Plan, remembered: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        self.loop = loop
        self.chance = chance
        self.plan = plan
        self.clock = loop_clock()
        self.invariants = Invariants(self._known_by_leader)
        self.invariants.data.is_left = plan.node_data
        self.invariants.kept_claims.slack += 2 * MOST_SKEW if plan.clock_jumps else 0.0
        self.invariants.kept_claims.starting_over = starting_over(plan)
        self.broken = asyncio.Event()
        self.server = ObservedServer(self.clock, chance.getrandbits(32), self._observe, remembered)
        self.server.goes_in_circles = self._goes_in_circles
        self.plans = Plans(self.server, self.invariants, self._leaders_memory, SECOND_SCHEDULER)
        self.evictions = Evictions(self.invariants.fault, self.plans.evicted)
        self.serving_order = ServingOrder(self._leaders_memory)
        self.reservations = Reservations(self.invariants.fault)
        self.views = Views(self.invariants, self.invariants.fault)
        self.limits = ClassLimits(self.invariants.fault, self.invariants.lives)
        self.server.gc_forbidden = admission.gc_forbidden
        self.server.forbids_evictions = plan.preemption is not Preemption.ALLOWED
        self.calm = False
        self.parts = KubernetesParts(
            self.server, chance, self.clock, plan, self.invariants, lambda: self.calm, self._ask_leader
        )
        if plan.propagation_policies:
            self.server.garbage_lag = self.parts.garbage_lag
        self._names = 0
        self.controllers: list[ControllerProcess] = []
        self._array = Array(self.invariants.fault)
        self.standalone: list[StandaloneProcess] = []
        """The processes of the standalone driver."""

    def _known_by_leader(self) -> set[Use]:
        memory = self._leaders_memory()
        return known_uses(memory.controller) if memory is not None else set()

    def _observe(self, step: Step) -> None:
        self.invariants.observe(step)
        if self.plan.reserved_room:
            self.reservations.observe(step)
        if self.plan.views:
            self.views.observe(step)
        if self.plan.class_limits or self.plan.tokens:
            self.limits.observe(step)
        if self.plan.preemption is not Preemption.NONE:
            self.evictions.observe(step)
            self.plans.observe(step)
            self.serving_order.observe(step)
        if self.invariants.faults:
            self.broken.set()

    def _goes_in_circles(self) -> None:
        self.invariants.faults.append(f"in circles: {MOST_AT_ONCE} writes in {AT_ONCE_SECONDS:g} s")
        self.broken.set()

    def start(self) -> None:
        """Start Kubernetes' components, and Parley."""
        self.parts.start()
        for _ in range(2 if self.plan.lease else 1):
            self.start_controller()
        for _ in range((2 if self.plan.lease else 1) if self.plan.standalone else 0):
            self.start_standalone()

    async def _ask_leader(self, verb: str, body: bytes) -> bytes:
        leader = self.leader
        if leader is None:
            raise ExtenderUnavailable
        if verb == "bind":
            return await self.parts.bindings.extended(lambda: leader.answer(verb, body))
        return await leader.answer(verb, body)

    def start_controller(self) -> ControllerProcess:
        """Start one more controller."""
        self._names += 1
        process = ControllerProcess(
            self, f"controller-{self._names}", self.plan if not self.calm else self._calm_plan()
        )
        self.controllers.append(process)
        self.server.note(f"{process.name} starts")
        return process

    def start_standalone(self) -> StandaloneProcess:
        """Start one more standalone driver."""
        self._names += 1
        name, plan = f"driver-{self._names}", self.plan if not self.calm else self._calm_plan()
        server, chance, clock = self.server, self.chance, self.clock
        array = self._array if plan.standalone_external_state else None
        process = StandaloneProcess(
            server, chance, clock, name, plan.network_faults, leased=plan.lease, array=array
        )
        process.driver.failing = plan.allocation_faults
        self.standalone.append(process)
        self.server.note(f"{name} starts")
        return process

    def clean_array(self) -> None:
        """Free what the array holds for claims that are gone, as whoever removes a claim's finalizers has to."""
        leader = self.leading_driver
        claims = {stored.meta["uid"] for stored in self.server.store.collection(CLAIMS).objects.values()}
        for uid in [uid for uid in self._array.held if uid not in claims]:
            if leader is not None and leader.runner is not None and leader.runner._holdings.get(uid) is None:
                del self._array.held[uid]
                leader.driver.lose(uid)

    @property
    def all_processes(self) -> list[LeasedProcess]:
        """Parley's processes."""
        return [*self.controllers, *self.standalone]

    def _forget(self, ended: LeasedProcess) -> None:
        self.controllers = [process for process in self.controllers if process is not ended]
        self.standalone = [process for process in self.standalone if process is not ended]

    def _start_another(self, ended: LeasedProcess) -> None:
        if isinstance(ended, StandaloneProcess):
            self.start_standalone()
        else:
            self.start_controller()

    def _calm_plan(self) -> Plan:
        return replace(
            self.plan, network_faults=CALM, allocation_faults=0.0, binding_faults=CALM, misbehaving_driver=False
        )

    async def restart(self, process: LeasedProcess, seconds: float, *, clean: bool = False) -> None:
        """Kill the process, and start another one after `seconds`; without leases only when no late write of the
        first can arrive any more. With leases, the other one leads when the first one's has expired."""
        self.server.note(f"{process.name} is {'ended' if clean else 'killed'}")
        self._forget(process)
        await process.kill(clean=clean)
        self._check_tasks(process)
        await self.let_pass(seconds if self.plan.lease else seconds + LATEST)
        self._start_another(process)

    def _check_tasks(self, process: LeasedProcess) -> None:
        """Only late writes may be left of a process that ended."""
        left = [task for task in self.loop.tasks_of(process.name) if task.get_name() != LATE_WRITE]
        if left:
            raise Broken(f"left over: tasks of {process.name}: {left}")

    async def supervise(self) -> None:
        """Restart the processes that lost their lease. Raises Broken if one ended otherwise."""
        for part in self.parts.ended():
            raise Broken(f"crashed: {part.get_name()} ended: {part}") from part.exception()
        for process in [p for p in self.all_processes if p.task.done()]:
            error = process.task.exception()
            if not lost_lease(error):
                raise Broken(f"crashed: {process.name} ended: {error!r}") from error
            self.server.note(f"{process.name} lost its lease")
            process.dead = True
            self._forget(process)
            self._check_tasks(process)
            self._start_another(process)

    def set_calm(self, calm: bool) -> None:
        """End all trouble, or let it begin again."""
        self.calm = calm
        plan = self._calm_plan() if calm else self.plan
        self.parts.bindings.trouble.rates = plan.binding_faults
        for process in self.all_processes:
            process.set_trouble(plan.network_faults, plan.allocation_faults, misbehaving=plan.misbehaving_driver)
            if calm:
                process.client.let_go()
                process.skew = 0.0
                self.loop.continue_process(process.name)

    @property
    def leader(self) -> ControllerProcess | None:
        """The controller that works, None if there is none."""
        return next((process for process in self.controllers if process.leads), None)

    @property
    def leading_driver(self) -> StandaloneProcess | None:
        """The standalone driver that works, None if there is none."""
        return next((process for process in self.standalone if process.leads), None)

    def _leaders_memory(self) -> ControllerMemory | None:
        """None if two controllers act as leaders: one was stopped, and has not noticed that it lost its lease."""
        leading = [process for process in self.controllers if process.leads]
        return leading[0].memory if len(leading) == 1 else None

    async def check(self) -> None:
        """Raises Broken if a rule was broken since the last call."""
        await self.supervise()
        if self.invariants.faults:
            raise Broken("\n".join(self.invariants.faults))

    async def let_pass(self, seconds: float) -> None:
        """Wait so long, and supervise the processes meanwhile. Raises Broken as soon as a rule is broken."""
        end = self.loop.time() + seconds
        while True:
            await self.check()
            left = end - self.loop.time()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(min(left, 5.0)):
                    await self.broken.wait()
            except TimeoutError:
                pass

    async def settle(self, quiet: float, limit: float) -> bool:
        """Wait until only Leases were written for `quiet` seconds. False if that takes over `limit` seconds."""
        end = self.loop.time() + limit
        while self.loop.time() < end:
            before = self.server.steps
            await self.let_pass(quiet)
            if self.server.steps == before:
                return True
        return False

    async def stop(self) -> None:
        """End everything."""
        for process in self.all_processes:
            await process.kill(clean=False)
        await self.parts.stop()
