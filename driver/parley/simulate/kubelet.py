"""A model of the kubelets of all nodes: they run bound pods, some for a given time, and end deleted ones.

As with a real kubelet, a pod does not start until all of its claims are allocated and reserved for it; but it
starts at the next change rather than at the next sync. A deleted pod becomes terminal before its object is
removed; claims of a pod that is deleted by force are unprepared some seconds later. `prepared` is what the node
plugins know (`simulate.node_plugins`). Left out: containers, restarts, and admission by resources.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable

from parley.api.builtin import BuiltinClaim, Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.pod import is_terminal
from parley.kube.cache import Key
from parley.kube.client import Client, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.kube.informer import Informer
from parley.kube.queue import WorkQueue, run_workers
from parley.simulate.pod_claims import claim_names, is_for_pod, is_reserved
from parley.simulate.status_writes import condition, patch_pod

_INSTANT = 1e-6
"""Timers may be that early; who waits for less would wait for ever in a clock that only timers move."""

RUN_SECONDS = "simulate.parley.dev/run-seconds"
"""Annotation of a pod: the seconds until it succeeds. Without it a pod runs until it is deleted."""


def run_seconds(pod: Pod) -> float | None:
    """The annotation's value; None without one, or with one that is not a number."""
    try:
        return float(pod.metadata.annotations[RUN_SECONDS])
    except (KeyError, ValueError):
        return None


UNPREPARE_SECONDS = 5.0
"""Seconds that a kubelet takes to end a pod that was deleted by force."""


class Kubelets:
    """The kubelets of all nodes. `duration` returns how long a pod runs; those of nodes in `stopped` do nothing.

    `prepared` has the UIDs of pods that a claim is prepared for, by node and the claim's UID.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        duration: Callable[[Pod], float | None] = run_seconds,
        unprepare_seconds: float = UNPREPARE_SECONDS,
    ) -> None:
        self._client = client
        self._clock = clock
        self._duration = duration
        self._unprepare_seconds = unprepare_seconds
        self._queue: WorkQueue[Key] = WorkQueue()
        self._pods = Informer(client, PODS, on_change=self._pod)
        self._claims = Informer(client, BUILTIN_CLAIMS, on_change=self._claim)
        self._ends: dict[str, float] = {}
        self.stopped: set[str] = set()
        self.prepared: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._forced: dict[str, str] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._claims, self._pods):
                tasks.create_task(informer.run())
                await informer.synced.wait()
            tasks.create_task(run_workers(self._queue, self._sync, 1))

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._ends.pop(old.metadata.uid, None)
            if not is_terminal(old) and old.spec.node_name:
                self._forced[old.metadata.uid] = old.spec.node_name
                asyncio.get_running_loop().call_later(self._unprepare_seconds, self._end_forced, old.metadata.uid)
        if new is not None and is_terminal(new):
            self._unprepare(new.metadata.uid)
        if new is not None and new.spec.node_name:
            self._queue.add((new.metadata.namespace, new.metadata.name))

    def _end_forced(self, pod: str) -> None:
        node = self._forced.get(pod)
        if node is not None and node not in self.stopped:
            del self._forced[pod]
            self._unprepare(pod)

    def stop(self, node: str) -> None:
        """Stop the node's kubelet and plugins."""
        self.stopped.add(node)

    def start(self, node: str) -> None:
        """Start the node's kubelet and plugins again; they handle what changed meanwhile."""
        self.stopped.discard(node)
        for pod in self._pods.values():
            if pod.spec.node_name == node:
                self._queue.add((pod.metadata.namespace, pod.metadata.name))
        for uid in [uid for uid, on in self._forced.items() if on == node]:
            self._end_forced(uid)

    def _unprepare(self, pod: str) -> None:
        for key in [key for key, users in self.prepared.items() if pod in users]:
            self.prepared[key].discard(pod)
            if not self.prepared[key]:
                del self.prepared[key]

    def _claim(self, _old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if new is not None:
            for consumer in new.status.reserved_for:
                self._queue.add((new.metadata.namespace, consumer.name))

    async def _sync(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is None or not pod.spec.node_name or pod.spec.node_name in self.stopped:
            return
        if pod.metadata.deletion_timestamp:
            await self._remove(pod)
        elif pod.status.phase == "Running":
            await self._finish_in_time(key, pod)
        elif not is_terminal(pod) and self._claims_usable(pod):
            await self._start(pod)

    def _claims_usable(self, pod: Pod) -> bool:
        names = claim_names(pod)
        return len(names) == len(pod.spec.resource_claims) and all(self._usable(pod, name) for name in names)

    def _read_claim(self, namespace: str, name: str) -> BuiltinClaim | None:
        return self._claims.get(namespace, name)

    def _usable(self, pod: Pod, name: str) -> bool:
        claim = self._read_claim(pod.metadata.namespace, name)
        if claim is None or not is_for_pod(claim, pod):
            return False
        return claim.status.allocation is not None and is_reserved(claim, pod)

    async def _start(self, pod: Pod) -> None:
        self._prepare(pod)
        await self._run(pod)

    def _prepare(self, pod: Pod) -> None:
        for name in claim_names(pod):
            if (claim := self._read_claim(pod.metadata.namespace, name)) is not None:
                self.prepared[pod.spec.node_name, claim.metadata.uid].add(pod.metadata.uid)

    async def _run(self, pod: Pod) -> None:
        now = rfc3339(self._clock())
        conditions = [condition(kind, "True", "", "", now) for kind in ("PodScheduled", "Ready")]
        await patch_pod(self._client, pod, {"phase": "Running", "startTime": now, "conditions": conditions})

    async def _finish_in_time(self, key: Key, pod: Pod) -> None:
        seconds = self._duration(pod)
        if seconds is None:
            return
        now = asyncio.get_running_loop().time()
        left = self._ends.setdefault(pod.metadata.uid, now + seconds) - now
        if left > _INSTANT:
            self._queue.add_after(key, left)
        else:
            await patch_pod(self._client, pod, {"phase": "Succeeded"})

    async def _remove(self, pod: Pod) -> None:
        meta = pod.metadata
        self._unprepare(meta.uid)
        if not is_terminal(pod):
            await patch_pod(self._client, pod, {"phase": "Succeeded"})
        try:
            await self._client.delete(
                PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0, propagation_policy=""
            )
        except NotFound:
            pass  # the deletion was forced
