"""The life of one workload in a namespace of its own: prepared, run, ended. Nothing is counted here but time."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from benchmarks import objects
from benchmarks.api import Refused
from benchmarks.burdens import Burden
from benchmarks.latency import Times
from benchmarks.stage import ALWAYS, WHEN_WAITING, Stage
from benchmarks.workloads import Workload
from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, POD_SCHEDULINGS, PODS, TEMPLATES, Resource
from parley.kube.informer import Informer, Selection

_CONNECTIONS = 8
"""Pods are created and ended over so many."""

_IDLE = 0.5
"""Seconds between pods that are created one by one, so that nothing of the one before is still under way."""


class Life:
    """One workload's. Every step raises TimeoutError if it does not come to its end within five minutes."""

    def __init__(self, stage: Stage, workload: Workload) -> None:
        self._stage = stage
        self._api = stage.api
        self._workload = workload
        self._burden = Burden(stage, workload)
        self.namespace = f"bench-{workload.name}"
        self.times = Times()

    async def prepare(self) -> None:
        """Nodes, burden, namespace and templates are there, and Parley has seen them."""
        await self._stage.grow_to(self._workload.nodes)
        published = WHEN_WAITING if self._workload.unpublished else ALWAYS
        await self._stage.use(self._workload.scheduler, published)
        if self._workload.standalone:
            await self._stage.start_driver()
        await self._burden.put()
        await self._api.create_namespace(self.namespace)
        kinds = dict.fromkeys(self._workload.asks)
        for ask in kinds:
            await self._api.request("POST", TEMPLATES.path(self.namespace), objects.template(ask))
        await self._stage.until(lambda: self._has(BUILTIN_TEMPLATES, len(kinds)), "the templates have mirrors")

    async def run(self) -> float:
        """Create the pods and wait until they are bound and published; seconds from the first creation on."""
        started = time.monotonic()
        async with self._watching():
            await (self._one_by_one() if self._workload.one_by_one else self._at_once())
        if self._workload.asks and not self._workload.unpublished:
            count = self._workload.pods
            await self._stage.until(lambda: self._has(POD_SCHEDULINGS, count), f"{count} PodSchedulings are there")
        return time.monotonic() - started

    async def end(self) -> None:
        """End the pods as their kubelets would, delete them, and wait until what belonged to them is gone."""
        await self._each(self._finish)
        while not await self._deleted():
            self._stage.check_alive()
        for kind in (PODS, BUILTIN_CLAIMS, POD_SCHEDULINGS):
            await self._gone(kind)

    async def _deleted(self) -> bool:
        """Whether the API server deleted all pods within the minute that it takes for a request."""
        try:
            await self._api.request("DELETE", f"{PODS.path(self.namespace)}?gracePeriodSeconds=0")
        except Refused as error:
            if error.status != HTTPStatus.GATEWAY_TIMEOUT:
                raise
            return False
        return True

    async def tidy_up(self) -> None:
        """Delete what is left, events above all, so that it does not burden the next workload."""
        if self._workload.standalone:
            self._stage.stop_driver()
        namespaces = [self.namespace, *self._burden.namespaces]
        for namespace in namespaces:
            await self._api.request("DELETE", f"/api/v1/namespaces/{namespace}")
        await self._stage.until(partial(self._without, namespaces), f"namespaces {', '.join(namespaces)} are gone")

    async def _at_once(self) -> None:
        await self._each(self._create)
        await self._bound(self._workload.pods)

    async def _each(self, step: Callable[[int], Awaitable[None]]) -> None:
        """Take the step for each pod, for several at once."""
        numbers = iter(range(self._workload.pods))

        async def take_some() -> None:
            for number in numbers:
                await step(number)

        await asyncio.gather(*(take_some() for _ in range(_CONNECTIONS)))

    async def _one_by_one(self) -> None:
        for number in range(self._workload.pods):
            await asyncio.sleep(_IDLE)
            await self._create(number)
            await self._bound(number + 1)

    async def _create(self, number: int) -> None:
        body = objects.pod(number, self._workload.asks, self._workload.scheduler)
        self.times.created[body["metadata"]["name"]] = time.monotonic()
        await self._api.request("POST", PODS.path(self.namespace), body)

    async def _finish(self, number: int) -> None:
        """Before a kubelet says so, it has unprepared the pod's claims."""
        path = PODS.path(self.namespace, objects.pod_name(number), "status")
        await self._api.request("PATCH", path, objects.FINISHED)

    async def _bound(self, count: int) -> None:
        async def enough() -> bool:
            return len(self.times.bound) == count

        await self._stage.until(enough, f"{count} pods of workload {self._workload.name} are bound")

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        """Note when each pod is told to be bound; the server keeps unbound ones from this watch."""
        bound = "spec.nodeName!="
        pods = Informer(
            self._stage.watcher,
            PODS,
            Selection(self.namespace, field_selector=bound),
            on_change=self._note_binding,
        )
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(pods.run())
            await pods.synced.wait()
            yield
            watching.cancel()

    def _note_binding(self, _: Pod | None, pod: Pod | None) -> None:
        if pod is not None:
            self.times.bound.setdefault(pod.metadata.name, time.monotonic())

    async def _gone(self, kind: Resource[Any]) -> None:
        await self._stage.until(lambda: self._has(kind, 0), f"all {kind.plural} are gone")

    async def _has(self, kind: Resource[Any], count: int) -> bool:
        return await self._api.has(kind, self.namespace, count)

    async def _without(self, namespaces: Sequence[str]) -> bool:
        return not any([await self._api.has_namespace(name) for name in namespaces])
