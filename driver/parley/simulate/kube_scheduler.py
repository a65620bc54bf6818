"""A small model of kube-scheduler 1.37, with its DynamicResources plugin, or with an extender instead of it.

What it does as upstream: a pod waits at no cost until its claims exist; one pod is placed at a time; a claim
that nobody else reserved is taken back when it kept the pod from a node, or when its driver declined; binding
runs beside the next placement (`binding_cycle`). With an extender nothing looks at claims (`extended_cycle`).
Pods are evicted for others (`preemption`). The extender binds; where that fails all pods that wait are tried
again, too. What it leaves out: backoff but for failures (a pod is tried again at the next change that concerns
it), the order of priorities, scores but for the number of pods, structured allocation, and every filter that
`placement` does not name.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from parley.api.builtin import BuiltinClaim
from parley.kube.backoff import Backoff
from parley.kube.cache import Key
from parley.kube.client import Client, Conflict, Forbidden, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.kube.queue import WorkQueue, run_workers
from parley.simulate.anti_affinity import Pod
from parley.simulate.binding_cycle import Binder, bind
from parley.simulate.extended_cycle import schedule
from parley.simulate.extender_calls import Extender, ExtenderCalls, ExtenderFailed
from parley.simulate.placement import place, unschedulable
from parley.simulate.pod_claims import MOST_USERS, is_reserved, may_use, reserved_by_others
from parley.simulate.preemption import preempt
from parley.simulate.scheduler_cache import SchedulerCache
from parley.simulate.scheduling_queue import Plugin, RequeueFilter
from parley.simulate.status_writes import condition, has_condition, patch_claim, patch_pod_named_so

UNSCHEDULABLE = "Unschedulable"
AFTER_FAILURE = Backoff(first=1.0, longest=1.0)
"""Seconds until the next attempt, whatever changes. Parley's own scheduler is configured so."""
AS_UPSTREAM = Backoff(first=1.0, longest=10.0)
"""What a kube-scheduler does that nobody has configured."""

_CLEARED_BEFORE = 0.01
"""So long a claim has been cleared, and that is seen, before others are evicted and the pod is nominated."""

_INSTANT = 1e-6
"""Timers may be that early; who waits for less would wait for ever in a clock that only timers move."""


class KubeScheduler:
    """Schedules the pods whose `schedulerName` is `name`. `older`: as the one of Kubernetes 1.36."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        name: str = "default-scheduler",
        extender: Extender | None = None,
        *,
        after_failure: Backoff = AFTER_FAILURE,
        older: bool = False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._queue: WorkQueue[Key] = WorkQueue()
        self._after_failure = after_failure
        self._failures: Counter[str] = Counter()
        self._tired: dict[str, float] = {}
        self._requeue = RequeueFilter(self._queue.add)
        self._cache = SchedulerCache(client, name, self._requeue, extended=extender is not None, older=older)
        self._binder = Binder(client, self._cache, clock)
        self._calls = ExtenderCalls(extender) if extender is not None else None

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._cache.start(self._tasks)
            await run_workers(self._queue, self._attempt, 1)

    async def _attempt(self, key: Key) -> None:
        with self._requeue.attempt(key):
            await self._try(key)

    async def _try(self, key: Key) -> None:
        pod = self._cache.pending(key)
        if pod is None:
            return
        if pod.spec.scheduling_gates:
            self._requeue.rejected(key, [Plugin.SCHEDULING_GATES])
            return
        if (left := self._tired.pop(pod.metadata.uid, 0.0) - asyncio.get_running_loop().time()) > _INSTANT:
            self._tired[pod.metadata.uid] = asyncio.get_running_loop().time() + left
            self._queue.add_after(key, left)
            return
        if self._calls is not None:
            await self._ask(pod, self._calls)
            return
        claims = self._cache.claims_of(pod)
        if claims is None:
            self._requeue.rejected(key, [Plugin.DYNAMIC_RESOURCES])
        elif refusal := _unusable(pod, claims):
            self._requeue.rejected(key, [Plugin.DYNAMIC_RESOURCES])
            await self._preempt(pod, ())
            await self._tell(pod, UNSCHEDULABLE, unschedulable(len(self._cache.nodes()), refusal))
        else:
            await self._place(pod, claims)

    async def _place(self, pod: Pod, claims: Sequence[BuiltinClaim]) -> None:
        placement = place(pod, claims, self._cache.nodes(), self._clock())
        if placement.node:
            self._begin(pod, placement.node, bind(self._binder, pod, claims, placement.node))
        else:
            self._requeue.rejected((pod.metadata.namespace, pod.metadata.name), placement.rejectors)
            if await self._take_back(pod, placement.unavailable):
                await self._preempt(pod, placement.preemptible)
            await self._tell(pod, UNSCHEDULABLE, placement.message)

    async def _preempt(self, pod: Pod, nodes: Sequence[str]) -> None:
        """After claims were taken back: what a claim was allocated to in this cycle still decides. If no node is
        worth a look, as while a claim is not allocated, the pod's nomination ends."""
        nominated = await preempt(self._binder, self._calls, pod, nodes)
        if nominated is not None and nominated != pod.status.nominated_node_name:
            await patch_pod_named_so(self._client, pod, {"nominatedNodeName": nominated or None})

    async def _ask(self, pod: Pod, calls: ExtenderCalls) -> None:
        """One scheduling cycle with the extender."""
        try:
            found = await schedule(pod, self._cache.nodes(), calls)
        except ExtenderFailed as error:
            await self._failed(pod, str(error))
            return
        if found.node:
            self._begin(pod, found.node, _bound_by(calls, pod, found.node))
            return
        self._requeue.rejected((pod.metadata.namespace, pod.metadata.name), found.rejectors)
        await self._preempt(pod, found.preemptible)
        await self._tell(pod, UNSCHEDULABLE, found.message)

    def _begin(self, pod: Pod, node: str, binding: Coroutine[Any, Any, str]) -> None:
        """The pod counts for the node while it is being bound."""
        self._cache.assume(pod, node)
        self._tasks.create_task(self._bind(pod, binding))

    async def _bind(self, pod: Pod, binding: Coroutine[Any, Any, str]) -> None:
        if failure := await binding:
            self._cache.forget(pod)
            self._cache.pods_left()
            await self._failed(pod, failure)
        else:
            self._failures.pop(pod.metadata.uid, None)

    async def _failed(self, pod: Pod, why: str) -> None:
        """Leave the pod alone for a moment."""
        self._failures[pod.metadata.uid] += 1
        pause = self._after_failure.delay(self._failures[pod.metadata.uid])
        self._tired[pod.metadata.uid] = asyncio.get_running_loop().time() + pause
        await self._tell(pod, "SchedulerError", why)
        self._queue.add_after((pod.metadata.namespace, pod.metadata.name), pause)

    async def _take_back(self, pod: Pod, claims: Sequence[BuiltinClaim]) -> bool:
        """Clear the first allocation that nobody else reserved. Its change leads to the next attempt. Returns
        whether all went well: after an error no other plugin is asked (RunPostFilterPlugins)."""
        for claim in claims:
            if not reserved_by_others(claim, pod):
                cleared = {"allocation": None, "reservedFor": None, "devices": None}
                try:
                    await patch_claim(self._client, claim, cleared)
                except (NotFound, Conflict, Forbidden):
                    return False  # upstream logs it; the pod waits for the claim
                await asyncio.sleep(_CLEARED_BEFORE)
                return True
        return True

    async def _tell(self, pod: Pod, reason: str, message: str) -> None:
        if not has_condition(pod, "PodScheduled", message):
            now = rfc3339(self._clock())
            entry = condition("PodScheduled", "False", reason, message, now)
            await patch_pod_named_so(self._client, pod, {"conditions": [entry]})


async def _bound_by(calls: ExtenderCalls, pod: Pod, node: str) -> str:
    """Why the extender did not bind the pod, or ""."""
    try:
        await calls.bind(pod, node)
    except ExtenderFailed as error:
        return str(error)
    return ""


def _unusable(pod: Pod, claims: Sequence[BuiltinClaim]) -> str:
    """Why no node is worth a look, or ""."""
    for claim in claims:
        if claim.metadata.deletion_timestamp:
            return f'resourceclaim "{claim.metadata.name}" is being deleted'
        if not may_use(claim, pod):
            meta = claim.metadata
            return f"ResourceClaim {meta.namespace}/{meta.name} was not created for pod {pod.metadata.name}"
        if len(claim.status.reserved_for) >= MOST_USERS and not is_reserved(claim, pod):
            return "resourceclaim in use"
        if claim.status.allocation is None:
            return _unallocated(claim)
    return ""


def _unallocated(claim: BuiltinClaim) -> str:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            return f"request {request.name}: device class {request.exactly.device_class_name} does not exist"
    return f'resourceclaim "{claim.metadata.name}" can\'t be allocated'
