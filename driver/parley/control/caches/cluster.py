"""The cluster's objects in memory: one informer per kind, with indexes and sums over them.

A `Listener` is notified of changes; it is called after the cache is up to date, so that it sees the new state
everywhere. Nothing here decides or writes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from parley.api.builtin import BuiltinClaim, BuiltinTemplate, Namespace, Node, Pod
from parley.api.models import ClaimRelease, PodScheduling, ResourceClaim, ResourceClaimTemplate, ResourceClass
from parley.api.names import DRIVERS_LABEL, STANDALONE, driver_finalizer
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    VOLUME_CLAIMS,
    VOLUMES,
)
from parley.api.volumes import PersistentVolume, PersistentVolumeClaim
from parley.control.caches import indexes, kept
from parley.control.caches.awaited import AwaitedAmounts
from parley.control.caches.delegated import Delegated
from parley.control.caches.entries import names_more
from parley.control.caches.generated_claims import GeneratedClaims
from parley.control.caches.informers import ControllerInformers, OnUndecodable
from parley.control.caches.listener import Listener
from parley.control.caches.own_writes import OwnWrites, Version
from parley.control.caches.plugins import Plugins
from parley.control.caches.refusals import Mirrored, Refusals
from parley.control.caches.usage import Usage
from parley.control.caches.volumes import Volumes, volume_claims
from parley.control.objects.reservation_pod import reserved_on
from parley.kube.cache import Key
from parley.kube.client import Client, Listing
from parley.kube.informer import Informer, OnChange
from parley.negotiation.requests import Amounts, amounts
from parley.negotiation.waiting import Topic
from parley.sdk import PodReference

T = TypeVar("T")


class ClusterCache:
    """The informers' caches of all kinds, with lookups. The objects change only by what `informers` receive.

    `pods_seen`: an embedded driver sees waiting pods, of which more is cached then. `reservations_in`: the
    namespace of reservation pods; no pod in another namespace is one.
    """

    def __init__(
        self,
        client: Client,
        on_undecodable: OnUndecodable = lambda _resource, _stone: None,
        *,
        pods_seen: bool = False,
        reservations_in: str = "",
    ) -> None:
        self._listener: Listener | None = None
        self.awaited = AwaitedAmounts(self.pods_awaiting_node, lambda uid: self.usage.share(uid) is not None)
        self.usage = Usage(self._room_made, self.awaited.counted)
        self.own_writes = OwnWrites(self._has_claim)
        self.refusals = Refusals()
        self.plugins = Plugins()
        self._allocatable: dict[str, Amounts] = {}
        self._node_names: tuple[str, ...] = ()
        self.generated = GeneratedClaims(self.mirror)
        self._reservations_in = reservations_in
        self.informers = ControllerInformers(client, on_undecodable)
        self._add_informers(partial(kept.pod, seen=pods_seen, reservations_in=reservations_in))
        self._add_indexes()

    def _add_informers(self, kept_of_pod: Callable[[Pod], Pod]) -> None:
        """Add classes and claims before the pods that need them."""
        add, add_wanted = self.informers.add, self.informers.add_wanted
        self._classes = add(CLASSES, self._class)
        self._templates = add(TEMPLATES, self._notifying(lambda to: to.template_changed), kept.template)
        self._claims = add(CLAIMS, self._claim, kept.claim)
        self._releases = add(CLAIM_RELEASES, self._notifying(lambda to: to.release_changed))
        self._schedulings = add(
            POD_SCHEDULINGS,
            self._notifying(lambda to: to.scheduling_changed),
            label_selector=f"{DRIVERS_LABEL}={STANDALONE}",
        )
        self._template_mirrors = add(
            BUILTIN_TEMPLATES, self._notifying(lambda to: to.template_mirror_changed), kept.template_mirror
        )
        self._nodes = add(NODES, self._node)
        self.informers.share(NODES)
        self._mirrors = add(BUILTIN_CLAIMS, self._mirror, kept.mirror)
        self._pods = add(PODS, self._pod, kept_of_pod)
        self.informers.observe(RESOURCE_SLICES, self.plugins.slice_changed)
        self.informers.observe(RESOURCE_SLICES, self._notifying(lambda to: to.slice_changed))
        self._namespaces = add_wanted(NAMESPACES, self._notifying(lambda to: to.namespace_changed), kept.namespace)
        self.volumes = Volumes(
            add_wanted(VOLUME_CLAIMS, self._volume_claim, kept.volume_claim),
            add_wanted(VOLUMES, self._volume, kept.volume),
        )
        self.delegated = Delegated(
            add_wanted(DEVICE_CLASSES, self._notifying(lambda to: to.device_class_changed), kept.device_class)
        )

    def _add_indexes(self) -> None:
        self._claims.index("pod", indexes.owning_pods)
        self._claims.index("parameters", indexes.parameters_of_claim)
        self._classes.index("parameters", indexes.parameters_of_class)
        self._releases.index("holding", lambda release: [release.spec.holding_uid])
        self._releases.index("node", lambda release: [release.spec.node_name])
        self._pods.index("claim", indexes.indexed_claims)
        self._pods.index("awaited claim", indexes.awaiting_node)
        self._pods.index("more claims", indexes.naming_more)
        self._pods.index("node", indexes.claiming_on)
        self._pods.index("unbound", indexes.unbound_uid)
        self._pods.index("volume claim", volume_claims)
        self._pods.index("reservation", lambda pod: filter(None, [self.reserved_on(pod)]))

    def listen(self, listener: Listener) -> None:
        """Notify the listener of changes from now on."""
        self._listener = listener

    def _notifying(self, handler: Callable[[Listener], OnChange[T]]) -> OnChange[T]:
        def changed(old: T | None, new: T | None) -> None:
            if self._listener is not None:
                handler(self._listener)(old, new)

        return changed

    @property
    def caches(self) -> Sequence[Informer[Any]]:
        """The informers of kinds that decisions need, those of drivers included. Not volumes: without the right to
        read them the scheduler decides, and a pod with a volume must not make the controller unready."""
        always = self.informers.always
        return [*always, self._namespaces.informer] if self._namespaces.is_wanted else always

    def pod(self, key: Key) -> Pod | None:
        return self._pods.get(*key)

    def has_begun(self, claim: Key) -> bool:
        """Whether the standalone driver of the claim's class may hold something for it: the claim has its
        finalizer."""
        found = self.claim(claim)
        class_ = self.class_(found.spec.resource_class_name) if found is not None else None
        if found is None or class_ is None:
            return False
        return driver_finalizer(class_.driver_name) in found.metadata.finalizers

    def claim_with_uid(self, key: Key, uid: str) -> ResourceClaim | None:
        """The Parley claim of that name, if it is the one of that UID, and not another that replaced it."""
        claim = self.claim(key)
        return claim if claim is not None and claim.metadata.uid == uid else None

    def pod_with_uid(self, pod: PodReference) -> Pod | None:
        """The cached pod of that name if it has that UID; otherwise it is another pod, and the result is None."""
        known = self.pod((pod.namespace, pod.name))
        return known if known is not None and known.metadata.uid == pod.uid else None

    def has_pod(self, pod: PodReference) -> bool:
        """Whether the cache has the pod of that name and UID."""
        return self.pod_with_uid(pod) is not None

    def has_unbound_pod(self, uid: str) -> bool:
        """Whether the cache has a pod with that UID, of any name, that has no node yet."""
        return bool(self._pods.indexed("unbound", uid))

    def pods(self) -> Iterable[Pod]:
        return self._pods.values()

    @property
    def listing_pods(self) -> bool:
        """Whether the pod event being delivered comes from a list, not from a watch: then a pod that is gone may
        have been bound after its last event."""
        return self._pods.listing

    @property
    def lists(self) -> int:
        """The number of lists of pods and of built-in claims that were read. Between two lists a pod, or its
        reservation, may be created and deleted without an event."""
        return self._pods.lists + self._mirrors.lists

    def pods_naming(self, claim: Key) -> Sequence[Pod]:
        """The pods whose spec names the claim."""
        more = self._pods.by_index("more claims", claim[0])
        return *self._pods.by_index("claim", claim), *(pod for pod in more if names_more(pod, claim[1]))

    def pods_naming_on(self, claim: Key, node: str) -> Sequence[Pod]:
        """The pods that name the claim and count for the node. Looked up by the node's pods, which are few: a
        tenant may have thousands of pods without a node that name its claims, and other tenants' pods depend on
        this lookup."""

        def counts(pod: Pod) -> bool:
            return self.usage.node_of(pod.metadata.uid) == node

        naming, more = self._pods.indexed("claim", claim), self._pods.indexed("more claims", claim[0])
        there = self._pods.indexed("node", ("", node)).keys() | self.usage.assumed(node)
        found = [naming[key] for key in there & naming.keys()]
        found += (more[key] for key in there & more.keys() if names_more(more[key], claim[1]))
        return [*filter(counts, found)]

    def stop_assuming(self, pod: PodReference) -> None:
        """Stop counting the pod for the node that was selected for it. If it is bound, it counts until it ends."""
        known = self.pod_with_uid(pod)
        if known is None or not known.spec.node_name:
            self.usage.remove(pod.uid)

    def pods_awaiting_node(self, claim: Key) -> Sequence[Pod]:
        """The pods that name the claim and have no node yet; not those that have a gate, or too many claims."""
        return self._pods.by_index("awaited claim", claim)

    def pods_on(self, node: str) -> Sequence[Pod]:
        """The pods with claims that are bound to the node and have not ended."""
        return self._pods.by_index("node", ("", node))

    def placement_constraints_synced(self, pod: Pod) -> bool:
        """Whether the volumes and device classes that restrict the pod's nodes are read; begins to read them."""
        known = (self.volumes.known(pod), self.delegated.known(pod))
        return all(known)

    def pods_with_volume(self, claim: Key) -> Sequence[Pod]:
        """The pods with claims of Parley's that use the PersistentVolumeClaim."""
        return self._pods.by_index("volume claim", claim)

    def reserved_on(self, pod: Pod) -> str | None:
        """The node where the pod reserves room; None if it is not a reservation pod."""
        return reserved_on(pod, self._reservations_in)

    def reservation_pods(self, node: str) -> Sequence[Pod]:
        """The reservation pods of the node."""
        return self._pods.by_index("reservation", node)

    def node(self, name: str) -> Node | None:
        return self._nodes.get("", name)

    def nodes(self) -> Iterable[Node]:
        return self._nodes.values()

    def node_names(self) -> Sequence[str]:
        """All nodes, in the order in which they became known."""
        return self._node_names

    def allocatable(self, node: str) -> Amounts:
        """The node's allocatable resources, in thousandths."""
        return self._allocatable.get(node, {})

    def mirror(self, key: Key) -> BuiltinClaim | None:
        """The built-in claim of that name, Parley's or not."""
        return self._mirrors.get(*key)

    @property
    def listing_mirrors(self) -> bool:
        """Whether the event of a built-in claim being delivered comes from a list, not from a watch."""
        return self._mirrors.listing

    def _has_claim(self, meta: Version) -> bool:
        """Whether the claim, built-in or Parley's, is still in the cache."""
        key = (meta.namespace, meta.name)
        found = (self.mirror(key), self.claim(key))
        return any(claim is not None and claim.metadata.uid == meta.uid for claim in found)

    def mirrors(self) -> Iterable[BuiltinClaim]:
        return self._mirrors.values()

    def template_mirror(self, key: Key) -> BuiltinTemplate | None:
        return self._template_mirrors.get(*key)

    def template_mirrors(self) -> Iterable[BuiltinTemplate]:
        return self._template_mirrors.values()

    def class_(self, name: str) -> ResourceClass | None:
        return self._classes.get("", name)

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """The namespace's labels; None if they are not read yet."""
        found = self._namespaces.informer.get("", name)
        return None if found is None else found.metadata.labels

    def replace_namespaces(self, found: Listing[Namespace]) -> None:
        """Put these namespaces into the cache, if its informers do not run."""
        self._namespaces.informer.replace(found)

    def classes(self) -> Iterable[ResourceClass]:
        return self._classes.values()

    def claim(self, key: Key) -> ResourceClaim | None:
        return self._claims.get(*key)

    def claims(self) -> Iterable[ResourceClaim]:
        return self._claims.values()

    def claims_referring(self, parameters: Topic) -> Sequence[ResourceClaim]:
        """The claims whose parameters are in the object of that topic, or that wait to read such an object."""
        return self._claims.by_index("parameters", parameters)

    def classes_referring(self, parameters: Topic) -> frozenset[str]:
        """The names of the classes whose parameters are in the object of that topic, or that wait to read one."""
        return frozenset(class_.metadata.name for class_ in self._classes.by_index("parameters", parameters))

    def stand_ins(self, pod: PodReference) -> Sequence[ResourceClaim]:
        """The stand-ins of the pod's generated claims."""
        return self._claims.by_index("pod", (pod.namespace, pod.uid))

    def release(self, name: str) -> ClaimRelease | None:
        return self._releases.get("", name)

    def releases(self) -> Iterable[ClaimRelease]:
        return self._releases.values()

    def releases_of(self, holding: str) -> Sequence[ClaimRelease]:
        """The ClaimReleases of the holding with that UID."""
        return self._releases.by_index("holding", holding)

    def releases_on(self, node: str) -> Sequence[ClaimRelease]:
        """The ClaimReleases that the node has to answer."""
        return self._releases.by_index("node", node)

    def scheduling(self, key: Key) -> PodScheduling | None:
        """The PodScheduling of that name, if standalone drivers were asked with it."""
        return self._schedulings.get(*key)

    def schedulings(self) -> Iterable[PodScheduling]:
        """All PodSchedulings with which standalone drivers were asked."""
        return self._schedulings.values()

    def template(self, key: Key) -> ResourceClaimTemplate | None:
        return self._templates.get(*key)

    def templates(self) -> Iterable[ResourceClaimTemplate]:
        return self._templates.values()

    def mirror_refused(self, item: Mirrored, message: str) -> None:
        """Note that the API server refused the mirror of a claim or template, and notify the listener."""
        if self.refusals.note(item, message) and self._listener is not None:
            self._listener.mirror_refused(item)

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        self.awaited.pod_changed(old, new)
        self.usage.pod_changed(old, new)
        if self._listener is not None:
            self._listener.pod_changed(old, new)

    def _room_made(self, node: str) -> None:
        if self._listener is not None:
            self._listener.usage_reduced(node)

    def _node(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._allocatable[new.metadata.name] = amounts(new.status.allocatable)
        elif old is not None:
            self._allocatable.pop(old.metadata.name, None)
        if old is None or new is None:
            self._node_names = tuple(self._allocatable)
        self.informers.observed(NODES, old, new)
        if self._listener is not None:
            self._listener.node_changed(old, new)

    def _volume_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if (old.bound_to if old is not None else "") != (new.bound_to if new is not None else ""):
            self._notify_volume_moved([claim for claim in (new or old,) if claim is not None])

    def _volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if (volume := new or old) is None or (old is not None and new is not None and old.spec == new.spec):
            return
        self._notify_volume_moved(self.volumes.claims_of(volume.metadata.name))

    def _notify_volume_moved(self, claims: Iterable[PersistentVolumeClaim]) -> None:
        for claim in claims:
            if self._listener is not None:
                self._listener.volume_changed((claim.metadata.namespace, claim.metadata.name))

    def _class(self, old: ResourceClass | None, new: ResourceClass | None) -> None:
        if new is not None and new.selects_namespaces:
            self._namespaces.want()
        if self._listener is not None:
            self._listener.class_changed(old, new)

    def _claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None and new is None:
            self.own_writes.forget(old.metadata)
        if self._listener is not None:
            self._listener.claim_changed(old, new)

    def _mirror(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        if old is not None and new is None:
            self.own_writes.forget(old.metadata)
        self.generated.changed(old, new)
        if self._listener is not None:
            self._listener.mirror_changed(old, new)
