"""Pods that a scheduler asks about and the cache does not have: news of them are late, or they are gone already.

They are answered like any. But nobody will ever tell that a pod is gone which was gone before it was asked
about: so what is remembered of such a pod is forgotten after a while, unless the cache has it by then.
"""

import asyncio
from collections.abc import Callable

from parley.api.builtin import Pod
from parley.control.cluster import Cluster, reference
from parley.sdk import PodReference

FORGET_SECONDS = 30.0
"""More than news of a pod take, unless the API server is out of reach; then its scheduler asks again."""


class UnknownPods:
    """All of them. `forget` drops what is remembered of a pod."""

    def __init__(self, cluster: Cluster, forget: Callable[[PodReference], None]) -> None:
        self._cluster = cluster
        self._forget = forget
        self._asked: dict[PodReference, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def asked(self, pod: Pod) -> None:
        """A scheduler asks about the pod."""
        user = reference(pod)
        if self._is_known(user):
            return
        if (timer := self._asked.pop(user, None)) is not None:
            timer.cancel()
        self._asked[user] = asyncio.get_running_loop().call_later(FORGET_SECONDS, self._look, user)

    def is_another(self, pod: Pod) -> bool:
        """Whether the cache has another pod of that name, whose place in a line is not to be touched."""
        known = self._cluster.pod((pod.metadata.namespace, pod.metadata.name))
        return known is not None and known.metadata.uid != pod.metadata.uid

    def _look(self, user: PodReference) -> None:
        del self._asked[user]
        if not self._is_known(user):
            self._forget(user)

    def _is_known(self, user: PodReference) -> bool:
        pod = self._cluster.pod((user.namespace, user.name))
        return pod is not None and pod.metadata.uid == user.uid
