"""Cuts oversized objects before they are cached: only a bounded number of labels, owners, claims etc. is kept.
Pure.

The API server limits an object's size, but not the number of its tolerations, labels or owner references. In
memory they take several times as much. The omitted ones change no decision: a pod that asks for too much is
refused because of its size, and Parley only looks for its own labels, finalizers and owners.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from parley.api.builtin import Pod, PodResourceClaim, SchedulingGate, ShortenedPodSpec
from parley.api.large_objects import MAX_LABELS
from parley.api.meta import ObjectMeta
from parley.api.names import FINALIZER, GENERATED_LABEL, RESERVATION_GATE, is_driver_finalizer
from parley.api.owners import MAX_OWNERS, few_owners
from parley.control.caches.entries import joined
from parley.negotiation.fit import excess_of
from parley.sdk.checks import MAX_ENTRIES

MAX_FINALIZERS: Final = 32
"""The number of finalizers that are kept. To write the list, read the object if it may have more."""

_MAX_GATES: Final = 32

T = TypeVar("T")


def shortened(pod: Pod) -> Pod:
    """The pod. If it asks for too much, its size is kept in place of the fields that are too large."""
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
    """The labels, or annotations: all if they are few, otherwise the first by name."""
    return labels if len(labels) <= MAX_LABELS else dict(islice(sorted(labels.items()), MAX_LABELS))


def few_gates(gates: Sequence[SchedulingGate]) -> tuple[SchedulingGate, ...]:
    """The gates: all if they are few, otherwise one, and that of reservation pods."""
    if len(gates) <= _MAX_GATES:
        return tuple(gates)
    return gates[0], *(gate for gate in gates[1:] if gate.name == RESERVATION_GATE)


def few_finalizers(names: Sequence[str]) -> Sequence[str]:
    """The finalizers: all if they are few, otherwise `MAX_FINALIZERS`, Parley's and drivers' among them."""
    if len(names) <= MAX_FINALIZERS:
        return names
    return tuple(
        sorted(names, key=lambda name: (name != FINALIZER, not is_driver_finalizer(name)))[:MAX_FINALIZERS]
    )


def shortened_metadata(whole: ObjectMeta) -> ObjectMeta:
    """The metadata of an object of Parley's kinds, cut if it is large. The label of a stand-in is kept."""
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
