"""A world for both scheduling paths: API server in memory, models of Kubernetes' parts, Parley's real controller.

`play(scenario)` runs a scenario in virtual time: minutes pass at once, and the same scenario always takes the
same course. The controller talks through a client of its own, so that a test can cut it off or kill it.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from tests.support.containers import using
from tests.unit.scheduler.watching import Watcher

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.models import PodScheduling, ResourceClaim
from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import (
    BUILTIN_CLAIMS,
    CLAIMS,
    CLASSES,
    EVENTS,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.control.ledger import Ledger
from parley.control.objects.mirror import allocated, driver_of
from parley.drivers.device import DeviceDriver
from parley.kube.client import AlreadyExists, Client, NotFound
from parley.kube.informer import Informer
from parley.kube.memory import MemoryServer
from parley.scheduler.controller import Controller
from parley.scheduler.settings import ControllerSettings
from parley.sdk import Driver
from parley.sdk.standalone import StandaloneDriver
from parley.simulate import admission
from parley.simulate.claim_controller import ClaimController
from parley.simulate.cluster import loop_clock
from parley.simulate.extender_link import ExtenderEndpoint, ExtenderLink, leading
from parley.simulate.kube_scheduler import AS_UPSTREAM, KubeScheduler
from parley.simulate.kubelet import Kubelets
from parley.simulate.node_plugins import NodePlugins
from parley.simulate.virtual_time import run

NAMESPACE = "default"
SECOND_SCHEDULER = "parley"
"""The scheduler that speaks to the extender path."""
AWAY = "parley-away"
"""A scheduler of the extender path that does nothing: a test says what it would."""


@dataclass
class Calls:
    """What schedulers asked the extender path, and the binds that it did not do."""

    count: Counter[str] = field(default_factory=Counter)
    failed_binds: list[tuple[str, str]] = field(default_factory=list)

    def ended(self, verb: str, body: bytes, answer: bytes) -> None:
        """A call was answered."""
        if verb == "bind" and (error := orjson.loads(answer)["Error"]):
            self.failed_binds.append((orjson.loads(body)["PodName"], error))


class Listener:
    """A controller's extender as its scheduler meets it: calls are counted, and a killed process answers none."""

    def __init__(self, controller: Controller, process: asyncio.Task[None], calls: Calls) -> None:
        self._leading = leading(controller)
        self._process = process
        self._calls = calls

    def leads(self) -> ExtenderEndpoint | None:
        """Itself, once the controller is ready."""
        return self if self._leading() is not None else None

    async def answer(self, verb: str, body: bytes) -> bytes:
        extender = self._leading()
        assert extender is not None
        self._calls.count[verb] += 1
        try:
            answer = await extender.answer(verb, body)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException:
            self._process.cancel()
            raise asyncio.CancelledError from None
        self._calls.ended(verb, body, answer)
        return answer


class World:
    """The cluster, as a user and its administrator see it.

    `scheduling_path` is "native" or "extender": whose scheduler places the pods that do not say.
    """

    def __init__(self, scheduling_path: str = "native") -> None:
        self.scheduling_path = scheduling_path
        self.link = ExtenderLink()
        self.calls = Calls()
        self.clock = loop_clock()
        self.server = MemoryServer(clock=self.clock, bookmark_interval=1800)  # else much of the time goes there
        self.server.gc_forbidden = admission.gc_forbidden
        self.client: Client = self.server.client()
        self.controller: Controller | None = None
        self._parley: asyncio.Task[None] | None = None
        self.killed: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start_kubernetes(self) -> None:
        self.kubelets = Kubelets(self.client, self.clock)
        self.start_claim_controller()
        for part in (
            KubeScheduler(self.client, self.clock, after_failure=AS_UPSTREAM),
            KubeScheduler(self.client, self.clock, SECOND_SCHEDULER, self.link),
            self.kubelets,
            NodePlugins(self.client, self.kubelets),
        ):
            self._tasks.append(asyncio.create_task(part.run()))

    def start_parley(
        self,
        client: Client | None = None,
        drivers: Sequence[Driver[Any, Any]] | None = None,
        **settings: Any,
    ) -> asyncio.Task[None]:
        """A new controller, with drivers that know nothing yet."""
        self.controller = Controller(
            client or self.server.client(),
            drivers if drivers is not None else [DeviceDriver()],
            ControllerSettings(scheduler_names=(SECOND_SCHEDULER, AWAY), **settings),
            clock=self.clock,
        )
        task = asyncio.create_task(self.controller.run())
        self.link.connect(Listener(self.controller, task, self.calls).leads)
        task.add_done_callback(lambda _: self.link.cut())
        self._tasks.append(task)
        self._parley = task
        return task

    async def ask(self, verb: str, question: Any) -> Any:
        """Ask the extender path as a scheduler does."""
        return orjson.loads(await self.link(verb, orjson.dumps(question)))

    async def question(self, pod: str, *nodes: str) -> dict[str, Any]:
        """What a scheduler asks about the pod."""
        whole = await self.client.get(PODS.untyped(), pod, NAMESPACE)
        return {"Pod": whole, "Nodes": None, "NodeNames": list(nodes)}

    async def crash(self) -> None:
        """The controller is gone, with all that it had in memory."""
        assert self._parley is not None
        await self._kill(self._parley)

    def start_claim_controller(self) -> None:
        """That of the kube-controller-manager."""
        self._claim_controller = asyncio.create_task(ClaimController(self.client).run())
        self._tasks.append(self._claim_controller)

    async def stop_claim_controller(self) -> None:
        """The kube-controller-manager is away: it neither adds nor takes out reservations."""
        await self._kill(self._claim_controller)

    async def _kill(self, task: asyncio.Task[None]) -> None:
        self.killed.add(task)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def ledger(self) -> Ledger:
        """What the controller holds."""
        assert self.controller is not None
        return self.controller.ledger

    def watch_claims(self, seen: Callable[[ResourceClaim], None]) -> None:
        """Tell of each Parley claim that is or comes."""
        on_change = lambda _old, new: seen(new) if new is not None else None  # noqa: E731
        self._tasks.append(asyncio.create_task(Informer(self.client, CLAIMS, on_change=on_change).run()))

    def start_driver(self, driver: Driver[Any, Any], client: Client | None = None) -> asyncio.Task[None]:
        """A standalone driver, as in a process of its own."""
        runner = StandaloneDriver(client or self.server.client(), driver, clock=self.clock)
        task = asyncio.create_task(runner.run())
        self._tasks.append(task)
        return task

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def raise_failures(self) -> None:
        """A part that ended by itself is a failure, unless the test ended it."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task not in self.killed:
                task.result()

    async def change_pod(self, name: str) -> None:
        """As kubelets do now and then: only then is a claim of the pod that was deleted made anew."""
        annotations = {"example.com/changed": str(self.server.resource_version)}
        await self.client.patch(PODS, name, {"metadata": {"annotations": annotations}}, "default")

    async def settle(self, quiet: float = 30.0) -> None:
        """Until nothing is written for that many seconds; a cluster that is never quiet goes in circles."""
        until = asyncio.get_running_loop().time() + 20_000
        while asyncio.get_running_loop().time() < until:
            self.raise_failures()
            before = self.server.resource_version
            await asyncio.sleep(quiet)
            if self.server.resource_version == before:
                return
        raise AssertionError("never quiet")

    async def create(self, resource: Resource[Any], body: dict[str, Any]) -> None:
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        await self.client.create(resource, {**kind, **body}, NAMESPACE if resource.namespaced else None)

    async def add_node(
        self, name: str, devices: int = 0, labels: dict[str, str] | None = None, **slice_: Any
    ) -> None:
        body = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}}
        await self.create(NODES, body)
        allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        await self.client.patch(NODES, name, {"status": {"allocatable": allocatable}}, subresource="status")
        await self.publish(name, [f"gpu-{i}" for i in range(devices)])

    async def publish(self, node: str, devices: Sequence[str], model: str = "a100", slices: int = 1) -> None:
        """What the node's plugin has to offer, which may be nothing."""
        capacity = {"memory": {"value": "40Gi"}, "slices": {"value": str(slices)}}
        listed = [{"name": d, "attributes": {"model": {"string": model}}, "capacity": capacity} for d in devices]
        spec = {"driver": DeviceDriver.name, "nodeName": node, "pool": {"name": node, "generation": 1}}
        name, body = f"{node}-devices", {"spec": {**spec, "devices": listed}}
        labels = {PUBLISHED_BY_LABEL: NODE_PLUGIN}
        try:
            await self.create(RESOURCE_SLICES, {"metadata": {"name": name, "labels": labels}, **body})
        except AlreadyExists:
            await self.client.patch(RESOURCE_SLICES, name, body)

    async def plugin_gone(self, node: str) -> None:
        """The kubelet removes what the plugin published half a minute after it is gone."""
        await self.client.delete(RESOURCE_SLICES, f"{node}-devices")

    async def add_class(self, name: str = "gpu", **more: Any) -> None:
        await self.create(CLASSES, {"metadata": {"name": name}, "driverName": DeviceDriver.name, **more})

    async def add_template(self, name: str = "one", class_name: str = "gpu", **parameters: Any) -> None:
        spec = {"resourceClassName": class_name, "parameters": parameters}
        body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": spec}}
        await self.create(TEMPLATES, body)

    async def add_claim(self, name: str, class_name: str = "gpu", mode: str = "", **parameters: Any) -> None:
        spec: dict[str, Any] = {"resourceClassName": class_name, "parameters": parameters}
        if mode:
            spec["allocationMode"] = mode
        await self.create(CLAIMS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})

    async def add_pod(self, name: str, *templates: str, claims: Sequence[str] = (), **spec: Any) -> None:
        """Entries are named gpu-0, gpu-1, ... for templates and as the claim for named claims."""
        entries = [{"name": f"gpu-{i}", "resourceClaimTemplateName": t} for i, t in enumerate(templates)]
        entries += [{"name": claim, "resourceClaimName": claim} for claim in claims]
        if self.scheduling_path == "extender":
            spec = {"schedulerName": SECOND_SCHEDULER, **spec}
        spec = {"resourceClaims": entries, "containers": [{"name": "main", "image": "none"}], **spec}
        spec["containers"] = using(spec["containers"], spec["resourceClaims"])
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": "test"}}
        await self.create(PODS, {"metadata": metadata, "spec": spec})

    async def delete_pod(self, name: str) -> None:
        await self.client.delete(PODS, name, NAMESPACE)

    async def force_delete(self, name: str) -> None:
        """`kubectl delete pod --grace-period=0 --force`: the object is gone, whatever the node does."""
        await self.client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)

    async def force_away(self, claim: str) -> None:
        """An administrator removes the finalizers of a named claim and of its mirror, whatever uses them."""
        for resource in (CLAIMS.untyped(), BUILTIN_CLAIMS.untyped()):
            await self.client.delete(resource, claim, NAMESPACE)
            await self.client.patch(resource, claim, {"metadata": {"finalizers": None}}, NAMESPACE)

    async def taint(self, node: str, key: str, effect: str) -> None:
        taints = {"spec": {"taints": [{"key": key, "effect": effect}]}}
        await self.client.patch(NODES, node, taints)

    async def finish_pod(self, name: str) -> None:
        await self.client.patch(PODS, name, {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")

    async def pod(self, name: str) -> Pod:
        return await self.client.get(PODS, name, NAMESPACE)

    async def node_of(self, name: str) -> str:
        return (await self.pod(name)).spec.node_name

    async def scheduling(self, name: str) -> PodScheduling:
        return await self.client.get(POD_SCHEDULINGS, name, NAMESPACE)

    async def claim(self, name: str) -> ResourceClaim:
        return await self.client.get(CLAIMS, name, NAMESPACE)

    async def mirror(self, name: str) -> BuiltinClaim | None:
        try:
            return await self.client.get(BUILTIN_CLAIMS, name, NAMESPACE)
        except NotFound:
            return None

    async def mirrors(self) -> Sequence[BuiltinClaim]:
        return (await self.client.list(BUILTIN_CLAIMS, NAMESPACE)).items

    async def devices(self) -> Counter[tuple[str, str]]:
        """How many claims hold each device, by the API."""
        held: Counter[tuple[str, str]] = Counter()
        for mirror in await self.mirrors():
            if mirror.status.allocation is not None:
                found = allocated(mirror, driver_of(mirror.status.allocation))
                held.update((d.pool, d.device) for d in (found.devices if found else ()))
        return held

    async def events_on(self, name: str) -> list[tuple[str, str]]:
        listing = await self.client.list(EVENTS, NAMESPACE)
        return [(e.reason, e.note) for e in listing.items if (e.regarding or {}).get("name") == name]


Scenario = Callable[[World], Awaitable[None]]


def played(scenario: Scenario, scheduling_path: str = "native") -> None:
    """Run the scenario against a new world with Kubernetes' parts, in virtual time."""

    async def main() -> None:
        world = World(scheduling_path)
        world.start_kubernetes()
        try:
            await scenario(world)
        finally:
            await world.stop()

    run(main())


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "scheduling_paths(*names): whose behaviour a test speaks about, native or extender; else that of native",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("scheduling_paths")
    if marker is not None and "scheduling_path" in metafunc.fixturenames:
        metafunc.parametrize("scheduling_path", marker.args, indirect=True)


@pytest.fixture
def scheduling_path(request: pytest.FixtureRequest) -> str:
    """Whose scheduler places the world's pods."""
    return str(getattr(request, "param", "native"))


@pytest.fixture
def play(scheduling_path: str) -> Callable[[Scenario], None]:
    """Runs a scenario against a new world with Kubernetes' parts, in virtual time."""
    return lambda scenario: played(scenario, scheduling_path)


@pytest.fixture
def watcher() -> Callable[[World], Watcher]:
    """Makes the one that looks at every state; to be made before anything happens."""
    return lambda world: Watcher(world.client)
