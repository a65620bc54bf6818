"""Index functions of the informers' caches: the keys, besides its name, by which an object is found. Pure."""

from collections.abc import Iterable, Sequence

from parley.api.builtin import Pod, ShortenedPodSpec
from parley.api.models import ResourceClaim, ResourceClass
from parley.control.caches.entries import claims_named
from parley.control.objects.pod import is_done, is_terminal
from parley.control.objects.standin import owner_uid
from parley.kube.cache import Key
from parley.negotiation.waiting import Topic
from parley.sdk.referenced import room_topic, topic_of


def named_claims(pod: Pod) -> Sequence[Key]:
    """The claims that the pod names."""
    return [(pod.metadata.namespace, name) for name in claims_named(pod)]


def indexed_claims(pod: Pod) -> Iterable[Key]:
    """The named claims by which the pod is indexed: not all if it names very many."""
    entries = pod.spec.resource_claims
    return [(pod.metadata.namespace, entry.resource_claim_name) for entry in entries if entry.resource_claim_name]


def naming_more(pod: Pod) -> Iterable[str]:
    """The namespace of a pod that names more claims than it is indexed by."""
    return [pod.metadata.namespace] if isinstance(pod.spec, ShortenedPodSpec) and pod.spec.more_claims else []


def awaiting_node(pod: Pod) -> Iterable[Key]:
    """The named claims of a pod that its scheduler may place."""
    spec = pod.spec
    return [] if spec.node_name or spec.scheduling_gates or is_done(pod) else indexed_claims(pod)


def unbound_uid(pod: Pod) -> Iterable[str]:
    """The UID of a pod that has no node yet."""
    return [] if pod.spec.node_name else [pod.metadata.uid]


def claiming_on(pod: Pod) -> Iterable[Key]:
    """The node of a pod that has claims, is bound and has not ended, as a key without a namespace."""
    uses = pod.spec.resource_claims and pod.spec.node_name and not is_terminal(pod)
    return [("", pod.spec.node_name)] if uses else []


def owning_pods(claim: ResourceClaim) -> Iterable[Key]:
    """Namespace and UID of the pod that a stand-in belongs to; with the namespace, as users may write any UID."""
    uid = owner_uid(claim)
    return [(claim.metadata.namespace, uid)] if uid else []


def parameters_of_claim(claim: ResourceClaim) -> Iterable[Topic]:
    """The topics that are woken when the object with the claim's parameters changes, or can be read."""
    reference = claim.spec.parameters_ref
    namespace = claim.metadata.namespace
    return [topic_of(reference, namespace), room_topic(namespace)] if reference is not None else []


def parameters_of_class(class_: ResourceClass) -> Iterable[Topic]:
    """The topics that are woken when the object with the class's parameters changes, or can be read."""
    reference = class_.parameters_ref
    return [topic_of(reference, ""), room_topic("")] if reference is not None else []
