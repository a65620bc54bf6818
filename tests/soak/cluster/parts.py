"""Kubernetes' components in a soak: schedulers, claim controller, kubelets, node plugins and others.

Schedulers and the claim controller can be restarted. Where the plan has pods for the extender path, a second
scheduler asks whichever controller leads.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from tests.soak.cluster.binding_faults import BindingClient
from tests.soak.cluster.collector import PodCollector
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.kubelets import DeviceKubelets
from tests.soak.cluster.observed import ObservedServer
from tests.soak.cluster.processes import acting_as
from tests.soak.cluster.taints import TaintEviction
from tests.soak.plan import Plan
from tests.soak.rules.invariants import Invariants
from tests.support.trouble import Rates, TroubleClient

from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.simulate.claim_controller import ClaimController
from parley.simulate.extender_calls import Extender
from parley.simulate.kube_scheduler import AS_UPSTREAM, KubeScheduler
from parley.simulate.kubelet import UNPREPARE_SECONDS
from parley.simulate.node_plugins import NodePlugins

BEHIND = Rates(late=0.05)
"""Of informers that are behind now and then."""

CLAIM_CONTROLLER = "claim-controller"
SCHEDULER = "scheduler"
RESTARTED = frozenset({CLAIM_CONTROLLER, SCHEDULER, "second scheduler"})
SLOW_KUBELET = 40.0
"""Seconds that a kubelet takes, where a tenant meddles meanwhile, to end a pod that was deleted by force."""


class KubernetesParts:
    """Every component is a task of its own, under its name. `start` starts them."""

    def __init__(
        self,
        server: ObservedServer,
        chance: random.Random,
        clock: Clock,
        plan: Plan,
        invariants: Invariants,
        is_calm: Callable[[], bool],
        extender: Extender,
    ) -> None:
        """`is_calm` returns whether all trouble has ended for now."""
        self._server = server
        self._chance = chance
        self._clock = clock
        self._plan = plan
        self._invariants = invariants
        self._is_calm = is_calm
        self._extender = extender
        self._tasks: dict[str, asyncio.Task[None]] = {}
        slow = SLOW_KUBELET if plan.hostile_tenant else UNPREPARE_SECONDS
        client = self._client_of
        self.kubelets = kubelets = DeviceKubelets(server, client("kubelets"), clock, invariants, slow, self._pause)
        self.bindings = BindingClient(server.client("scheduler"), chance, plan.binding_faults)
        self._makers: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            CLAIM_CONTROLLER: lambda: ClaimController(client(CLAIM_CONTROLLER)).run(),
            SCHEDULER: lambda: KubeScheduler(self.bindings, clock, after_failure=AS_UPSTREAM).run(),
            "kubelets": kubelets.run,
            "node-plugins": NodePlugins(client("node-plugins"), kubelets).run,
        }
        if plan.orphaned_pods:
            self._makers["pod-collector"] = PodCollector(client("pod-collector")).run
        if plan.no_execute_taints:
            self._makers["taint-eviction"] = TaintEviction(client("taint-eviction")).run
        if plan.extender:
            self._makers["second scheduler"] = self._second_scheduler

    def start(self) -> None:
        """Start all components."""
        for name in self._makers:
            self._start(name)

    def _start(self, name: str) -> None:
        with acting_as(name):
            self._tasks[name] = asyncio.create_task(self._makers[name](), name=name)

    def _client_of(self, part: str) -> Client:
        """For a component. Not for the cluster's own scheduler: if that is behind, it binds pods with what it has
        itself cleared a moment before, as upstream does (PostFilter assumes nothing)."""
        client = self._server.client(part)
        return TroubleClient(client, self._chance, BEHIND) if self._plan.component_watch_lag else client

    def _pause(self) -> float:
        """Seconds that a kubelet takes for the next step of a pod's start."""
        if not self._plan.slow_kubelets or self._is_calm() or self._chance.random() < 0.5:
            return 0.0
        return self._chance.uniform(0, 40)

    def garbage_lag(self) -> float:
        """Seconds that the garbage collector takes for its next object."""
        if self._is_calm() or self._chance.random() < 0.5:
            return 0.0
        return self._chance.choice((0.05, 2, 40))

    async def _second_scheduler(self) -> None:
        client = self._client_of("second-scheduler")
        await KubeScheduler(client, self._clock, SECOND_SCHEDULER, self._extender).run()

    @property
    def restartable(self) -> list[str]:
        """The names of the schedulers and the claim controller."""
        return [name for name in self._makers if name in RESTARTED]

    async def restart(self, name: str) -> None:
        """End a component in the middle of whatever it does, and start another one."""
        self._server.note(f"{name} is restarted")
        task = self._tasks[name]
        task.cancel()
        await asyncio.wait([task])
        if name == SCHEDULER:
            self._invariants.scheduler_restarted()
        self._start(name)

    def ended(self) -> Iterator[asyncio.Task[None]]:
        """The components that ended by themselves."""
        return (task for task in self._tasks.values() if task.done())

    async def stop(self) -> None:
        """End all components."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
