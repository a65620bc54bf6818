"""The cluster of a soak: an observed API server, models of Kubernetes' parts, and one or two real controllers.

Where the plan has pods for the extender path, a second scheduler asks whichever controller leads.

The controllers are processes that can be killed, stopped, cut off and troubled; what ends by losing its lease is
started again, as a Deployment would do. What users and meddlers do to this cluster is in `actions`.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.soak.actions.priorities import Preemption
from tests.soak.cluster.binding_faults import LOST_BINDINGS, BindingClient
from tests.soak.cluster.collector import PodCollector
from tests.soak.cluster.kubelets import DeviceKubelets
from tests.soak.cluster.leased import MOST_SKEW, LeasedProcess, lost_lease
from tests.soak.cluster.observed import AT_ONCE_SECONDS, MOST_AT_ONCE, ObservedServer, Step
from tests.soak.cluster.outside import Array, OutsideProcess
from tests.soak.cluster.processes import ProcessLoop, acting_as
from tests.soak.cluster.taints import TaintEviction
from tests.soak.drivers.counted import CountedDriver, TardyDriver
from tests.soak.drivers.unruly import Broke, UnrulyDriver
from tests.soak.kinds.classes import GUEST, ZONAL
from tests.soak.kinds.names import ZONE, ZONE_OF
from tests.soak.rules.evictions import Evictions, WatchedEvictions
from tests.soak.rules.invariants import Invariants, Use
from tests.soak.rules.limits import ClassLimits
from tests.soak.rules.plans import Memory, Plans
from tests.soak.rules.reservations import Reservations, reserve
from tests.soak.rules.turns import Turns
from tests.soak.rules.views import SOURCE, VIEW, Views
from tests.support.trouble import LATE_WRITE, LATEST, Rates, TroubleClient

from parley.api.models import Hold
from parley.api.resources import CLAIMS
from parley.control.nominations import Nomination
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client
from parley.kube.lease import LeaseLost
from parley.scheduler.controller import Controller
from parley.scheduler.settings import ControllerSettings
from parley.sdk import Allocation, Answer, Driver, Held, NodeLabels, Reserve, Stranded
from parley.sdk.checks import DriverFault
from parley.simulate import admission
from parley.simulate.claim_controller import ClaimController
from parley.simulate.cluster import loop_clock
from parley.simulate.extender_calls import ExtenderUnavailable
from parley.simulate.kube_scheduler import AS_UPSTREAM, KubeScheduler
from parley.simulate.kubelet import UNPREPARE_SECONDS
from parley.simulate.node_plugins import NodePlugins

CALM = Rates()
BEHIND = Rates(late=0.05)
"""Of informers that are behind now and then."""

SECOND_SCHEDULER = "parley"
CONTROLLERS_LEASE = "parley-controller"
CLAIM_CONTROLLER = "claim-controller"
SCHEDULER = "scheduler"
RESTARTED = frozenset({CLAIM_CONTROLLER, SCHEDULER, "second scheduler"})
SLOW_KUBELET = 40.0
"""Seconds that a kubelet takes, where a tenant meddles meanwhile, to end a pod that was deleted by force."""


class Broken(Exception):
    """Raised when a rule was broken, with what was found."""


class ZonedTokens(TokensDriver):
    """The tokens driver, with a class whose tokens can be used in one zone."""

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = dict(await super().allocate(request, node))
        for claim in request.claims:
            if claim.class_name == ZONAL:
                zone = NodeLabels({ZONE: ZONE_OF[node]})
                found[claim.name] = replace(found[claim.name], available_on=zone)
        return found


class LeavingDriver(CountedDriver):
    """Pods with named claims leave something on their node, under another name for each allocation."""

    leaves_data = True

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        found = await super().allocate(request, node)
        names = {name: {"folder": f"{self._chance.getrandbits(64):x}"} for name in found}
        return {name: replace(one, data={**one.data, **names[name]}) for name, one in found.items()}


STRANDED: Mapping[str, Stranded] = {
    "disk": Stranded("Fail", 30),
    "common": Stranded("Fail", 10),
    "workspace": Stranded("Fail"),
    "cache": Stranded("Recreate", 15),
    "standing": Stranded("Recreate"),
    "standing-shared": Stranded("Recreate", 40),
    "run-1": Stranded("Recreate"),
}
"""What becomes of named claims whose node takes no pods, where the driver has a say."""


class ReservingDriver(CountedDriver):
    """Named claims reserve room on their node."""

    hold: Hold = "Ledger"
    yields_to: tuple[str, ...] = ()

    def reserves(self, claim: Any) -> Reserve | None:
        found = reserve(claim.claim, self.hold)
        return replace(found, yields_to=self.yields_to) if found is not None else None


class NominatingDriver(ReservingDriver):
    """Reservation pods hold that room."""

    hold: Hold = "Nominated"


class SettlingDriver(CountedDriver):
    """Some claims whose node takes no pods fail after a while, or start over."""

    def stranded(self, claim: Any, node: str, cause: Any) -> Stranded:
        return STRANDED.get(claim.claim, Stranded())


class ViewingDriver(CountedDriver):
    """Views need the claim `SOURCE` to be allocated."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._shown: dict[str, None] = {}
        self._changed: Callable[[], None] | None = None

    async def follow(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        await asyncio.Event().wait()

    def viable(self, request: Any, nodes: Sequence[str]) -> Mapping[str, Answer]:
        if self._lacks(request):
            return {c.name: Answer((), (), dict.fromkeys(nodes, "nothing to show")) for c in request.claims}
        return super().viable(request, nodes)

    def has_room(self, request: Any, node: str) -> bool:
        return not self._lacks(request) and super().has_room(request, node)

    def _lacks(self, request: Any) -> bool:
        wants = any(claim.class_name == VIEW for claim in request.claims)
        return wants and not self._shown and not any(map(_is_source, request.claims))

    async def allocate(self, request: Any, node: str) -> Mapping[str, Allocation]:
        if self._lacks(request):
            raise RuntimeError("nothing to show")
        source = next((claim.uid for claim in request.claims if _is_source(claim)), None)
        source = source or next(reversed(self._shown), "")
        found = dict(await super().allocate(request, node))
        for claim in request.claims:
            more = {"shown": True} if _is_source(claim) else {"uses": source} if claim.class_name == VIEW else {}
            found[claim.name] = replace(found[claim.name], data={**found[claim.name].data, **more})
            if _is_source(claim):
                self._show(claim.uid)
        return found

    def restore(self, held: Held) -> None:
        super().restore(held)
        if (held.data or {}).get("shown"):
            self._show(held.uid)

    def _show(self, uid: str) -> None:
        self._shown[uid] = None
        if self._changed is not None:
            self._changed()

    async def deallocate(self, uid: str) -> None:
        self._shown.pop(uid, None)
        await super().deallocate(uid)

    def uses(self, held: Held) -> Sequence[str]:
        return [held.data["uses"]] if held.data and "uses" in held.data else []


def driver_kind(plan: "Plan") -> type[CountedDriver]:
    """A driver that does all that the plan says."""
    kinds: dict[type[Any], bool] = {
        UnrulyDriver: plan.unruly,
        LeavingDriver: plan.data,
        ReservingDriver: plan.reserving == "Ledger",
        NominatingDriver: plan.reserving == "Nominated",
        ViewingDriver: plan.viewing,
        SettlingDriver: plan.settling,
        TardyDriver: plan.crowded,
    }
    wanted = [kind for kind, is_wanted in kinds.items() if is_wanted]
    return type("PlannedDriver", (*wanted, CountedDriver), {})


def _is_source(claim: Any) -> bool:
    return claim.claim == SOURCE and not claim.generated


@dataclass(frozen=True, slots=True)
class Plan:
    """What a world is like: whether there are two controllers with a lease, trouble of the network, failing
    allocations, meddlers and mistakes of administrators, which part of the pods goes through the extender path
    (0 to 1), trouble of schedulers with bindings, whether a hostile tenant edits the namespace, whether some
    classes keep claims without users, whether pods leave data on nodes for named claims or these reserve room on
    them, whether that yields to pods of a class, whether some allocations need another one, what there is of
    priorities, whether nodes, classes and claims are replaced by others of their names at once and pods are held
    by finalizers, whether some claims are immediate, whether some are made on demand, whether classes have
    limits, whether some parameters
    are in an object, whether pods want tokens of a second driver, whether the driver misbehaves, whether
    kubelets are slow to start pods, whether pods of nodes that are gone stay for a while, whether claims
    fail or start over whose node takes no pods, whether pods and claims are deleted in the foreground or
    without what they own, and the garbage collector takes its time, whether the informers of Kubernetes' own
    parts are behind now and then, whether a standalone driver serves some classes, and
    takes its time and has what it holds outside of its process, whether nodes get NoExecute taints, whether
    pods with priorities fill their nodes and are bound slowly, whether Parley's watches of some kinds are far
    behind others, and whether the wall clocks of its machines are set."""

    lease: bool = False
    rates: Rates = CALM
    failing: float = 0.0
    meddling: bool = True
    extender: float = 0.0
    bindings: Rates = CALM
    tenant: bool = False
    lasting: bool = False
    preemption: Preemption = Preemption.NONE
    data: bool = False
    reserving: Hold | None = None
    yielding: bool = False
    viewing: bool = False
    replacing: bool = False
    standing: bool = False
    on_demand: bool = False
    limiting: bool = False
    referring: bool = False
    tokens: bool = False
    unruly: bool = False
    slow: bool = False
    lingering: bool = False
    settling: bool = False
    cascading: bool = False
    behind: bool = False
    standalone: bool = False
    outside: bool = False
    tainting: bool = False
    crowded: bool = False
    lagging: bool = False
    jumping: bool = False

    @classmethod
    def drawn(cls, chance: random.Random, number: int) -> "Plan":
        """Half of the worlds have trouble, a third two controllers; three of five use the extender path. In every
        third schedulers do not hear of all bindings, in every fourth there is a hostile tenant, in two of seven
        some claims are kept, and in one of these pods leave data; in two of seven, as far as they have no
        priorities, claims reserve room, which yields in half of them, and in two others some allocations need
        another one."""
        hold = _hold(number) if Preemption.of_world(number) is Preemption.NONE else None
        drawn = cls(
            lease=chance.random() < 0.33,
            rates=Rates.bad() if chance.random() < 0.5 else CALM,
            failing=0.05 if chance.random() < 0.3 else 0.0,
            extender=chance.choice([0.0, 0.0, 0.5, 0.5, 1.0]),
            bindings=LOST_BINDINGS if number % 3 == 1 else CALM,
            tenant=number % 4 == 2,
            lasting=number % 7 < 2,
            preemption=Preemption.of_world(number),
            data=number % 7 == 1,
            reserving=hold,
            yielding=hold is not None and number // 7 % 2 == 1,
            viewing=number % 7 in (3, 5) and Preemption.of_world(number) is Preemption.NONE,
            limiting=number % 5 == 1 and number % 4 != 2,
            referring=number % 10 in (4, 6),
            tokens=number % 10 in (1, 9),
            unruly=number % 6 in (3, 4),
            slow=number % 5 in (2, 4),
            lingering=number % 3 == 2,
            settling=number % 4 == 3 or number % 11 == 8,
            cascading=number % 8 == 5 or number % 22 == 8,
            behind=number % 9 in (1, 5),
        )
        return drawn.together(chance) if number % 11 == 8 else drawn

    def with_standalone(self, chance: random.Random) -> "Plan":
        """The same, in some worlds with a standalone driver, more seldom where there are priorities. `chance` is
        another one than decides the rest, which is as it would be without."""
        share = 0.6 if self.preemption is Preemption.NONE else 0.3
        return replace(self, standalone=chance.random() < share, outside=chance.random() < 0.5)

    def with_later(self, chance: random.Random) -> "Plan":
        """The same, in some worlds with what the soak has learned since. `chance` is one of its own again."""
        tainting, crowded, lagging, jumping = (chance.random() < share for share in (0.25, 0.3, 0.25, 0.25))
        return replace(self, tainting=tainting, crowded=crowded, lagging=lagging, jumping=jumping)

    def together(self, chance: random.Random) -> "Plan":
        """The same, with all that is in worlds of its own otherwise, each at random."""
        holds: list[Hold | None] = [None, "Ledger", "Nominated"]
        hold = chance.choice(holds)
        return replace(
            self,
            preemption=Preemption.NONE,
            lasting=chance.random() < 0.7,
            data=chance.random() < 0.5,
            reserving=hold,
            yielding=hold is not None and chance.random() < 0.5,
            viewing=chance.random() < 0.4,
            replacing=chance.random() < 0.7,
            standing=chance.random() < 0.7,
            on_demand=chance.random() < 0.7,
            limiting=chance.random() < 0.4 and not self.tenant,
            referring=chance.random() < 0.4,
            tokens=chance.random() < 0.4,
        )


def _hold(number: int) -> Hold | None:
    """How claims of the world reserve room on their nodes, if they do."""
    holds: dict[int, Hold] = {0: "Ledger", 4: "Nominated"}
    return holds.get(number % 7)


class Process(LeasedProcess):
    """A controller's process, started at once. `controller` is there as soon as it leads."""

    def __init__(self, world: "World", name: str, plan: Plan) -> None:
        lease = CONTROLLERS_LEASE if plan.lease else ""
        super().__init__(world.server, world.chance, world.clock, name, lease, plan.rates)
        self.driver = driver_kind(plan)(world.chance)
        self.driver.failing = plan.failing
        if isinstance(self.driver, UnrulyDriver):
            self.driver.is_unruly, self.driver.may_go_on = plan.unruly, lambda: self.may_send() and not self.ends
        self.driver.allocating = world.turns.allocating
        if isinstance(self.driver, ReservingDriver) and plan.yielding:
            self.driver.yields_to = (GUEST,)
        self.tokens = ZonedTokens()
        self.controller: Controller | None = None
        self._world = world
        self._requests: dict[asyncio.Task[bytes], None] = {}

    def _transport(self) -> Client:
        return WatchedEvictions(self.client, self._evicts)

    async def _work(self, client: Client) -> None:
        settings = ControllerSettings(
            scheduler_names=(SECOND_SCHEDULER,), reservation_schedulers=("default-scheduler",)
        )
        more: list[Driver[Any, Any]] = [self.tokens] if self._world.plan.tokens else []
        self.controller = Controller(client, [self.driver, *more], settings, clock=self.clock)
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
        assert self.memory is not None
        self._world.evictions.asked(victim, self.nominations)
        self._world.plans.asked(self.memory, victim)

    @property
    def memory(self) -> Memory | None:
        """What it knows, if it leads."""
        return Memory(self.controller, self.driver._inventory._held) if self.controller is not None else None

    @property
    def nominations(self) -> Sequence[Nomination]:
        """What it keeps for pods that others are evicted for."""
        return self.memory.nominations if self.memory is not None else ()

    async def _restored(self, controller: Controller) -> None:
        await controller.ready.wait()
        self._world.invariants.memory_lost(_known(controller))
        self._world.plans.memory_lost()
        self._world.turns.memory_lost()

    async def answer(self, verb: str, body: bytes) -> bytes:
        """The response of its extender path; the connection breaks when it ends."""
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
        """Whether it works on pods now."""
        return not self.dead and self.controller is not None and self.controller.ready.is_set()

    def set_trouble(self, rates: Rates, failing: float, *, unruly: bool) -> None:
        self.client.rates = rates
        self.driver.failing = failing
        if isinstance(self.driver, UnrulyDriver):
            self.driver.is_unruly = unruly


def _known(controller: Controller) -> set[Use]:
    """The uses that it knows of."""
    return {
        (uid, (holding.uid, "") if holding.named else (uid, holding.entry))
        for holding in controller.ledger
        for uid in holding.pods
    }


class World:
    """One cluster. `chance` decides all of its course."""

    def __init__(self, chance: random.Random, plan: Plan, remembered: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        self.loop = loop
        self.chance = chance
        self.plan = plan
        self.clock = loop_clock()
        self.invariants = Invariants(self._known_by_leader)
        self.invariants.data.is_left = plan.data
        self.invariants.keeping.slack += 2 * MOST_SKEW if plan.jumping else 0.0
        self.broken = asyncio.Event()
        self.server = ObservedServer(self.clock, chance.getrandbits(32), self._observe, remembered)
        self.server.goes_in_circles = self._goes_in_circles
        self.plans = Plans(self.server, self.invariants, self._leaders_memory, SECOND_SCHEDULER)
        self.evictions = Evictions(self.invariants.fault, self.plans.evicted)
        self.turns = Turns(self._leaders_memory)
        self.reservations = Reservations(self.invariants.fault)
        self.views = Views(self.invariants, self.invariants.fault)
        self.limits = ClassLimits(self.invariants.fault, self.invariants.lives)
        if plan.cascading:
            self.server.garbage_lag = self._garbage_lag
        self.server.spares = admission.spares
        self.server.forbids_evictions = plan.preemption is not Preemption.ALLOWED
        self.calm = False
        self._makers: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        self._parts: dict[str, asyncio.Task[None]] = {}
        self._names = 0
        self.processes: list[Process] = []
        self._array = Array(self.invariants.fault)
        self.outside: list[OutsideProcess] = []
        """Those of the standalone driver."""

    def _known_by_leader(self) -> set[Use]:
        memory = self._leaders_memory()
        return _known(memory.controller) if memory is not None else set()

    def _observe(self, step: Step) -> None:
        self.invariants.observe(step)
        if self.plan.reserving:
            self.reservations.observe(step)
        if self.plan.viewing:
            self.views.observe(step)
        if self.plan.limiting or self.plan.tokens:
            self.limits.observe(step)
        if self.plan.preemption is not Preemption.NONE:
            self.evictions.observe(step)
            self.plans.observe(step)
            self.turns.observe(step)
        if self.invariants.faults:
            self.broken.set()

    def _goes_in_circles(self) -> None:
        self.invariants.faults.append(f"in circles: {MOST_AT_ONCE} writes in {AT_ONCE_SECONDS:g} s")
        self.broken.set()

    def start(self) -> None:
        """Kubernetes' parts, and Parley."""
        slow = SLOW_KUBELET if self.plan.tenant else UNPREPARE_SECONDS
        client = self._client_of
        self.kubelets = kubelets = DeviceKubelets(
            client("kubelets"), self.clock, self.invariants, slow, self._pause
        )
        self.bindings = BindingClient(self.server.client("scheduler"), self.chance, self.plan.bindings)
        self._makers = {
            CLAIM_CONTROLLER: lambda: ClaimController(client(CLAIM_CONTROLLER)).run(),
            SCHEDULER: lambda: KubeScheduler(self.bindings, self.clock, after_failure=AS_UPSTREAM).run(),
            "kubelets": kubelets.run,
            "node-plugins": NodePlugins(client("node-plugins"), kubelets).run,
        }
        if self.plan.lingering:
            self._makers["pod-collector"] = PodCollector(client("pod-collector")).run
        if self.plan.tainting:
            self._makers["taint-eviction"] = TaintEviction(client("taint-eviction")).run
        if self.plan.extender:
            self._makers["second scheduler"] = self._second_scheduler
        for name in self._makers:
            self._start_part(name)
        for _ in range(2 if self.plan.lease else 1):
            self.start_process()
        for _ in range((2 if self.plan.lease else 1) if self.plan.standalone else 0):
            self.start_outside()

    def _client_of(self, part: str) -> Client:
        """For a part of Kubernetes. Not for the cluster's own scheduler: if that is behind, it binds pods with
        what it has itself cleared a moment before, as upstream does (PostFilter assumes nothing)."""
        client = self.server.client(part)
        return TroubleClient(client, self.chance, BEHIND) if self.plan.behind else client

    def _pause(self) -> float:
        """Seconds that a kubelet takes for the next step of a pod's start."""
        if not self.plan.slow or self.calm or self.chance.random() < 0.5:
            return 0.0
        return self.chance.uniform(0, 40)

    def _garbage_lag(self) -> float:
        """Seconds that the garbage collector takes."""
        if self.calm or self.chance.random() < 0.5:
            return 0.0
        return self.chance.choice((0.05, 2, 40))

    async def _second_scheduler(self) -> None:
        client = self._client_of("second-scheduler")
        await KubeScheduler(client, self.clock, SECOND_SCHEDULER, self._ask_leader).run()

    def _start_part(self, name: str) -> None:
        with acting_as(name):
            self._parts[name] = asyncio.create_task(self._makers[name](), name=name)

    @property
    def restartable(self) -> list[str]:
        """The schedulers and the claim controller."""
        return [name for name in self._makers if name in RESTARTED]

    async def restart_part(self, name: str) -> None:
        """It ends in the middle of whatever it does, and another one begins."""
        self.server.note(f"{name} is restarted")
        task = self._parts[name]
        task.cancel()
        await asyncio.wait([task])
        if name == SCHEDULER:
            self.invariants.scheduler_restarted()
        self._start_part(name)

    async def _ask_leader(self, verb: str, body: bytes) -> bytes:
        leader = self.leader
        if leader is None:
            raise ExtenderUnavailable
        if verb == "bind":
            return await self.bindings.extended(lambda: leader.answer(verb, body))
        return await leader.answer(verb, body)

    def start_process(self) -> Process:
        """One more controller."""
        self._names += 1
        process = Process(self, f"controller-{self._names}", self.plan if not self.calm else self._calm_plan())
        self.processes.append(process)
        self.server.note(f"{process.name} starts")
        return process

    def start_outside(self) -> OutsideProcess:
        """One more standalone driver."""
        self._names += 1
        name, plan = f"driver-{self._names}", self.plan if not self.calm else self._calm_plan()
        server, chance, clock = self.server, self.chance, self.clock
        array = self._array if plan.outside else None
        process = OutsideProcess(server, chance, clock, name, plan.rates, leased=plan.lease, array=array)
        process.driver.failing = plan.failing
        self.outside.append(process)
        self.server.note(f"{name} starts")
        return process

    def clean_array(self) -> None:
        """Who takes the finalizers off a claim sees to what is outside of the cluster for it."""
        leader = self.leading_driver
        claims = {stored.meta["uid"] for stored in self.server.store.collection(CLAIMS).objects.values()}
        for uid in [uid for uid in self._array.held if uid not in claims]:
            if leader is not None and leader.runner is not None and leader.runner._holdings.get(uid) is None:
                del self._array.held[uid]
                leader.driver.lose(uid)

    @property
    def all_processes(self) -> list[LeasedProcess]:
        """Those of Parley's."""
        return [*self.processes, *self.outside]

    def _forget(self, ended: LeasedProcess) -> None:
        self.processes = [process for process in self.processes if process is not ended]
        self.outside = [process for process in self.outside if process is not ended]

    def _start_another(self, ended: LeasedProcess) -> None:
        if isinstance(ended, OutsideProcess):
            self.start_outside()
        else:
            self.start_process()

    def _calm_plan(self) -> Plan:
        return replace(self.plan, rates=CALM, failing=0.0, bindings=CALM, unruly=False)

    async def restart(self, process: LeasedProcess, seconds: float, *, clean: bool = False) -> None:
        """Kill it, and start another one when nothing of the first can arrive any more, or when its lease has
        expired."""
        self.server.note(f"{process.name} is {'ended' if clean else 'killed'}")
        self._forget(process)
        await process.kill(clean=clean)
        self._check_tasks(process)
        await self.let_pass(seconds if self.plan.lease else seconds + LATEST)
        self._start_another(process)

    def _check_tasks(self, process: LeasedProcess) -> None:
        """Nothing of a process that ended runs on but writes that are on the way."""
        left = [task for task in self.loop.tasks_of(process.name) if task.get_name() != LATE_WRITE]
        if left:
            raise Broken(f"left over: tasks of {process.name}: {left}")

    async def supervise(self) -> None:
        """Start what lost its lease anew; what ends otherwise is a fault."""
        for part in self._parts.values():
            if part.done():
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
        self.bindings.trouble.rates = plan.bindings
        for process in self.all_processes:
            process.set_trouble(plan.rates, plan.failing, unruly=plan.unruly)
            if calm:
                process.client.let_go()
                process.skew = 0.0
                self.loop.continue_process(process.name)

    @property
    def leader(self) -> Process | None:
        """The one that works, if there is one."""
        return next((process for process in self.processes if process.leads), None)

    @property
    def leading_driver(self) -> OutsideProcess | None:
        """The standalone driver that works, if there is one."""
        return next((process for process in self.outside if process.leads), None)

    def _leaders_memory(self) -> Memory | None:
        """Of two that lead for all they know, one has been stopped and has yet to learn that it does not."""
        leading = [process for process in self.processes if process.leads]
        return leading[0].memory if len(leading) == 1 else None

    async def check(self) -> None:
        """Raises Broken if a rule was broken meanwhile."""
        await self.supervise()
        if self.invariants.faults:
            raise Broken("\n".join(self.invariants.faults))

    async def let_pass(self, seconds: float) -> None:
        """Wait; broken rules end it at once. Looks after the processes now and then."""
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
        """Until nothing but leases is written for that long; False if it is not so within `limit` seconds."""
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
        for part in self._parts.values():
            part.cancel()
        await asyncio.gather(*self._parts.values(), return_exceptions=True)
