"""A world for a standalone driver: the API server in memory, and the controller's part played by
hand.

Two honest drivers of disks: `ShelfDriver` knows everything in memory, `ArrayDriver` asks an `Array` outside,
takes its time, and finds there after a restart what it left. Both put `size` disks for each claim on one node.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.faults import FaultClient

from parley.api.builtin import Node
from parley.api.meta import Condition
from parley.api.models import ClaimScheduling, PodScheduling, ResourceClaim
from parley.api.names import CONDITION_ALLOCATING, DRIVERS_LABEL, STANDALONE
from parley.api.resources import CLAIMS, CLASSES, NODES, POD_SCHEDULINGS, PODS, Resource
from parley.kube.client import Call, Client, NotFound, RawEvent
from parley.kube.memory import MemoryServer
from parley.sdk import Allocation, Answer, Device, Driver, Held, NoParameters, Parameters, Request
from parley.sdk.standalone import StandaloneDriver
from parley.sdk.standalone.informers import Informers

NAMESPACE = "default"
DRIVER = "disks.example.com"


class Disks(Parameters):
    """What a claim asks for."""

    size: int = 1


def _sum(request: Request[Disks, Any]) -> int:
    return sum(claim.parameters.size for claim in request.claims)


class ShelfDriver(Driver[Disks, NoParameters]):
    """Disks of nodes by the annotation `disks`, all in memory. `evaluated` has the pods that were asked about."""

    name = DRIVER
    parameters = Disks
    class_parameters = NoParameters
    watches = (NODES,)

    def __init__(self) -> None:
        self.stock: dict[str, int] = {}
        self.held: dict[str, tuple[str, int]] = {}
        self.evaluated: list[str] = []

    def observe(self, old: Node | None, new: Node | None) -> bool:
        before = dict(self.stock)
        if new is not None:
            self.stock[new.metadata.name] = int(new.metadata.annotations.get("disks", "0"))
        elif old is not None:
            self.stock.pop(old.metadata.name, None)
        return self.stock != before

    def free(self, node: str) -> int:
        return self.stock.get(node, 0) - sum(size for where, size in self.held.values() if where == node)

    def restore(self, held: Held) -> None:
        assert held.node is not None
        assert held.data is not None
        self.held[held.uid] = (held.node, held.data["size"])

    def viable(self, request: Request[Disks, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.evaluated.append(request.pod.name)
        viable = tuple(node for node in nodes if self.free(node) >= _sum(request))
        reasons = {node: f"{self.free(node)} disks free" for node in nodes if node not in viable}
        return {claim.name: Answer(viable, None, reasons) for claim in request.claims}

    async def allocate(self, request: Request[Disks, NoParameters], node: str) -> Mapping[str, Allocation]:
        assert not any(claim.uid in self.held for claim in request.claims), "allocated twice"
        if self.free(node) < _sum(request):
            raise RuntimeError(f"node {node} has only {self.free(node)} disks")
        for claim in request.claims:
            self.held[claim.uid] = (node, claim.parameters.size)
        return {c.name: Allocation(data={"size": c.parameters.size}) for c in request.claims}

    async def deallocate(self, uid: str) -> None:
        self.held.pop(uid, None)


@dataclass
class Array:
    """Disks outside of everything that restarts. `faults` are broken rules."""

    stock: dict[str, int]
    seconds: float = 20.0
    broken: dict[str, Exception] = field(default_factory=dict)
    volumes: dict[str, tuple[str, int]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def free(self, node: str, but_for: Collection[str] = ()) -> int:
        taken = [size for uid, (where, size) in self.volumes.items() if where == node and uid not in but_for]
        return self.stock.get(node, 0) - sum(taken)

    def attach(self, uid: str, node: str, size: int) -> None:
        """Idempotent by UID and node."""
        there = self.volumes.get(uid)
        if there is not None and there[0] != node:
            self.faults.append(f"{uid} is on {there[0]} and was attached to {node}")
        self.volumes[uid] = (node, size)


class ArrayDriver(Driver[Disks, NoParameters]):
    """Attaches disks of an array, in `array.seconds`."""

    name = DRIVER
    parameters = Disks
    class_parameters = NoParameters
    asynchronous = True

    def __init__(self, array: Array) -> None:
        self.array = array

    def restore(self, held: Held) -> None:
        assert self.array.volumes.get(held.uid, (held.node,))[0] == held.node

    async def consider(self, request: Request[Disks, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.array.calls["consider"] += 1
        await asyncio.sleep(1)
        uids = [claim.uid for claim in request.claims]
        viable = tuple(node for node in nodes if self.array.free(node, but_for=uids) >= _sum(request))
        return {claim.name: Answer(viable, None, {}) for claim in request.claims}

    async def allocate(self, request: Request[Disks, NoParameters], node: str) -> Mapping[str, Allocation]:
        array = self.array
        array.calls["allocate"] += 1
        new = [claim for claim in request.claims if claim.uid not in array.volumes]
        if array.free(node) < sum(claim.parameters.size for claim in new):
            raise RuntimeError(f"node {node} has only {array.free(node)} disks")
        for claim in request.claims:
            array.attach(claim.uid, node, claim.parameters.size)
        for second in range(int(array.seconds)):
            request.progress(f"attached for {second} s")
            await asyncio.sleep(1)
        if node in array.broken:
            raise array.broken[node]
        device = Device("array-1", "disk")
        return {claim.name: Allocation((device,), {"size": claim.parameters.size}) for claim in request.claims}

    async def deallocate(self, uid: str) -> None:
        self.array.calls["deallocate"] += 1
        await asyncio.sleep(0.5)
        self.array.volumes.pop(uid, None)


class LaggingClient(FaultClient):
    """Its watches, or those of one kind, bring everything some seconds late."""

    lag = 3.0
    only: Resource[Any] | None = None

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        late = self.only is None or call.resource == self.only
        async for event in super().stream(call):
            await asyncio.sleep(self.lag if late else 0)
            yield event


class World:
    """The cluster, and the controller's part in it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = MemoryServer(clock=self.clock)
        self.client: Client = self.server.client("controller")
        self.runner: StandaloneDriver | None = None
        self.killed: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._start = loop.time()

    def clock(self) -> datetime:
        now = asyncio.get_running_loop().time()
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=now - self._start)

    def start(self, driver: Driver[Any, Any], client: Client | None = None) -> asyncio.Task[None]:
        """Run a driver that knows nothing yet."""
        self.runner = StandaloneDriver(client or self.server.client("driver"), driver, self.clock)
        task = asyncio.create_task(self.runner.run())
        self._tasks.append(task)
        return task

    async def kill(self, task: asyncio.Task[None]) -> None:
        self.killed.add(task)
        task.cancel()
        await asyncio.wait([task])

    async def kill_after_settling(self, driver: Driver[Any, Any]) -> None:
        """A driver does what there is to do, and is gone."""
        task = self.start(driver)
        await self.settle()
        await self.kill(task)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def raise_failures(self) -> None:
        for task in self._tasks:
            if task.done() and task not in self.killed:
                task.result()

    async def settle(self, quiet: float = 90.0) -> None:
        """Until nothing is written for that many seconds."""
        for _ in range(1000):
            self.raise_failures()
            before = self.server.resource_version
            await asyncio.sleep(quiet)
            if self.server.resource_version == before:
                self.raise_failures()
                return
        raise AssertionError("never quiet")

    async def create(self, resource: Resource[Any], body: dict[str, Any]) -> None:
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        await self.client.create(resource, {**kind, **body}, NAMESPACE if resource.namespaced else None)

    async def add_node(self, name: str, disks: int = 0, **spec: Any) -> None:
        body = {"metadata": {"name": name, "annotations": {"disks": str(disks)}, "labels": {"name": name}}}
        await self.create(NODES, {**body, "spec": spec})

    async def set_disks(self, name: str, disks: int) -> None:
        await self.client.patch(NODES, name, {"metadata": {"annotations": {"disks": str(disks)}}})

    async def add_class(self, name: str = "disk", **more: Any) -> None:
        await self.create(CLASSES, {"metadata": {"name": name}, "driverName": DRIVER, **more})

    async def add_claim(self, name: str, class_name: str = "disk", mode: str = "", **parameters: Any) -> None:
        spec: dict[str, Any] = {"resourceClassName": class_name, "parameters": parameters}
        if mode:
            spec["allocationMode"] = mode
        await self.create(CLAIMS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})

    async def ask(
        self,
        pod: str,
        *claims: str,
        nodes: Sequence[str] = (),
        round: int = 1,
        selected: str = "",
        priority: int = 0,
    ) -> None:
        """The controller's question, or its selection: entries are named like the claims."""
        asked = [{"name": claim, "driverName": DRIVER, "resourceClaimName": claim} for claim in claims]
        spec: dict[str, Any] = {"round": round, "selectedNode": selected, "candidateNodes": list(nodes)}
        uid = await self._pod(pod)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": True}
        body = {
            "apiVersion": POD_SCHEDULINGS.api_version,
            "kind": POD_SCHEDULINGS.kind,
            "metadata": {"name": pod, "labels": {DRIVERS_LABEL: STANDALONE}, "ownerReferences": [owner]},
            "spec": {**spec, "claims": asked, "priority": priority},
        }
        await self.client.apply(
            POD_SCHEDULINGS,
            pod,
            body,
            NAMESPACE,
            field_manager="parley-controller",
            force=True,
        )

    async def _pod(self, name: str) -> str:
        """UID of the pod, which is made if need be."""
        try:
            return (await self.client.get(PODS, name, NAMESPACE)).metadata.uid
        except NotFound:
            spec = {"containers": [{"name": "main", "image": "none"}]}
            await self.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
            return await self._pod(name)

    async def select(self, pod: str, node: str) -> None:
        await self.client.patch(POD_SCHEDULINGS, pod, {"spec": {"selectedNode": node}}, NAMESPACE)

    async def unlabel(self, pod: str) -> None:
        """There are no questions for standalone drivers any more."""
        labels = {"metadata": {"labels": {DRIVERS_LABEL: None}}}
        await self.client.patch(POD_SCHEDULINGS, pod, labels, NAMESPACE)

    async def end(self, pod: str) -> None:
        await self.client.delete(POD_SCHEDULINGS, pod, NAMESPACE)

    async def take_back(self, claim: str) -> None:
        status = {"deallocationRequested": True, "reservedFor": None}
        await self.client.patch(CLAIMS, claim, {"status": status}, NAMESPACE, subresource="status")

    async def delete(self, claim: str) -> None:
        await self.client.delete(CLAIMS, claim, NAMESPACE)

    async def scheduling(self, pod: str) -> PodScheduling:
        return await self.client.get(POD_SCHEDULINGS, pod, NAMESPACE)

    async def answers(self, pod: str) -> dict[str, ClaimScheduling]:
        return {entry.name: entry for entry in (await self.scheduling(pod)).status.claims}

    async def answer(self, pod: str) -> ClaimScheduling:
        (entry,) = (await self.answers(pod)).values()
        return entry

    async def claim(self, name: str) -> ResourceClaim:
        return await self.client.get(CLAIMS, name, NAMESPACE)

    async def exists(self, claim: str) -> bool:
        try:
            await self.claim(claim)
        except NotFound:
            return False
        return True

    async def recorded(self) -> dict[str, str]:
        """The node of each allocated claim, by the claim's UID."""
        found: dict[str, str] = {}
        for claim in (await self.client.list(CLAIMS, NAMESPACE)).items:
            if claim.status.allocation is not None and claim.status.allocation.available_on_nodes is not None:
                (term,) = claim.status.allocation.available_on_nodes.node_selector_terms
                found[claim.metadata.uid] = term.match_fields[0].values[0]
        return found

    async def node_of(self, claim: str) -> str:
        """Where the claim is allocated, "" if it is not."""
        return (await self.recorded()).get((await self.claim(claim)).metadata.uid, "")


class Listener:
    """Of informers whose changes nobody follows."""

    def scheduling_changed(self, old: Any, new: Any) -> None: ...
    def claim_changed(self, old: Any, new: Any) -> None: ...
    def class_changed(self, old: Any, new: Any) -> None: ...
    def node_changed(self, old: Any, new: Any) -> None: ...


@asynccontextmanager
async def informed(client: Client) -> AsyncIterator[Informers]:
    """The informers of a driver, synced, within the block."""
    informers = Informers(client, DRIVER, Listener())
    tasks = [asyncio.create_task(informer.run()) for informer in informers.all]
    for informer in informers.all:
        await informer.synced.wait()
    yield informers
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def prepare(world: World, *claims: str, **class_: Any) -> None:
    """Nodes a, b and c with two disks each, the class, and these claims."""
    for node in ("a", "b", "c"):
        await world.add_node(node, 2)
    await world.add_class(**class_)
    for claim in claims:
        await world.add_claim(claim)


async def progress(world: World, claim: str) -> Condition | None:
    """The condition Allocating."""
    conditions = (await world.claim(claim)).status.conditions
    return next((c for c in conditions if c.type == CONDITION_ALLOCATING), None)
