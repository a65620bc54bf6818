"""Posts bindings of pods in such a way that it is known afterwards whether the pod is bound.

A binding has the pod's UID and, if anything was allocated, its resourceVersion. To make sure that a binding with
an unknown outcome does not land later, the pod is changed, after which the API server refuses that binding.
"""

import asyncio
from math import inf

from parley.api.builtin import Pod
from parley.api.names import GROUP
from parley.api.resources import PODS
from parley.control.live import live_pod
from parley.control.objects.pod import is_terminal, reference
from parley.kube.client import Client, Conflict, Invalid, NotFound, OutcomeUnknown
from parley.kube.clock import Clock, rfc3339_micro
from parley.scheduler.brief_nomination import nominate_briefly
from parley.scheduler.pods import now
from parley.sdk import PodReference

LOOK_AGAIN = f"{GROUP}/look-again"
"""An annotation whose change makes a scheduler try the pod again, and voids bindings that are in flight."""

_TRIES = 5
"""How often to post the binding of a pod that keeps changing."""


class NotBound(Exception):
    """Raised when the pod is not bound to the node, and no binding posted by this process can still bind it."""


class Posting:
    """Posts bindings, and changes pods whose scheduler has to try them again. Tracks the pods whose binding has an
    unknown outcome, and those that it has nominated and may have left so."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._doubtful: set[PodReference] = set()
        self._settled: set[PodReference] = set()
        self._nominated: set[PodReference] = set()
        self._touches = 0

    def __len__(self) -> int:
        return len(self._doubtful | self._settled | self._nominated)

    def check_lease(self) -> None:
        """Raise LeaseLost if this process may not lead any more."""
        self._client.check_lease()

    async def bind(self, pod: Pod, node: str, *, exactly: bool, until: float = inf) -> None:
        """Bind the pod; with `exactly` only at the given resourceVersion, because something is allocated for it.
        Posts nothing after the time `until` (event loop's clock). Raises NotBound.

        Raises OutcomeUnknown if that can't even be read; call `void_bindings` then before anything is freed.
        """
        version = pod.metadata.resource_version if exactly else ""
        for _ in range(_TRIES):
            live = await self._post(pod, node, version)
            if live is None or live.spec.node_name == node:
                return
            if live.spec.node_name:
                raise NotBound(f"the pod is bound to node {live.spec.node_name} already")
            if is_terminal(live) or live.metadata.deletion_timestamp:
                raise NotBound("the pod has ended, or is being deleted")
            if now() >= until:
                raise NotBound("the API server answered no binding of the pod in time: the scheduler tries again")
            version = live.metadata.resource_version if exactly else ""
        raise NotBound("others keep changing the pod: the scheduler tries again")

    async def _post(self, pod: Pod, node: str, version: str) -> Pod | None:
        """Post the binding once. Returns None if that bound the pod, otherwise the pod as it is now."""
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                **({"resourceVersion": version} if version else {}),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create_subresource(PODS, meta.name, "binding", body, meta.namespace)
        except asyncio.CancelledError:
            self._doubtful.add(reference(pod))
            raise
        except (Conflict, OutcomeUnknown) as error:
            if isinstance(error, OutcomeUnknown):
                self._doubtful.add(reference(pod))
            return await self._live(pod)
        except NotFound:
            raise NotBound("the pod is gone") from None
        return None

    async def _live(self, pod: Pod) -> Pod:
        try:
            live = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except NotFound:
            raise NotBound("the pod is gone") from None
        if live.metadata.uid != pod.metadata.uid:
            raise NotBound("the pod is gone, and another pod has its name")
        return live

    async def check_exists(self, pod: PodReference) -> None:
        """Raise NotBound if the pod is gone. Raises what a client raises."""
        if await live_pod(self._client, pod) is None:
            raise NotBound("the pod is gone")

    async def void_bindings(self, pod: PodReference, *, doubtful: bool = False) -> None:
        """Make sure that no binding posted earlier can still land.

        `doubtful`: an earlier process may have posted one, which is voided once; those of this process are known.
        Voiding changes the pod, after which its scheduler tries it again.
        """
        if pod in self._doubtful or (doubtful and pod not in self._settled):
            await self.touch(pod)
            self._doubtful.discard(pod)
            self._settled.add(pod)

    async def touch(self, pod: PodReference) -> None:
        """Change the pod, which makes its scheduler try it again if Parley rejected any node before."""
        self._touches += 1  # so that a second change within one tick of the clock differs
        marked = {LOOK_AGAIN: f"{rfc3339_micro(self._clock())} {self._touches}"}
        body = {"metadata": {"uid": pod.uid, "annotations": marked}}
        try:
            await self._client.patch(PODS, pod.name, body, pod.namespace)
        except (NotFound, Invalid):
            pass  # it is gone, or another pod has its name: nothing can be bound any more

    async def nominate_briefly(self, pod: Pod, node: str) -> None:
        """Make the scheduler try the pod again even if its own filters rejected it on every node. Raises Conflict
        if it was nominated or bound since it was read as `pod`."""
        user = reference(pod)
        interrupted = user in self._nominated
        self._nominated.add(user)
        try:
            await nominate_briefly(self._client, pod, node)
        except Conflict:
            if not interrupted:
                self._nominated.discard(user)
            raise
        self._nominated.discard(user)

    def nominated_by_scheduler(self, pod: Pod) -> bool:
        """Whether the pod has a nomination that is not one of this process whose end may have failed."""
        return bool(pod.status.nominated_node_name) and reference(pod) not in self._nominated

    def forget(self, pod: PodReference) -> None:
        """Forget the pod, which is gone or known to be bound."""
        self._doubtful.discard(pod)
        self._settled.discard(pod)
        self._nominated.discard(pod)
