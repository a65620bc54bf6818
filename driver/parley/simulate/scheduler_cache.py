"""The cache of the simulated kube-scheduler: pods, nodes and claims, and the pods that are being bound."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import Any

from parley.api.builtin import BuiltinClaim, Node
from parley.api.resources import BUILTIN_CLAIMS, NODES
from parley.control.objects.pod import is_terminal
from parley.kube.cache import Key
from parley.kube.client import Client
from parley.kube.informer import Informer
from parley.simulate.anti_affinity import PODS, Pod
from parley.simulate.node_table import NodeTable
from parley.simulate.pod_claims import claim_names
from parley.simulate.scheduling_queue import ClusterEvent, RequeueFilter


class SchedulerCache:
    """The cache of one scheduler. `requeue` gets the waiting pods, and the events that concern them.

    `extended`: as with an extender and without the DynamicResources plugin. Claims are not watched then, and every
    event of pods and nodes concerns all waiting pods. Upstream, events of claims do, too; Parley's extender must
    not depend on that. `older`: as in Kubernetes 1.36, gated pods from the initial list are not counted on their
    nominated nodes until they change.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        requeue: RequeueFilter,
        *,
        extended: bool = False,
        older: bool = False,
    ) -> None:
        self._name = name
        self._requeue = requeue
        self._extended = extended
        self._older = older
        self._assumed: set[str] = set()
        self._table = NodeTable()
        self._waiting: dict[Key, Pod] = {}
        self._by_claim: defaultdict[Key, dict[Key, None]] = defaultdict(dict)
        self._pods = Informer(client, PODS, on_change=self._pod)
        self._nodes = Informer(client, NODES, on_change=self._node)
        self._claims = Informer(client, BUILTIN_CLAIMS, on_change=self._claim)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start the informers in the task group; returns when they are synced."""
        claims = () if self._extended else (self._claims,)
        informers: tuple[Informer[Any], ...] = (self._nodes, *claims, self._pods)
        for informer in informers:
            tasks.create_task(informer.run())
        for informer in informers:
            await informer.synced.wait()

    def pending(self, key: Key) -> Pod | None:
        """The pod, if this scheduler has to schedule it now."""
        pod = self._pods.get(*key)
        if pod is None or pod.metadata.uid in self._assumed or not self._is_responsible(pod):
            return None
        return pod

    def _is_responsible(self, pod: Pod) -> bool:
        return (
            not pod.spec.node_name
            and not is_terminal(pod)
            and pod.metadata.deletion_timestamp is None
            and pod.spec.scheduler_name == self._name
        )

    def claims_of(self, pod: Pod) -> list[BuiltinClaim] | None:
        """The pod's claims, or None while one does not exist."""
        names = claim_names(pod)
        claims = [self._claims.get(pod.metadata.namespace, name) for name in names]
        found = [claim for claim in claims if claim is not None]
        return found if len(found) == len(pod.spec.resource_claims) else None

    def claim_named(self, claim: BuiltinClaim) -> BuiltinClaim | None:
        """The current claim of that name, or None. As upstream, its UID is not compared."""
        return self._claims.get(claim.metadata.namespace, claim.metadata.name)

    def nodes(self) -> NodeTable:
        """All nodes with the pods counted on them, including assumed ones."""
        return self._table

    def assume(self, pod: Pod, node: str) -> None:
        """Count the pod on the node while it is being bound."""
        self._assumed.add(pod.metadata.uid)
        self._table.place(pod, node)

    def forget(self, pod: Pod) -> None:
        """Remove an assumed pod whose binding failed."""
        if pod.metadata.uid in self._assumed:
            self._assumed.discard(pod.metadata.uid)
            self._table.remove(pod.metadata.uid)

    def pod_left(self) -> None:
        """Requeue pods that wait for resources: those of a pod are free again."""
        self._notify_waiting(ClusterEvent.POD_LEFT)

    def _notify_waiting(self, event: ClusterEvent, priority: float = inf) -> None:
        for key, pod in list(self._waiting.items()):
            if (pod.spec.priority or 0) <= priority:
                self._requeue.event(key, event)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        self._nominate(old, new)
        if new is not None and self._is_responsible(new):
            self._track_waiting(old, new)
            if old is None or old.metadata.uid != new.metadata.uid:
                self._requeue.pod_added(_key(new))
            else:
                for event in _events(old, new):
                    self._requeue.event(_key(new), event)
            return
        counted = old is not None and old.metadata.uid in self._assumed
        self._leave_queue(old, new)
        ended = old is not None and not is_terminal(old) and (new is None or is_terminal(new))
        on_node = any(pod is not None and pod.spec.node_name for pod in (old, new))
        if ended or counted or on_node:
            self._notify_waiting(ClusterEvent.POD_LEFT if ended else ClusterEvent.OTHER)

    def _nominate(self, old: Pod | None, new: Pod | None) -> None:
        """Update the nominations of waiting pods. When a nomination is removed, pods of no higher priority are
        notified, including the pod itself, unless that is being bound, on any node
        (`updatePodInSchedulingQueue`)."""
        before = old.status.nominated_node_name if old is not None and self._is_responsible(old) else ""
        after = new.status.nominated_node_name if new is not None and self._is_responsible(new) else ""
        if old is not None and before and (new is None or new.metadata.uid != old.metadata.uid or before != after):
            self._table.nominate(old, "")
            is_binding = new is not None and new.metadata.uid in self._assumed and self._is_responsible(new)
            if not is_binding and (new is None or not new.spec.node_name):
                self._notify_waiting(ClusterEvent.POD_LEFT, old.spec.priority or 0)
        is_ignored = self._older and old is None and new is not None and bool(new.spec.scheduling_gates)
        if new is not None and after and not is_ignored:
            self._table.nominate(new, after)

    def _track_waiting(self, old: Pod | None, new: Pod | None) -> None:
        """Track the waiting pod, and index it by the claims whose changes concern it."""
        if old is not None:
            for name in claim_names(old):
                self._by_claim[old.metadata.namespace, name].pop(_key(old), None)
            if new is None:
                self._waiting.pop(_key(old), None)
                self._requeue.forget(_key(old))
        if new is not None:
            self._waiting[_key(new)] = new
            for name in claim_names(new):
                self._by_claim[new.metadata.namespace, name][_key(new)] = None

    def _leave_queue(self, old: Pod | None, new: Pod | None) -> None:
        """Handle a pod that is bound, terminal, deleted, or another scheduler's."""
        for pod in (old, new):
            if pod is not None:
                self._track_waiting(pod, None)
                self._assumed.discard(pod.metadata.uid)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._table.remove(old.metadata.uid)
        if new is not None and new.spec.node_name and not is_terminal(new):
            self._table.place(new, new.spec.node_name)
        elif new is not None:
            self._table.remove(new.metadata.uid)

    def _node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._table.put(new)
        elif old is not None:
            self._table.drop(old.metadata.name)
        for event in _node_events(old, new):
            self._notify_waiting(event)

    def _claim(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        claim = new or old
        if claim is not None and _status(old) != _status(new):
            for key in list(self._by_claim.get((claim.metadata.namespace, claim.metadata.name), ())):
                self._requeue.event(key, ClusterEvent.CLAIM)


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, pod.metadata.name


def _status(claim: BuiltinClaim | None) -> object:
    """The part of a claim whose changes concern pods (isSchedulableAfterClaimChange)."""
    return (claim.metadata.uid, claim.metadata.deletion_timestamp, claim.status) if claim is not None else None


def _events(old: Pod, new: Pod) -> Sequence[ClusterEvent]:
    """The events of an update of a waiting pod (PodSchedulingPropertiesChange)."""
    before, after = old.spec, new.spec
    changed = {
        ClusterEvent.POD_LABELS: old.metadata.labels != new.metadata.labels,
        ClusterEvent.POD_GATES: bool(before.scheduling_gates and not after.scheduling_gates),
        ClusterEvent.POD_TOLERATIONS: len(before.tolerations) != len(after.tolerations),
        ClusterEvent.POD_CLAIMS: old.status.resource_claim_statuses != new.status.resource_claim_statuses,
    }
    return [event for event, is_so in changed.items() if is_so] or [ClusterEvent.OTHER]


def _node_events(old: Node | None, new: Node | None) -> Sequence[ClusterEvent]:
    """The events of a node's change; heartbeats make none (NodeSchedulingPropertiesChange)."""
    if old is None:
        return [ClusterEvent.NODE_ADDED]
    if new is None:
        return [ClusterEvent.OTHER]
    changed = {
        ClusterEvent.NODE_LABELS: old.metadata.labels != new.metadata.labels,
        ClusterEvent.NODE_TAINTS: old.spec != new.spec,
        ClusterEvent.NODE_ALLOCATABLE: old.status.allocatable != new.status.allocatable,
        ClusterEvent.OTHER: _other_fields(old) != _other_fields(new),
    }
    return [event for event, is_so in changed.items() if is_so]


def _other_fields(node: Node) -> object:
    return node.metadata.annotations, [(c.type, c.status) for c in node.status.conditions]
