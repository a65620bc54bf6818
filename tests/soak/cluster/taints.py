"""NoExecute taints: a model of the taint eviction controller of kube-controller-manager, and what pods tolerate.

A pod that does not tolerate a NoExecute taint of its node is deleted at once, one that does for some seconds after
these, counted from when the controller saw taint or pod. That is called off when the taint goes, not when the node
does. As upstream whatever pod has the name by then is deleted, with the grace period that it asks for.
Source: pkg/controller/tainteviction/taint_eviction.go of Kubernetes 1.37.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from parley.api import builtin, resources
from parley.api.builtin import Node, Struct, Taint
from parley.api.names import UNREACHABLE_TAINT
from parley.api.resources import NODES, Resource
from parley.kube.cache import Key
from parley.kube.client import ApiError, Client
from parley.kube.informer import Informer
from parley.kube.queue import WorkQueue, run_workers
from parley.simulate.preemption import DISRUPTION
from parley.simulate.status_writes import condition, patch_pod_by_name

Json = dict[str, Any]
RETRIES = 5
AFTER_ERROR = 0.01
INSTANT = 1e-6

MAINTENANCE = "soak.example.com/maintenance"
KEYS = (UNREACHABLE_TAINT, MAINTENANCE)

_FOREVER: Sequence[Json] = [{"operator": "Exists", "effect": "NoExecute"}]
_FOR_A_WHILE: Sequence[Json] = [
    {"key": UNREACHABLE_TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    {"key": MAINTENANCE, "operator": "Equal", "value": "", "effect": "NoExecute", "tolerationSeconds": 5},
]
TOLERATIONS: Sequence[Sequence[Json]] = ((), (), _FOR_A_WHILE, _FOR_A_WHILE, _FOREVER)
"""What pods' tolerations are drawn from; those that the API server adds to pods are like `_FOR_A_WHILE`."""


class Toleration(builtin.Toleration, frozen=True):
    toleration_seconds: int | None = None


class PodSpec(Struct, frozen=True):
    node_name: str = ""
    tolerations: list[Toleration] = []


class Pod(Struct, frozen=True):
    """A pod as the taint eviction controller reads it."""

    metadata: builtin.ObjectMeta = builtin.ObjectMeta()
    spec: PodSpec = PodSpec()


PODS = Resource("", "v1", "pods", "Pod", True, Pod)


def some_taint(chance: random.Random) -> Json:
    """Of a node whose kubelet is not heard of, or which an administrator empties."""
    return {"key": chance.choice(KEYS), "effect": "NoExecute"}


def tolerated_seconds(taints: Collection[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """How long the pod may stay; None for ever. Of the tolerations only the first for each taint counts."""
    used: list[Toleration] = []
    for taint in taints:
        matching = next((one for one in tolerations if _tolerates(one, taint)), None)
        if matching is None:
            return 0.0
        used.append(matching)
    limits = [one.toleration_seconds for one in used if one.toleration_seconds is not None]
    return max(min(limits), 0) if limits else None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    key = toleration.key in ("", taint.key)
    value = toleration.operator == "Exists" or toleration.value == taint.value
    return key and value and toleration.effect in ("", taint.effect)


class TaintEviction:
    """Deletes pods of tainted nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue: WorkQueue[Key] = WorkQueue()
        self._pods = Informer(client, PODS, on_change=self._pod)
        self._nodes = Informer(client, NODES, on_change=self._node)
        self._taints: dict[str, Mapping[str, Taint]] = {}
        """NoExecute taints that there are, by node and key."""
        self._due: dict[Key, float] = {}
        """When pods are to be deleted."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._nodes, self._pods):
                tasks.create_task(informer.run())
            tasks.create_task(run_workers(self._queue, self._evict, 1))

    def _node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._taints.pop(old.metadata.name, None)
            return
        taints = {taint.key: taint for taint in new.spec.taints if taint.effect == "NoExecute"}
        if taints.keys() == self._taints.get(new.metadata.name, {}).keys():
            return
        self._taints[new.metadata.name] = taints
        for pod in [pod for pod in self._pods.values() if pod.spec.node_name == new.metadata.name]:
            self._judge(pod, taints)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._due.pop(_key(old), None)
        elif (old is None or old.spec != new.spec) and (taints := self._taints.get(new.spec.node_name)):
            self._judge(new, taints)

    def _judge(self, pod: Pod, taints: Mapping[str, Taint]) -> None:
        key, now = _key(pod), asyncio.get_running_loop().time()
        seconds = tolerated_seconds(taints.values(), pod.spec.tolerations)
        if seconds is None:
            self._due.pop(key, None)
            return
        self._due[key] = now if not seconds else self._due.get(key, now + seconds)
        self._queue.add_after(key, self._due[key] - now)

    async def _evict(self, key: Key) -> None:
        if key not in self._due:
            return  # it was called off
        if (left := self._due[key] - asyncio.get_running_loop().time()) > INSTANT:
            self._queue.add_after(key, left)
            return
        del self._due[key]
        for _ in range(RETRIES):
            try:
                await self._delete(key)
            except ApiError:
                await asyncio.sleep(AFTER_ERROR)
            else:
                return

    async def _delete(self, key: Key) -> None:
        namespace, name = key
        pod = await self._client.get(resources.PODS, name, namespace)
        entry = condition(DISRUPTION, "True", "DeletionByTaintManager", "deleting due to NoExecute taint", "")
        await patch_pod_by_name(self._client, pod, {"conditions": [entry]})
        await self._client.delete(PODS, name, namespace)


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, pod.metadata.name
