"""Pods that a scheduler asks about and that the cache does not have: their watch event is late, or they are gone.

They are answered like any others. But a pod that was gone before the call will never have a watch event, so it is
forgotten after a while, unless the cache has it by then. If a forgotten pod appears later, its scheduler has to be
made to try it again, because the rejection that it waits to change was forgotten.

All that is known of such a pod is what the caller says. So at most `MOST_UNKNOWN` are answered at a time, and none
that has the UID of a pod which the cache has under another name.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from parley.api.builtin import Pod
from parley.control.caches.cluster import ClusterCache
from parley.control.objects.pod import reference
from parley.sdk import PodReference

FORGET_SECONDS = 30.0
"""Longer than a pod's watch event takes, unless the API server can't be reached."""

MOST_UNKNOWN = 8192
"""How many such pods are answered, more than a scheduler asks about before Parley's watch shows them. The calls
about others get an error, so that the scheduler asks again after its back-off: nothing has to be remembered."""

MOST_FORGOTTEN = 8192
"""How many forgotten pods are tracked. One that is no longer tracked waits until its scheduler tries it again by
itself: kube-scheduler does after five minutes."""


class UnknownPods:
    """The pods that a scheduler asked about and that the cache does not have yet. After a while `forget` is called
    to drop all other state of such a pod."""

    def __init__(self, cluster: ClusterCache, forget: Callable[[PodReference], None]) -> None:
        self._cluster = cluster
        self._forget = forget
        self._asked: dict[PodReference, asyncio.TimerHandle] = {}
        self._forgotten: OrderedDict[PodReference, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._asked)

    def asked(self, pod: Pod) -> str:
        """Note that a scheduler asks about the pod. Returns why it can't be answered, "" if it can."""
        user = reference(pod)
        if self._cluster.has_pod(user):
            return ""
        if self._cluster.has_unbound_pod(user.uid):
            return f"UID {user.uid} in the scheduler's call is that of another pod"
        if (timer := self._asked.pop(user, None)) is not None:
            timer.cancel()
        elif len(self._asked) >= MOST_UNKNOWN:
            self._note_forgotten(user)
            return (
                f"Parley's watch of pods has not shown {MOST_UNKNOWN} pods that were asked about, which is the "
                "most at a time: the scheduler tries again"
            )
        self._asked[user] = asyncio.get_running_loop().call_later(FORGET_SECONDS, self._expire, user)
        return ""

    def is_another(self, pod: Pod) -> bool:
        """Whether the cache has another pod of that name, whose place in a line must not change."""
        known = self._cluster.pod((pod.metadata.namespace, pod.metadata.name))
        return known is not None and known.metadata.uid != pod.metadata.uid

    def was_forgotten(self, pod: Pod) -> bool:
        """Whether the pod, which the cache has now, was forgotten; true once for each pod."""
        user = reference(pod)
        if user not in self._forgotten:
            return False
        del self._forgotten[user]
        return True

    def _expire(self, user: PodReference) -> None:
        del self._asked[user]
        if self._cluster.has_pod(user):
            return
        self._forget(user)
        self._note_forgotten(user)

    def _note_forgotten(self, user: PodReference) -> None:
        self._forgotten[user] = None
        if len(self._forgotten) > MOST_FORGOTTEN:
            self._forgotten.popitem(last=False)
