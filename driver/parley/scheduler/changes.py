"""Event handlers of the informers: each turns a change into the keys of what it may affect. Decides nothing.

Events are handled from the moment when the state is restored; the controller enqueues what the caches had before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Set

from parley.api.builtin import (
    BuiltinClaim,
    BuiltinTemplate,
    DeviceClass,
    Namespace,
    Node,
    Pod,
    ResourceSlice,
)
from parley.api.models import ClaimRelease, PodScheduling, ResourceClaim, ResourceClaimTemplate, ResourceClass
from parley.control.caches.indexes import named_claims
from parley.control.claims.named import failure_of
from parley.control.claims.on_demand import shared_topic
from parley.control.claims.podclaims import NODES, PREEMPTION, ROOM
from parley.control.holding import Holding
from parley.control.limits import topic as limit_topic
from parley.control.objects.mirror import is_mirror, owner_pod
from parley.control.objects.pod import is_done, is_terminal, reference, was_tried
from parley.control.objects.standin import is_orphan, is_stand_in
from parley.control.publishing.podscheduling import Publisher
from parley.control.release.deallocation import Deallocator
from parley.control.release.releases import out_of_service
from parley.control.restored_units import count_again, count_again_for
from parley.control.restoring import adopt_record, count_foreign, taken_by_foreign
from parley.control.state import State
from parley.control.wakeups import Wakeups
from parley.kube.cache import Key
from parley.negotiation.stranded import unavailable
from parley.negotiation.waiting import Topic
from parley.scheduler.differences import Claim, claim_differs, node_differs
from parley.scheduler.pods import Pods
from parley.scheduler.queues import Queues
from parley.scheduler.reconciler import Reconciler
from parley.sdk import PodReference
from parley.sdk.recorded import driver_of_record


class Changes:
    """The listener of the cluster's caches: adds the keys that an event may affect to the work queues, and wakes
    topics."""

    def __init__(
        self,
        queues: Queues,
        state: State,
        wakeups: Wakeups,
        pods: Pods,
        reconciler: Reconciler,
        deallocator: Deallocator,
        publisher: Publisher,
    ) -> None:
        self._queues = queues
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._wakeups = wakeups
        self._pods = pods
        self._reconciler = reconciler
        self._deallocator = deallocator
        self._releases = deallocator.releases
        self._publisher = publisher

    def enqueue_users(self, holding: Holding) -> None:
        """Enqueue the pods that use the holding."""
        for user in holding.pods.values():
            self._queues.pods.add((user.namespace, user.name))

    def enqueue(self, pod: Pod) -> None:
        """Enqueue the pod, if it has claims, and the nodes where it uses or holds reserved room."""
        if pod.spec.resource_claims:
            self._enqueue_new((pod.metadata.namespace, pod.metadata.name))
        self._enqueue_room_of(pod)

    def _enqueue_room_of(self, pod: Pod) -> None:
        for key in named_claims(pod):
            holding = self._ledger.of_claim(*key)
            if holding is not None and holding.is_nominated:
                self._queues.enqueue_reservations(holding.node)
        if (node := self._cluster.reserved_on(pod)) is not None:
            self._queues.enqueue_reservations(node)
        nodes = {pod.spec.node_name, *(holding.node for holding in self._ledger.of_pod(reference(pod)))}
        for node in filter(self._yields, nodes if pod.spec.resource_claims else ()):
            self._queues.enqueue_reservations(node)

    def _yields(self, node: str) -> bool:
        """Whether reservation pods on the node may have to yield their room to other pods there."""
        return any(holding.is_nominated and holding.yields_to for holding in self._ledger.reserving(node))

    def _enqueue_new(self, key: Key) -> None:
        self._pods.added(key)
        self._queues.pods.add(key)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self._reconciler.pod_updated(new)
            if old is not None and is_terminal(new) and not is_terminal(old):
                self._reconciler.pod_ended(new)
            if old is None or self._pod_differs(old, new):
                self.enqueue(new)
            elif was_tried(new) and not was_tried(old):
                self._enqueue_room_of(new)
        if old is None:
            return
        same = new if new is not None and new.metadata.uid == old.metadata.uid else None
        if same is None:
            self._reconciler.pod_gone(old)
            self.enqueue(old)
            for claim in self._cluster.stand_ins(reference(old)):
                self._queues.claims.add((claim.metadata.namespace, claim.metadata.name))
        if not (old.spec.node_name or is_done(old)) and (same is None or is_done(same) or same.spec.node_name):
            self._stopped_awaiting_room(old, has_room=same is not None and not is_done(same))
        if same is not None and same.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
            self._pods.pod_terminating(same.spec.node_name)
        if old.spec.node_name and not is_terminal(old) and (same is None or is_terminal(same)):
            self._wakeups.usage_reduced(NODES, (old.spec.node_name,))  # a scheduler may judge the node differently
            self._enqueue_reservations(old.spec.node_name)

    def _stopped_awaiting_room(self, pod: Pod, *, has_room: bool) -> None:
        """Wake the pods to which the pod's claims yield room: it no longer needs it. If it has room now it took
        that from one of several claims, each of which kept others out for it. It may name hundreds."""
        named = (self._ledger.of_claim(*key) for key in named_claims(pod))
        nodes = Counter(holding.node for holding in named if holding is not None and holding.yields_to)
        least = 2 if has_room else 1
        if yielding := [node for node, claims in nodes.items() if claims >= least]:
            self._pods.wake(ROOM, yielding)

    def usage_reduced(self, node: str) -> None:
        """A pod no longer counts towards the node's usage."""
        self._wakeups.usage_reduced(ROOM, (node,))
        self._enqueue_reservations(node)

    def _enqueue_reservations(self, node: str) -> None:
        """Enqueue the node if room is held there: users may find what they request beside that now."""
        if any(holding.is_nominated for holding in self._ledger.reserving(node)):
            self._queues.enqueue_reservations(node)

    def _pod_differs(self, old: Pod, new: Pod) -> bool:
        """Whether anything changed that a decision depends on. Conditions do not count, nor do status entries for
        claims that were known before: each reconciliation may ask drivers about every node."""
        return (
            old.metadata.uid != new.metadata.uid
            or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
            or old.metadata.labels != new.metadata.labels
            or old.spec != new.spec
            or old.status.phase != new.status.phase
            or old.status.nominated_node_name != new.status.nominated_node_name
            or self._names_other_claims(old, new)
        )

    def _names_other_claims(self, old: Pod, new: Pod) -> bool:
        """Whether the pod's status names a generated claim that was not known before."""
        if old.status.resource_claim_statuses == new.status.resource_claim_statuses:
            return False
        entries = [entry.name for entry in new.spec.resource_claims]
        before, after = ([self._cluster.generated.of_entry(pod, entry) for entry in entries] for pod in (old, new))
        return before != after

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and not node_differs(old, new):
            return
        name = next(node.metadata.name for node in (old, new) if node is not None)
        self._wakeups.wake(NODES, (name,))
        self._enqueue_reservations(name)
        if old is not None and out_of_service(new):
            self._releases.node_lost(old.metadata.name)
        elif new is not None and out_of_service(old):
            self._releases.node_back(new.metadata.name)
        if unavailable(old) != unavailable(new):
            self._enqueue_claims_on(name)

    def _enqueue_claims_on(self, node: str) -> None:
        """Enqueue the named claims on a node that takes no pods any more, or takes pods again."""
        for holding in self._ledger.on(node):
            if holding.named:
                self._queues.claims.add((holding.namespace, holding.claim))

    def release_changed(self, old: ClaimRelease | None, new: ClaimRelease | None) -> None:
        """A node's plugin may have answered the ClaimRelease."""
        self._releases.changed(old, new)

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A node plugin may have been added or removed."""
        if old is None or new is None:
            nodes = [slice_.spec.node_name for slice_ in (old, new) if slice_ is not None]
            self._wakeups.wake(NODES, nodes if all(nodes) else None)

    def mirror_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if (claim := new or old) is None:
            return
        key = (claim.metadata.namespace, claim.metadata.name)
        if old is not None and (_is_replaced(old, new) or _is_unallocated(new)):
            self._releases.mirror_lost(old)
        if not is_mirror(claim):
            self._foreign_changed(old, new)
            self._wakeups.wake(("claim", *key))
            if old is None and (owner := owner_pod(claim)) is not None:
                self._queues.pods.add((owner.namespace, owner.name))  # it may name a template of Parley's
            return
        if driver := self._state.moved.mirror_changed(old, new):  # also if the mirror has lost its owner
            self._wakeups.wake(("driver", driver))
        if (owner := owner_pod(claim)) is not None:
            (self._enqueue_new if old is None else self._queues.pods.add)((owner.namespace, owner.name))
            if old is None:
                count_again_for(self._state, owner)
            if (stand_in := self._cluster.claim(key)) is not None and is_orphan(stand_in):
                self._queues.claims.add(key)  # it is deleted once the mirror is not reserved any more
        else:
            self._deallocator.mirror_changed(old, new)
            if self._is_relevant(old, new):
                self._enqueue_claim(key)

    def _is_relevant(self, old: Claim | None, new: Claim | None) -> bool:
        """Whether the change may affect pods. Some wait until the cache shows one of Parley's own writes."""
        is_stale = self._cluster.own_writes.is_stale
        return old is None or new is None or claim_differs(old, new) or is_stale(old.metadata)

    def _enqueue_claim(self, key: Key, gone: ResourceClaim | None = None) -> None:
        """Enqueue the named claim and the pods that use it or wait for it, or for a successor of a `gone` one."""
        if (holding := self._ledger.of_claim(*key)) is not None:
            self.enqueue_users(holding)
        if (expecting := self._ledger.expected_for(*key)) is not None:
            self._queues.pods.add((expecting.namespace, expecting.name))
        claim = gone or self._cluster.claim(key)
        if claim is not None and is_stand_in(claim):
            for owner in claim.metadata.owner_references:
                self._queues.pods.add((claim.metadata.namespace, owner.name))
        self._wakeups.wake(("claim", *key))

    def _foreign_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        """Count the devices of a built-in claim that isn't Parley's, which may have been allocated anew unseen."""
        had, has = (taken_by_foreign(self._drivers, claim) for claim in (old, new))
        changed = [name for name, devices in had.items() if devices != has.get(name)]
        if old is not None:
            for name in changed:
                self._drivers[name].forget(old.metadata.uid)
        if new is not None:
            count_foreign(self._drivers, new)
        for name in changed:
            self._wakeups.wake(("driver", name))

    def template_mirror_changed(self, old: BuiltinTemplate | None, new: BuiltinTemplate | None) -> None:
        if (mirror := new or old) is not None:
            key = (mirror.metadata.namespace, mirror.metadata.name)
            self._queues.templates.add(key)
            self._wakeups.wake(("template", *key))

    def class_changed(self, old: ResourceClass | None, new: ResourceClass | None) -> None:
        if (class_ := new or old) is None:
            return
        if old is not None and new is not None and old.revision == new.revision:
            return  # only its status changed, on which no decision depends
        count_again(self._state, class_.metadata.name)
        self._note_undone(*self._ledger.undone_later)
        self._wakeups.wake(("class", class_.metadata.name))
        if old is None or new is None or old.preemption != new.preemption:
            self._wakeups.wake(PREEMPTION)
        self._enqueue_claims_of({class_.metadata.name})
        for claim in self._claims_of({class_.metadata.name}) if old is None else ():
            self._adopt(claim)

    def _adopt(self, claim: ResourceClaim) -> None:
        """Take over what a standalone driver has allocated, unless the cache is older than a write of ours."""
        if driver_of_record(claim) not in self._drivers and not self._cluster.own_writes.is_stale(claim.metadata):
            adopt_record(self._state, claim)

    def _enqueue_claims_of(self, classes: Set[str], namespace: str = "") -> None:
        """Enqueue the named claims of these classes, in that namespace only if one is given."""
        for claim in self._claims_of(classes, namespace):
            self._queues.claims.add((claim.metadata.namespace, claim.metadata.name))

    def _claims_of(self, classes: Set[str], namespace: str = "") -> Iterator[ResourceClaim]:
        for claim in self._cluster.claims():
            if claim.spec.resource_class_name in classes and namespace in ("", claim.metadata.namespace):
                yield claim

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """Different limits may apply to a namespace whose labels changed, also to claims that were accepted."""
        namespace = new or old
        if namespace is None or (old is not None and new is not None and _labels(old) == _labels(new)):
            return
        name = namespace.metadata.name
        classes = {class_.metadata.name for class_ in self._cluster.classes() if class_.selects_namespaces}
        for class_name in classes:
            self._wakeups.wake(limit_topic(class_name, name))
        if classes and old is not None and new is not None:  # else nothing was accepted by other labels
            self._enqueue_claims_of(classes, name)

    def volume_changed(self, claim: Key) -> None:
        """The PersistentVolumeClaim may restrict its pods to other nodes now."""
        for pod in self._cluster.pods_with_volume(claim):
            if not pod.spec.node_name:
                self.enqueue(pod)

    def device_class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """A node may need less of its own resources for a pod now."""
        if old is None or new is None or old.spec != new.spec:
            self._pods.wake(NODES)

    def parameters_read(self, topic: Topic) -> None:
        """An object from which claims or classes take their parameters was read."""
        for claim in self._cluster.claims_referring(topic):
            self._queues.claims.add((claim.metadata.namespace, claim.metadata.name))
        if classes := self._cluster.classes_referring(topic):
            for name in classes:
                count_again(self._state, name)
            self._enqueue_claims_of(classes)

    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if (claim := new or old) is not None:
            key = (claim.metadata.namespace, claim.metadata.name)
            if old is not None and _is_replaced(old, new):
                self._releases.claim_gone(old)
            self._note_undone(key)
            released = self._deallocator.record_changed(claim, gone=new is None)
            before = driver_of_record(old) if old is not None and not released else ""
            if before and before not in self._drivers and (new is None or not driver_of_record(new)):
                self._wakeups.wake(("driver", before))
            if new is not None and driver_of_record(new) not in self._drivers:
                adopt_record(self._state, new)
            if new is not None and old is not None and failure_of(new) and not failure_of(old):
                for pod in self._cluster.pods_naming(key):  # also pods that no scheduler has asked about
                    self.enqueue(pod)
            if old is None and self._is_foreign(key):
                for pod in self._cluster.pods_naming(key):  # until now they were not Parley's pods
                    self._queues.pods.add((pod.metadata.namespace, pod.metadata.name))
            if self._is_relevant(old, new):
                self._enqueue_claim(key, gone=None if new is not None else old)

    def _note_undone(self, *keys: Key) -> None:
        """Note which of these claims' standalone drivers hold nothing for them any more."""
        for key in keys:
            if not self._cluster.has_begun(key):
                self._ledger.undone(key)

    def _is_foreign(self, key: Key) -> bool:
        """Whether a built-in claim of that name is there which Parley does not negotiate."""
        mirror = self._cluster.mirror(key)
        return mirror is not None and not is_mirror(mirror)

    def scheduling_changed(self, old: PodScheduling | None, new: PodScheduling | None) -> None:
        if (scheduling := new or old) is None:
            return
        meta = scheduling.metadata
        self._queues.pods.add((meta.namespace, meta.name))
        for owner in meta.owner_references:
            pod = PodReference(meta.namespace, meta.name, owner.uid)
            note = self._publisher.scheduling_deleted if new is None else self._publisher.scheduling_changed
            note(pod)

    def template_changed(self, old: ResourceClaimTemplate | None, new: ResourceClaimTemplate | None) -> None:
        if (template := new or old) is not None:
            self._queues.templates.add((template.metadata.namespace, template.metadata.name))
            if old is None or new is None or old.metadata.uid != new.metadata.uid:  # its spec is immutable
                self._wake_waiting_for(template)

    def _wake_waiting_for(self, template: ResourceClaimTemplate) -> None:
        """Wake the pods that wait for the template or its mirror."""
        meta = template.metadata
        self._wakeups.wake(("template", meta.namespace, meta.name))
        if template.spec.shared_by is not None:
            self._wakeups.wake(shared_topic(meta.namespace))

    def mirror_refused(self, item: ResourceClaim | ResourceClaimTemplate) -> None:
        """Reconcile the pods that wait for the mirror, so that they report why it was refused. The mirror itself
        is retried after its own pause."""
        if isinstance(item, ResourceClaim):
            self._enqueue_claim((item.metadata.namespace, item.metadata.name))
        else:
            self._wake_waiting_for(item)


def _is_replaced(old: Claim, new: Claim | None) -> bool:
    """Whether the object is gone; another one may have its name."""
    return new is None or new.metadata.uid != old.metadata.uid


def _is_unallocated(mirror: BuiltinClaim | None) -> bool:
    return mirror is not None and mirror.status.allocation is None


def _labels(namespace: Namespace) -> Mapping[str, str]:
    return namespace.metadata.labels
