"""Pods that use an allocated claim unknown to the ledger: kube-scheduler reserves allocated claims without Parley.

Before a claim is released, all pods that may run with it have to be known. The cache may be behind, and a
scheduler that gets no answer to its binding removes the reservation even if the pod is bound.
"""

import asyncio
from collections.abc import Collection
from itertools import islice

from parley.api.builtin import BuiltinClaim, Pod
from parley.control.allocation import Busy
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.indexes import named_claims
from parley.control.holding import Holding
from parley.control.ledger import Ledger
from parley.control.live import live_pod
from parley.control.objects.mirror import MAX_USERS, can_never_reserve, is_older, stands_for_another
from parley.control.objects.pod import is_done, reference
from parley.kube.client import Client
from parley.sdk import PodReference

_REMEMBERED = 600.0
"""Seconds for which a pod that is gone is remembered: no watch of claims is that far behind pods."""


class UnseenUsers:
    """Finds pods that may run with a holding although the ledger does not have them as its users."""

    def __init__(self, client: Client, cluster: ClusterCache, ledger: Ledger) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = ledger
        self._gone: dict[str, float] = {}
        """When the informer showed that pods are gone, by UID, oldest first."""

    def mirror_changed(self, old: BuiltinClaim, new: BuiltinClaim) -> None:
        """Note the pods that may be or have been bound without the cache showing it, now that the mirror changed.

        These are pods that have a reservation before the cache shows them, and pods without a node whose
        reservation somebody else removed. After a list, all pods that name the claim: reservations may have been
        made and removed between two lists.
        """
        key = (new.metadata.namespace, new.metadata.name)
        holding = self._ledger.of_claim(*key)
        if holding is None:
            return
        before, after = ({user.uid: user.name for user in one.status.reserved_for} for one in (old, new))
        added = [PodReference(key[0], name, uid) for uid, name in after.items() if uid not in before]
        dropped = [PodReference(key[0], name, uid) for uid, name in before.items() if uid not in after]
        doubtful = [user for user in added if not self._cluster.has_pod(user) and user.uid not in self._gone]
        doubtful += [user for user in dropped if self._cluster.has_pod(user)]
        if self._cluster.listing_mirrors:
            doubtful += [reference(pod) for pod in self._cluster.pods_naming(key)]
        latest_first = dict.fromkeys([*doubtful, *holding.unseen_users.values()])
        known = (user for user in latest_first if self._is_doubtful(holding, user))
        # no more pods than these can have reservations at a time; of earlier ones the cache shows more by now
        holding.unseen_users = {user.uid: user for user in islice(known, MAX_USERS)}

    def pod_gone(self, pod: Pod) -> None:
        """Handle the event that the pod is gone, after all others about it. Its reservation may show up later."""
        time = asyncio.get_running_loop().time()
        claims = named_claims(pod)
        if claims:
            self._gone[pod.metadata.uid] = time
        while self._gone and next(iter(self._gone.values())) < time - _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        for key in claims:
            holding = self._ledger.of_claim(*key)
            if holding is not None:
                holding.unseen_users.pop(pod.metadata.uid, None)

    def _is_doubtful(self, holding: Holding, user: PodReference) -> bool:
        """Whether the cache shows the pod without a node, or not at all, and the pod is not a user."""
        pod = self._cluster.pod_with_uid(user)
        seen = pod is not None and (bool(pod.spec.node_name) or is_done(pod))
        return not seen and user.uid not in holding.pods

    async def nodes_of_unseen(self, holding: Holding) -> Collection[str]:
        """The nodes that may have the holding prepared for pods that were bound and deleted unseen; asked before
        it ends.

        Raises Busy if the cache has yet to show that a pod was bound there, or is gone: then it may be a user.
        """
        nodes: Collection[str] = ()
        for user in list(holding.unseen_users.values()):
            if not self._is_doubtful(holding, user):
                continue
            pod = await live_pod(self._client, user)
            if pod is None and not self._cluster.has_pod(user):
                nodes = holding.nodes or ()
            elif pod is None or self._is_bound_there(holding, pod):
                raise Busy
            else:
                holding.unseen_users.pop(user.uid, None)
        return nodes

    def join_known(self, holding: Holding) -> list[str]:
        """Add the pods to the holding's users that the cache shows with a reservation, or as bound.

        Returns the nodes of pods that can't get a reservation any more, but may have been started before. Raises
        Busy if the cache has yet to show a pod, or that its reservation is removed.
        """
        key = (holding.namespace, holding.claim)
        mirror = self._cluster.mirror(key)
        later = mirror if mirror is not None and stands_for_another(mirror, holding.uid) else None
        """The built-in claim of that name if it is another claim's: the holding's own was removed by force."""
        for user in mirror.status.reserved_for if mirror is not None and later is None else ():
            pod = self._cluster.pod((holding.namespace, user.name))
            if pod is not None and pod.metadata.uid == user.uid and not is_done(pod):
                self._ledger.join(holding, reference(pod))
            elif user.uid not in holding.pods:
                raise Busy  # not in the cache yet, or its reservation is about to be removed: either is an event
        doubtful = []
        for pod in self._cluster.pods_naming(key) if holding.shareable else ():
            if not self._may_run(holding, pod) or (later is not None and is_older(later, pod)):
                continue
            if mirror is not None and can_never_reserve(mirror, pod):
                doubtful.append(pod.spec.node_name)
            elif len(holding.pods) < MAX_USERS:
                self._ledger.join(holding, reference(pod))
        return doubtful

    def _may_run(self, holding: Holding, pod: Pod) -> bool:
        """Whether the pod is bound to a node where it may run with the holding, and has not ended."""
        return self._is_bound_there(holding, pod) and not is_done(pod)

    def _is_bound_there(self, holding: Holding, pod: Pod) -> bool:
        return bool(pod.spec.node_name) and holding.may_run_on(pod.spec.node_name)

    def nodes_of_missed(self, holding: Holding) -> Collection[str]:
        """The nodes of pods that may have used the holding without any event: they, or their reservations, were
        created and deleted between two lists, or while no controller led."""
        listed_since = holding.shareable and holding.lists_read != self._cluster.lists
        return holding.nodes or () if listed_since else ()
