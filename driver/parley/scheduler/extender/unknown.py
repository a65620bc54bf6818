"""Pods that a scheduler asks about and the cache does not have: their watch event is late, or they are gone.

They are answered like any. But no event will ever come for a pod which was gone before it was asked
about: so what is remembered of such a pod is forgotten after a while, unless the cache has it by then. One that
turns up later was answered by something that is forgotten: its scheduler has to be made to ask again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from parley.api.builtin import Pod
from parley.control.caches.cluster import ClusterCache
from parley.control.objects.pod import reference
from parley.sdk import PodReference

FORGET_SECONDS = 30.0
"""Longer than a pod's event takes, unless the API server is out of reach."""

_MOST = 8192
"""So many pods are known to have been forgotten."""


class UnknownPods:
    """The pods that a scheduler asked about and that the cache does not have yet. After a while `forget` is called
    to drop what is remembered of one."""

    def __init__(self, cluster: ClusterCache, forget: Callable[[PodReference], None]) -> None:
        self._cluster = cluster
        self._forget = forget
        self._asked: dict[PodReference, asyncio.TimerHandle] = {}
        self._forgotten: OrderedDict[PodReference, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._asked)

    def asked(self, pod: Pod) -> None:
        """A scheduler asks about the pod."""
        user = reference(pod)
        if self._cluster.has_pod(user):
            return
        if (timer := self._asked.pop(user, None)) is not None:
            timer.cancel()
        self._asked[user] = asyncio.get_running_loop().call_later(FORGET_SECONDS, self._look, user)

    def is_another(self, pod: Pod) -> bool:
        """Whether the cache has another pod of that name, whose place in a line is not to be touched."""
        known = self._cluster.pod((pod.metadata.namespace, pod.metadata.name))
        return known is not None and known.metadata.uid != pod.metadata.uid

    def turned_up(self, pod: Pod) -> bool:
        """Whether the pod, which the cache has, was forgotten; true once."""
        user = reference(pod)
        if user not in self._forgotten:
            return False
        del self._forgotten[user]
        return True

    def _look(self, user: PodReference) -> None:
        del self._asked[user]
        if self._cluster.has_pod(user):
            return
        self._forget(user)
        self._forgotten[user] = None
        if len(self._forgotten) > _MOST:
            self._forgotten.popitem(last=False)
