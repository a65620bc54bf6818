"""Cuts oversized objects before they are cached: of labels, owners, claims and the like a bounded number stays.
Pure.

The API server limits an object's size, and not how many tolerations, labels or owner references that is. In memory
they take several times as much. What is left out decides nothing: a pod that asks for too much is refused by its
size alone, and of labels, finalizers and owners Parley looks for its own.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from parley.api.builtin import Pod, PodResourceClaim, SchedulingGate, ShortenedPodSpec
from parley.api.meta import ObjectMeta
from parley.api.names import FINALIZER, GENERATED_LABEL, RESERVATION_GATE
from parley.api.owners import MAX_OWNERS, few_owners
from parley.control.caches.entries import joined
from parley.negotiation.fit import excess_of
from parley.sdk.checks import MAX_ENTRIES

MAX_LABELS: Final = 256
"""So many labels of a pod are kept, the first by name, as of annotations and of other objects' labels."""

MAX_FINALIZERS: Final = 32
"""So many finalizers are kept. Who writes the list has to read the object where it may have more."""

_MAX_GATES: Final = 32

T = TypeVar("T")


def shortened(pod: Pod) -> Pod:
    """The pod; of one that asks for too much, how much that is in place of what it asks for."""
    excess, number = excess_of(pod.spec), len(pod.spec.resource_claims)
    if not excess and number <= MAX_ENTRIES:
        return pod
    fields: dict[str, Any] = {name: getattr(pod.spec, name) for name in pod.spec.__struct_fields__}
    if excess:
        fields |= {"node_selector": {}, "affinity": None, "tolerations": [], "volumes": [], "excess": excess}
    if number <= MAX_ENTRIES:
        return replace(pod, spec=ShortenedPodSpec(**fields))
    left = pod.spec.resource_claims[:MAX_ENTRIES]
    fields |= {"resource_claims": left, "entries": number, "more_claims": _more_claims(pod.spec.resource_claims)}
    names = {entry.name for entry in left}
    statuses = [status for status in pod.status.resource_claim_statuses if status.name in names]
    return replace(
        pod, spec=ShortenedPodSpec(**fields), status=replace(pod.status, resource_claim_statuses=statuses)
    )


def _more_claims(entries: Sequence[PodResourceClaim]) -> str:
    known = {entry.resource_claim_name for entry in entries[:MAX_ENTRIES]}
    names = (entry.resource_claim_name for entry in entries[MAX_ENTRIES:])
    return joined(name for name in names if name and name not in known)


def few_labels(labels: Mapping[str, T]) -> Mapping[str, T]:
    """All of them if they are not many; otherwise the first by name. Of annotations, too."""
    return labels if len(labels) <= MAX_LABELS else dict(islice(sorted(labels.items()), MAX_LABELS))


def few_gates(gates: Sequence[SchedulingGate]) -> tuple[SchedulingGate, ...]:
    """All of them if they are not many; otherwise one, and that of reservation pods."""
    if len(gates) <= _MAX_GATES:
        return tuple(gates)
    return gates[0], *(gate for gate in gates[1:] if gate.name == RESERVATION_GATE)


def few_finalizers(names: Sequence[str]) -> Sequence[str]:
    """All of them if they are not many; otherwise so many, Parley's among them."""
    if len(names) <= MAX_FINALIZERS:
        return names
    return tuple(sorted(names, key=lambda name: name != FINALIZER)[:MAX_FINALIZERS])


def shortened_metadata(whole: ObjectMeta) -> ObjectMeta:
    """The same of an object of Parley's kinds, if it is large. Its label as a stand-in is kept."""
    if max(len(whole.labels), len(whole.annotations)) <= MAX_LABELS and (
        len(whole.finalizers) <= MAX_FINALIZERS and len(whole.owner_references) <= MAX_OWNERS
    ):
        return whole
    marks = {name: value for name, value in whole.labels.items() if name == GENERATED_LABEL}
    left = {
        "labels": {**few_labels(whole.labels), **marks},
        "annotations": few_labels(whole.annotations),
        "finalizers": few_finalizers(whole.finalizers),
        "owner_references": few_owners(whole.owner_references),
    }
    return whole.model_copy(update=left)
