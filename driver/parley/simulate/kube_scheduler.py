"""A small model of kube-scheduler 1.37, with its DynamicResources plugin, or with an extender instead of it.

As upstream: a pod is not scheduled until its claims exist; one pod is scheduled at a time; a claim that no other
pod reserved is deallocated if it kept the pod from a node, or if its driver declined; the binding cycle runs
concurrently with the next scheduling cycle (`binding_cycle`). With an extender claims are not evaluated
(`extended_cycle`), and the extender binds; after a failed binding all waiting pods are tried again, too. Pods are
evicted for others (`preemption`). Left out: back-off except after failures (a pod is tried again at the next event
that concerns it), ordering by priority, scores except for the number of pods, structured allocation, and every
filter that `placement` does not name.
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
from parley.simulate.binding_cycle import BindingCycles, bind
from parley.simulate.extended_cycle import schedule
from parley.simulate.extender_calls import Extender, ExtenderCalls, ExtenderFailed
from parley.simulate.placement import place, unschedulable
from parley.simulate.pod_claims import MOST_USERS, is_for_pod, is_reserved, reserved_by_others
from parley.simulate.preemption import preempt
from parley.simulate.scheduler_cache import SchedulerCache
from parley.simulate.scheduling_queue import Plugin, RequeueFilter
from parley.simulate.status_writes import condition, has_condition, patch_claim, patch_pod_by_name

UNSCHEDULABLE = "Unschedulable"
AFTER_FAILURE = Backoff(first=1.0, longest=1.0)
"""The back-off after a failure, as Parley's second scheduler is configured; events do not shorten it."""
AS_UPSTREAM = Backoff(first=1.0, longest=10.0)
"""The back-off of a kube-scheduler with default configuration."""

_AFTER_CLEARING = 0.01
"""Seconds between clearing a claim's allocation and evicting others: watchers see the cleared claim first."""

_INSTANT = 1e-6
"""Timers may be that early; who waits for less would wait for ever in a clock that only timers move."""


class KubeScheduler:
    """Schedules the pods whose `schedulerName` is `name`. `older`: behaves as that of Kubernetes 1.36."""

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
        self._backoff_until: dict[str, float] = {}
        self._requeue = RequeueFilter(self._queue.add)
        self._cache = SchedulerCache(client, name, self._requeue, extended=extender is not None, older=older)
        self._cycles = BindingCycles(client, self._cache, clock)
        self._calls = ExtenderCalls(extender) if extender is not None else None

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._cache.start(self._tasks)
            await run_workers(self._queue, self._attempt, 1)

    async def _attempt(self, key: Key) -> None:
        with self._requeue.attempt(key):
            await self._schedule_pod(key)

    async def _schedule_pod(self, key: Key) -> None:
        pod = self._cache.pending(key)
        if pod is None:
            return
        if pod.spec.scheduling_gates:
            self._requeue.rejected(key, [Plugin.SCHEDULING_GATES])
            return
        if (left := self._backoff_until.pop(pod.metadata.uid, 0.0) - asyncio.get_running_loop().time()) > _INSTANT:
            self._backoff_until[pod.metadata.uid] = asyncio.get_running_loop().time() + left
            self._queue.add_after(key, left)
            return
        if self._calls is not None:
            await self._schedule_with_extender(pod, self._calls)
            return
        claims = self._cache.claims_of(pod)
        if claims is None:
            self._requeue.rejected(key, [Plugin.DYNAMIC_RESOURCES])
        elif refusal := _unusable(pod, claims):
            self._requeue.rejected(key, [Plugin.DYNAMIC_RESOURCES])
            await self._preempt(pod, ())
            await self._set_condition(pod, UNSCHEDULABLE, unschedulable(len(self._cache.nodes()), refusal))
        else:
            await self._schedule_with_claims(pod, claims)

    async def _schedule_with_claims(self, pod: Pod, claims: Sequence[BuiltinClaim]) -> None:
        placement = place(pod, claims, self._cache.nodes(), self._clock())
        if placement.node:
            self._start_binding(pod, placement.node, bind(self._cycles, pod, claims, placement.node))
        else:
            self._requeue.rejected((pod.metadata.namespace, pod.metadata.name), placement.rejectors)
            if await self._deallocate(pod, placement.unavailable):
                await self._preempt(pod, placement.preemptible)
            await self._set_condition(pod, UNSCHEDULABLE, placement.message)

    async def _preempt(self, pod: Pod, nodes: Sequence[str]) -> None:
        """Evict less important pods on one of the nodes. Runs after claims were deallocated, but by their
        allocations at the start of the cycle. Without nodes, as while a claim is unallocated, removes the pod's
        nomination."""
        nominated = await preempt(self._cycles, self._calls, pod, nodes)
        if nominated is not None and nominated != pod.status.nominated_node_name:
            await patch_pod_by_name(self._client, pod, {"nominatedNodeName": nominated or None})

    async def _schedule_with_extender(self, pod: Pod, calls: ExtenderCalls) -> None:
        """One scheduling cycle with the extender."""
        try:
            found = await schedule(pod, self._cache.nodes(), calls)
        except ExtenderFailed as error:
            await self._requeue_after_failure(pod, str(error))
            return
        if found.node:
            self._start_binding(pod, found.node, _bound_by(calls, pod, found.node))
            return
        self._requeue.rejected((pod.metadata.namespace, pod.metadata.name), found.rejectors)
        await self._preempt(pod, found.preemptible)
        await self._set_condition(pod, UNSCHEDULABLE, found.message)

    def _start_binding(self, pod: Pod, node: str, binding: Coroutine[Any, Any, str]) -> None:
        """Assume the pod on the node, and start the binding cycle."""
        self._cache.assume(pod, node)
        self._tasks.create_task(self._bind(pod, binding))

    async def _bind(self, pod: Pod, binding: Coroutine[Any, Any, str]) -> None:
        if failure := await binding:
            self._cache.forget(pod)
            self._cache.pod_left()
            await self._requeue_after_failure(pod, failure)
        else:
            self._failures.pop(pod.metadata.uid, None)

    async def _requeue_after_failure(self, pod: Pod, why: str) -> None:
        """Report the failure, and requeue the pod after a back-off."""
        self._failures[pod.metadata.uid] += 1
        pause = self._after_failure.delay(self._failures[pod.metadata.uid])
        self._backoff_until[pod.metadata.uid] = asyncio.get_running_loop().time() + pause
        await self._set_condition(pod, "SchedulerError", why)
        self._queue.add_after((pod.metadata.namespace, pod.metadata.name), pause)

    async def _deallocate(self, pod: Pod, claims: Sequence[BuiltinClaim]) -> bool:
        """Clear the first allocation that no other pod reserved; the claim's event requeues the pod. Returns
        whether there was no error: after one, no other plugin runs (RunPostFilterPlugins)."""
        for claim in claims:
            if not reserved_by_others(claim, pod):
                cleared = {"allocation": None, "reservedFor": None, "devices": None}
                try:
                    await patch_claim(self._client, claim, cleared)
                except (NotFound, Conflict, Forbidden):
                    return False  # upstream logs the error; the pod waits for the claim's next change
                await asyncio.sleep(_AFTER_CLEARING)
                return True
        return True

    async def _set_condition(self, pod: Pod, reason: str, message: str) -> None:
        if not has_condition(pod, "PodScheduled", message):
            now = rfc3339(self._clock())
            entry = condition("PodScheduled", "False", reason, message, now)
            await patch_pod_by_name(self._client, pod, {"conditions": [entry]})


async def _bound_by(calls: ExtenderCalls, pod: Pod, node: str) -> str:
    """Has the extender bind the pod; returns why it failed, or ""."""
    try:
        await calls.bind(pod, node)
    except ExtenderFailed as error:
        return str(error)
    return ""


def _unusable(pod: Pod, claims: Sequence[BuiltinClaim]) -> str:
    """Why the claims rule out all nodes, or ""."""
    for claim in claims:
        if claim.metadata.deletion_timestamp:
            return f'resourceclaim "{claim.metadata.name}" is being deleted'
        if not is_for_pod(claim, pod):
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
