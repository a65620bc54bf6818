"""What a change in the cluster may affect: keys of what is to be looked at again. Nothing is decided here.

Changes count from the moment when everything is restored; what the caches had before is looked at once.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

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
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.indexes import named_claims
from parley.control.claims.named import failure_of
from parley.control.claims.on_demand import shared_topic
from parley.control.claims.podclaims import NODES, PREEMPTION, ROOM
from parley.control.holding import Holding
from parley.control.limits import topic as limit_topic
from parley.control.objects.mirror import is_mirror, owner_pod
from parley.control.objects.pod import done, over, priority, reference, tried
from parley.control.objects.standin import is_orphan, is_stand_in
from parley.control.publishing.podscheduling import Publisher
from parley.control.release.deallocation import Deallocator
from parley.control.release.releases import out_of_service
from parley.control.restoring import adopt_record, count_again, count_foreign, taken_by_foreign
from parley.control.state import State
from parley.control.wakeups import Wakeups
from parley.kube.cache import Key
from parley.kube.queue import WorkQueue
from parley.negotiation.stranded import unavailable
from parley.negotiation.waiting import Topic
from parley.scheduler.differences import Claim, claim_differs, node_differs
from parley.scheduler.pods import Pods
from parley.scheduler.reconciler import Reconciler
from parley.sdk import PodReference
from parley.sdk.recorded import driver_of_record

ROOM_SECONDS = 0.1
"""Between a change and the look at the reservation pods of its node."""


def _named(kind: str) -> Callable[[Key], Mapping[str, object]]:
    """How a key is named in a log entry: {"pod": "team/a"}."""
    return lambda key: {kind: "/".join(key)}


def _pod_fields(pod: PodReference) -> Mapping[str, object]:
    return {"pod": f"{pod.namespace}/{pod.name}"}


def _queue(kind: str, rank: Callable[[Key], int] = lambda _: 0) -> WorkQueue[Key]:
    """Of objects of namespaces, which take turns."""
    return WorkQueue(fields=_named(kind), rank=rank, flow=lambda key: key[0])


@dataclass(frozen=True)
class Queues:
    """What is to be looked at, one object of each namespace in turn: pods, by priority; named claims and templates
    by name, holdings that nodes owe something for by UID, pods whose PodScheduling is behind, classes whose status
    may be behind by name, nodes whose reservation pods may have to change."""

    pods: WorkQueue[Key]
    releases: WorkQueue[str]
    claims: WorkQueue[Key] = field(default_factory=lambda: _queue("claim"))
    templates: WorkQueue[Key] = field(default_factory=lambda: _queue("template"))
    publications: WorkQueue[PodReference] = field(
        default_factory=lambda: WorkQueue(fields=_pod_fields, flow=lambda pod: pod.namespace)
    )
    classes: WorkQueue[str] = field(default_factory=lambda: WorkQueue(fields=lambda name: {"class": name}))
    reservations: WorkQueue[str] = field(default_factory=lambda: WorkQueue(fields=lambda node: {"node": node}))

    def wake(self, topic: Topic, nodes: Iterable[str] | None = None) -> None:
        """A topic changed: a named claim is looked at with whoever waits for it, and so is reserved room."""
        if topic[0] == "claim":
            self.claims.add((topic[1], topic[2]))
        elif topic == ROOM:
            for node in nodes or ():
                self.look_at_room(node)

    def look_at_room(self, node: str) -> None:
        """What reservation pods are to hold on the node may have changed. Many pods may come and go at a time: the
        node is looked at once for all of them."""
        self.reservations.add_after(node, ROOM_SECONDS)

    @staticmethod
    def empty(cluster: ClusterCache, namespace_of: Callable[[str], str]) -> "Queues":
        """For pods of that cluster. `namespace_of` is that of a holding, by UID; "" of one that is not known."""

        def rank(key: Key) -> int:
            pod = cluster.pod(key)
            return -priority(pod) if pod is not None else 0

        return Queues(_queue("pod", rank), WorkQueue(fields=lambda uid: {"holding": uid}, flow=namespace_of))


class Changes:
    """The listener of the cluster's caches: adds the keys that a change may affect to the work queues, and wakes
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

    def look_at(self, holding: Holding) -> None:
        """Its pods are looked at again."""
        for user in holding.pods.values():
            self._queues.pods.add((user.namespace, user.name))

    def enqueue(self, pod: Pod) -> None:
        """The pod is looked at, if it has claims, and what it uses or holds of reserved room."""
        if pod.spec.resource_claims:
            self._enqueue_new((pod.metadata.namespace, pod.metadata.name))
        self._look_at_room(pod)

    def _look_at_room(self, pod: Pod) -> None:
        for key in named_claims(pod):
            holding = self._ledger.of_claim(*key)
            if holding is not None and holding.is_nominated:
                self._queues.look_at_room(holding.node)
        if (node := self._cluster.reserved_on(pod)) is not None:
            self._queues.look_at_room(node)
        nodes = {pod.spec.node_name, *(holding.node for holding in self._ledger.of_pod(reference(pod)))}
        for node in filter(self._yields, nodes if pod.spec.resource_claims else ()):
            self._queues.look_at_room(node)

    def _yields(self, node: str) -> bool:
        """Whether reservation pods on the node may have to give way to guests there."""
        return any(holding.is_nominated and holding.yields_to for holding in self._ledger.reserving(node))

    def _enqueue_new(self, key: Key) -> None:
        self._pods.added(key)
        self._queues.pods.add(key)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self._reconciler.pod_updated(new)
            if old is not None and done(new) and not done(old):
                self._reconciler.pod_ended(new)
            if old is None or self._concerns_us(old, new):
                self.enqueue(new)
            elif tried(new) and not tried(old):
                self._look_at_room(new)
        if old is None:
            return
        same = new if new is not None and new.metadata.uid == old.metadata.uid else None
        if same is None:
            self._reconciler.pod_gone(old)
            self.enqueue(old)
            for claim in self._cluster.stand_ins(reference(old)):
                self._queues.claims.add((claim.metadata.namespace, claim.metadata.name))
        if not (old.spec.node_name or over(old)) and (same is None or over(same)):
            self._awaits_room_no_more(old)
        if same is not None and same.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
            self._pods.pod_terminating(same.spec.node_name)
        if old.spec.node_name and not done(old) and (same is None or done(same)):
            self._wakeups.less_used(NODES, (old.spec.node_name,))  # a scheduler may judge it differently

    def _awaits_room_no_more(self, pod: Pod) -> None:
        """Pods to which its claims yield may have the room that was left for it. It may name hundreds of them."""
        named = (self._ledger.of_claim(*key) for key in named_claims(pod))
        if nodes := {holding.node for holding in named if holding is not None and holding.yields_to}:
            self._pods.wake(ROOM, nodes)

    def room_made(self, node: str) -> None:
        """A pod does not count for the node any more."""
        self._wakeups.less_used(ROOM, (node,))

    def _concerns_us(self, old: Pod, new: Pod) -> bool:
        """Whether anything changed that a decision depends on; conditions do not count, nor a name in the status
        of a claim that was known before: each look may ask drivers about every node."""
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
        """Whether a claim was generated for the pod, as its status says, that was not known before."""
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
        if (old is None or new is None) and self._ledger.reserving(name):
            self._queues.look_at_room(name)
        if old is not None and out_of_service(new):
            self._releases.node_lost(old.metadata.name)
        elif new is not None and out_of_service(old):
            self._releases.node_back(new.metadata.name)
        if unavailable(old) != unavailable(new):
            self._look_at_claims_on(name)

    def _look_at_claims_on(self, node: str) -> None:
        """Named claims on a node that takes no pods any more, or does so again."""
        for holding in self._ledger.on(node):
            if holding.named:
                self._queues.claims.add((holding.namespace, holding.claim))

    def release_changed(self, old: ClaimRelease | None, new: ClaimRelease | None) -> None:
        """A node may have answered."""
        self._releases.changed(old, new)

    def slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A node plugin may have come or gone."""
        if old is None or new is None:
            nodes = [slice_.spec.node_name for slice_ in (old, new) if slice_ is not None]
            self._wakeups.wake(NODES, nodes if all(nodes) else None)

    def mirror_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if (claim := new or old) is None:
            return
        key = (claim.metadata.namespace, claim.metadata.name)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._releases.mirror_gone(old)
        if not is_mirror(claim):
            self._foreign_changed(old, new)
            self._wakeups.wake(("claim", *key))
            return
        if driver := self._state.moved.look(old, new):  # also of one that has lost its owner
            self._wakeups.wake(("driver", driver))
        if (owner := owner_pod(claim)) is not None:
            (self._enqueue_new if old is None else self._queues.pods.add)((owner.namespace, owner.name))
            if (stand_in := self._cluster.claim(key)) is not None and is_orphan(stand_in):
                self._queues.claims.add(key)  # it goes when this one is not reserved any more
        else:
            self._deallocator.mirror_changed(old, new)
            if self._is_relevant(old, new):
                self._look_at_users(key)

    def _is_relevant(self, old: Claim | None, new: Claim | None) -> bool:
        """Whether pods have to hear of the change. That the cache shows what we wrote ourselves may be awaited."""
        unseen = self._cluster.own_writes.unseen
        return old is None or new is None or claim_differs(old, new) or unseen(old.metadata)

    def _look_at_users(self, key: Key, gone: ResourceClaim | None = None) -> None:
        """The named claim is looked at, and who uses or waits for it, or for another one once it is `gone`."""
        if (holding := self._ledger.of_claim(*key)) is not None:
            self.look_at(holding)
        if (expecting := self._ledger.expected_for(*key)) is not None:
            self._queues.pods.add((expecting.namespace, expecting.name))
        claim = gone or self._cluster.claim(key)
        if claim is not None and is_stand_in(claim):
            for owner in claim.metadata.owner_references:
                self._queues.pods.add((claim.metadata.namespace, owner.name))
        self._wakeups.wake(("claim", *key))

    def _foreign_changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        """Between two lists it may have been allocated anew: a driver may take that for what it knows already."""
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
            return  # its status, which decides nothing
        count_again(self._state, class_.metadata.name)
        self._wakeups.wake(("class", class_.metadata.name))
        if old is None or new is None or old.preemption != new.preemption:
            self._wakeups.wake(PREEMPTION)
        self._look_at_claims_of({class_.metadata.name})

    def _look_at_claims_of(self, classes: Set[str]) -> None:
        for claim in self._cluster.claims():
            if claim.spec.resource_class_name in classes:
                self._queues.claims.add((claim.metadata.namespace, claim.metadata.name))

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """Another limit may hold for a namespace that has other labels."""
        namespace = new or old
        if namespace is None or (old is not None and new is not None and _labels(old) == _labels(new)):
            return
        for class_ in self._cluster.classes():
            if class_.selects_namespaces:
                self._wakeups.wake(limit_topic(class_.metadata.name, namespace.metadata.name))

    def volume_moved(self, claim: Key) -> None:
        """The PersistentVolumeClaim may tie its pods to other nodes now."""
        for pod in self._cluster.pods_with_volume(claim):
            if not pod.spec.node_name:
                self.enqueue(pod)

    def device_class_changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        """A node may need less of its own for a pod now."""
        if old is None or new is None or old.spec != new.spec:
            self._pods.wake(NODES)

    def parameters_read(self, topic: Topic) -> None:
        """An object was read that claims, or classes, take their parameters from."""
        for claim in self._cluster.claims_referring(topic):
            self._queues.claims.add((claim.metadata.namespace, claim.metadata.name))
        if classes := self._cluster.classes_referring(topic):
            for name in classes:
                count_again(self._state, name)
            self._look_at_claims_of(classes)

    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if (claim := new or old) is not None:
            key = (claim.metadata.namespace, claim.metadata.name)
            self._deallocator.record_changed(claim, gone=new is None)
            if new is not None and driver_of_record(new) not in self._drivers:
                adopt_record(self._state, new)
            if new is not None and old is not None and failure_of(new) and not failure_of(old):
                for pod in self._cluster.pods_naming(key):  # also those whose scheduler has not asked about them
                    self.enqueue(pod)
            if old is None and self._is_foreign(key):
                for pod in self._cluster.pods_naming(key):  # they were nobody's business until now
                    self._queues.pods.add((pod.metadata.namespace, pod.metadata.name))
            if self._is_relevant(old, new):
                self._look_at_users(key, gone=None if new is not None else old)

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
            tell = self._publisher.lost if new is None else self._publisher.seen
            tell(pod)

    def template_changed(self, old: ResourceClaimTemplate | None, new: ResourceClaimTemplate | None) -> None:
        if (template := new or old) is not None:
            self._queues.templates.add((template.metadata.namespace, template.metadata.name))
            if old is None or new is None or old.metadata.uid != new.metadata.uid:  # its spec is immutable
                self._look_at_waiting(template)

    def _look_at_waiting(self, template: ResourceClaimTemplate) -> None:
        """The pods that wait for the template, or its mirror, look again."""
        meta = template.metadata
        self._wakeups.wake(("template", meta.namespace, meta.name))
        if template.spec.shared_by is not None:
            self._wakeups.wake(shared_topic(meta.namespace))

    def mirror_refused(self, item: ResourceClaim | ResourceClaimTemplate) -> None:
        """Who waits for the mirror reports why. The mirror itself is tried again after its own pause, whatever the
        API server writes."""
        if isinstance(item, ResourceClaim):
            self._look_at_users((item.metadata.namespace, item.metadata.name))
        else:
            self._look_at_waiting(item)


def _labels(namespace: Namespace) -> Mapping[str, str]:
    return namespace.metadata.labels
