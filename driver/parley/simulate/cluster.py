"""A cluster in memory: an API server, models of kube-scheduler, claim controller and kubelets, and Parley itself.

Parley's controller and drivers are the real ones. Runs in any event loop; in `virtual_time` its minutes pass
at once.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

from parley.api.resources import NODES, PODS
from parley.drivers import built_in
from parley.kube.client import Client
from parley.kube.clock import Clock
from parley.kube.memory import MemoryServer
from parley.scheduler.controller import Controller
from parley.scheduler.settings import ControllerSettings
from parley.sdk import Driver
from parley.simulate import admission
from parley.simulate.claim_controller import ClaimController
from parley.simulate.extender_link import ExtenderLink, leading
from parley.simulate.kube_scheduler import KubeScheduler
from parley.simulate.kubelet import Kubelets
from parley.simulate.left_out import left_out
from parley.simulate.node_plugins import NodePlugins
from parley.simulate.objects import Manifest
from parley.simulate.recording import Recording

ALLOCATABLE = {"cpu": "8", "memory": "32Gi", "pods": "110"}
"""A node's allocatable resources if its manifest has none."""

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def loop_clock() -> Clock:
    """A wall clock that follows the running event loop's clock, from a fixed day on."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    return lambda: _EPOCH + timedelta(seconds=loop.time() - start)


def second_schedulers(manifests: Iterable[Manifest], names: Collection[str]) -> ControllerSettings:
    """Settings with a second scheduler for each of the names that some Pod has as its `schedulerName`."""
    pods = [manifest.body for manifest in manifests if manifest.resource == PODS]
    named = {pod.get("spec", {}).get("schedulerName") for pod in pods}
    return ControllerSettings(scheduler_names=tuple(name for name in dict.fromkeys(names) if name in named))


class SimulatedCluster:
    """A cluster that runs within `async with`. If a component fails, the block ends with an ExceptionGroup.

    For each of the settings' `scheduler_names` there is one more scheduler, which calls Parley's extender.
    """

    def __init__(
        self, drivers: Sequence[Driver[Any, Any]] | None = None, settings: ControllerSettings | None = None
    ) -> None:
        settings = settings or ControllerSettings()
        clock = loop_clock()
        self._server = MemoryServer(clock=clock)
        self._server.gc_forbidden = admission.gc_forbidden
        self.client: Client = self._server.client()
        self.controller = Controller(self.client, drivers if drivers is not None else built_in(), settings, clock)
        self.recording = Recording(self.client, partial(left_out, self.controller.state))
        self._link = ExtenderLink()
        self._link.connect(leading(self.controller))
        self._kubelets = kubelets = Kubelets(self.client, clock)
        self._parts: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = (
            ClaimController(self.client).run,
            KubeScheduler(self.client, clock).run,
            *(KubeScheduler(self.client, clock, name, self._link).run for name in settings.scheduler_names),
            kubelets.run,
            NodePlugins(self.client, kubelets).run,
            self.controller.run,
        )
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._running = [self._tasks.create_task(self._run())]
        return self

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            await self.recording.start(tasks)
            for part in self._parts:
                tasks.create_task(part())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._link.cut()
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(kind, error, traceback)
        await self.client.close()

    async def apply(self, manifests: Iterable[Manifest]) -> None:
        """Create the objects, in the given order, once Parley is ready for them."""
        await self.controller.ready.wait()
        for manifest in manifests:
            body = _with_allocatable(manifest.body) if manifest.resource == NODES else manifest.body
            await self.client.create(manifest.resource, body, manifest.namespace)

    def keep_prepared(self, prepared: Iterable[tuple[str, str]]) -> None:
        """Mark claims (by UID) as prepared on nodes for pods that were deleted by force, and never unprepared."""
        for node, claim in prepared:
            self._kubelets.prepared[node, claim].add("a pod that was deleted by force")

    async def settle(self, quiet: float = 60.0, limit: float = 3600.0) -> bool:
        """Return when nothing was written for `quiet` seconds of the event loop's time, or after `limit` seconds.

        Returns whether the cluster settled; it never does if a write is retried for ever.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        while loop.time() < end:
            before = self._server.resource_version
            await asyncio.sleep(quiet)
            if self._server.resource_version == before:
                return True
        return False


def _with_allocatable(node: Mapping[str, Any]) -> dict[str, Any]:
    """The node with default allocatable resources, as a kubelet would register it."""
    status = node.get("status", {})
    return {**node, "status": {**status, "allocatable": {**ALLOCATABLE, **status.get("allocatable", {})}}}
