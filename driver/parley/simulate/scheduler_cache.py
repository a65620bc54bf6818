"""What the simulated kube-scheduler knows: pods, nodes and claims, and the pods it is about to bind."""

import asyncio
from collections.abc import Callable, Iterator

from parley.api.builtin import BuiltinClaim, Node
from parley.api.resources import BUILTIN_CLAIMS, NODES
from parley.control.cluster import Key, done
from parley.kube.client import Client
from parley.kube.reflector import Reflector
from parley.simulate.anti_affinity import PODS, Pod
from parley.simulate.placement import Occupied
from parley.simulate.pod_claims import claim_names


class SchedulerCache:
    """The caches of one scheduler. `retry` hears of every pod that is worth an attempt."""

    def __init__(self, client: Client, name: str, retry: Callable[[Key], None]) -> None:
        self._name = name
        self._retry = retry
        self._assumed: dict[Key, str] = {}
        self._claims_changed = asyncio.Event()
        self._pods = Reflector(client, PODS, on_change=self._pod)
        self._nodes = Reflector(client, NODES, on_change=self._node)
        self._claims = Reflector(client, BUILTIN_CLAIMS, on_change=self._claim)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Fill the caches, and keep them as long as the tasks run."""
        reflectors = (self._nodes, self._claims, self._pods)
        for reflector in reflectors:
            tasks.create_task(reflector.run())
        for reflector in reflectors:
            await reflector.synced.wait()

    def pending(self, key: Key) -> Pod | None:
        """The pod, if it is this scheduler's to place now."""
        pod = self._pods.get(*key)
        return pod if pod is not None and key not in self._assumed and self._mine(pod) else None

    def _mine(self, pod: Pod) -> bool:
        return (
            not pod.spec.node_name
            and not done(pod)
            and pod.metadata.deletion_timestamp is None
            and pod.spec.scheduler_name in ("", self._name)
        )

    def claims_of(self, pod: Pod) -> list[BuiltinClaim] | None:
        """The pod's claims, or None while one does not exist."""
        names = claim_names(pod)
        claims = [self._claims.get(pod.metadata.namespace, name) for name in names]
        found = [claim for claim in claims if claim is not None]
        return found if len(found) == len(pod.spec.resource_claims) else None

    def claim(self, claim: BuiltinClaim) -> BuiltinClaim | None:
        """The claim as it is now, or None if it is gone or was replaced."""
        now = self._claims.get(claim.metadata.namespace, claim.metadata.name)
        return now if now is not None and now.metadata.uid == claim.metadata.uid else None

    async def claims_changed(self) -> None:
        """Return after the next change of any claim."""
        await self._claims_changed.wait()

    def nodes(self) -> dict[str, Occupied]:
        """All nodes with the pods that count for them, assumed ones included."""
        nodes = {node.metadata.name: Occupied(node) for node in self._nodes.values()}
        for pod in self._pods.values():
            name = pod.spec.node_name or self._assumed.get(_key(pod), "")
            if name in nodes and not done(pod):
                nodes[name].pods.append(pod)
        return nodes

    def assume(self, pod: Pod, node: str) -> None:
        """Count the pod for the node while it is being bound."""
        self._assumed[_key(pod)] = node

    def forget(self, pod: Pod) -> None:
        """The binding failed."""
        self._assumed.pop(_key(pod), None)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and self._mine(new):
            if old is None or _asks(old) != _asks(new):
                self._retry(_key(new))
            return
        for pod in (old, new):
            if pod is not None:
                self.forget(pod)
        if old is not None and not done(old) and (new is None or done(new)):
            self._retry_all()

    def _node(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or _offers(old) != _offers(new):
            self._retry_all()

    def _claim(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        self._claims_changed.set()
        self._claims_changed = asyncio.Event()
        changed = {(c.metadata.namespace, c.metadata.name) for c in (old, new) if c is not None}
        for pod in self._waiting():
            if any((pod.metadata.namespace, name) in changed for name in claim_names(pod)):
                self._retry(_key(pod))

    def _retry_all(self) -> None:
        for pod in self._waiting():
            self._retry(_key(pod))

    def _waiting(self) -> Iterator[Pod]:
        return (pod for pod in list(self._pods.values()) if self._mine(pod))


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, pod.metadata.name


def _asks(pod: Pod) -> object:
    return pod.metadata.uid, pod.metadata.labels, pod.spec, pod.status.resource_claim_statuses


def _offers(node: Node) -> object:
    return node.metadata.labels, node.spec, node.status.allocatable
