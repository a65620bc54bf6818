"""Claims made on demand: which template makes a claim that a pod names and that does not exist, and how. Pure.

A template whose `sharedBy` names a label makes `<template>-<value>` for the pods that have the label with that
value: one claim for all tasks of a run, created by the first of them. Once it exists it is a named claim like any
other. This file decides whether a template makes the claim, and what the claim's manifest is.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parley.api.builtin import Pod
from parley.api.models import ResourceClaim, ResourceClaimTemplate, SharedBy
from parley.api.names import (
    API_VERSION,
    FINALIZER,
    GROUP,
    MADE_FROM_ANNOTATION,
    MAX_NAME,
    SUBDOMAIN,
    driver_annotation,
)
from parley.kube.cache import Key
from parley.negotiation.waiting import Topic

_NAME = re.compile(SUBDOMAIN)


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A claim that the template makes for the pod, unless the pod has a `fault`. The manifest is built only when
    the claim is created: parameters may be large, and a pod may name hundreds of such claims."""

    source: ResourceClaimTemplate
    pod: Pod
    claim: str
    fault: str = ""

    @property
    def template(self) -> str:
        """The template's name."""
        return self.source.metadata.name

    def body(self) -> Mapping[str, Any]:
        """The claim's manifest."""
        return _manifest(self.source, _shared_by(self.source), self.pod, self.claim)


def shared_topic(namespace: str) -> Topic:
    """The topic that wakes pods with a missing named claim: a template with `sharedBy` was added or deleted."""
    return ("shared", namespace)


def on_demand(template: Callable[[Key], ResourceClaimTemplate | None], pod: Pod, claim: str) -> OnDemand | None:
    """The template of the pod's namespace that makes the claim of that name, and how; None if there is none.

    If several do, it is the one with the longest name. A fault is returned only if all have one.
    """
    namespace, first = pod.metadata.namespace, None
    for name in _prefixes(claim):
        found = template((namespace, name))
        if found is None or found.spec.shared_by is None:
            continue
        if _may_make(found, pod, claim) and not _fault(found, pod, claim):
            return OnDemand(found, pod, claim)
        first = first or found
    return OnDemand(first, pod, claim, _fault(first, pod, claim)) if first is not None else None


def made_for_former_owner(
    template: Callable[[Key], ResourceClaimTemplate | None], pod: Pod, claim: ResourceClaim
) -> str:
    """Why the pod must not use a claim that was made on demand for an earlier owner with the name of the pod's
    owner, such as a run that was deleted and begun again; "" if it may. Such a claim has the earlier owner's data,
    and is about to be garbage-collected."""
    meta = claim.metadata
    found = on_demand(template, pod, meta.name) if meta.owner_references else None
    if found is None or found.fault:
        return ""
    for mine in _owners(_shared_by(found.source), pod):
        same = [one.uid for one in meta.owner_references if (one.kind, one.name) == (mine["kind"], mine["name"])]
        if same and mine["uid"] not in same:
            return (
                f"claim {meta.namespace}/{meta.name} belongs to an earlier {mine['kind']} {mine['name']} (UID "
                f"{same[0]}) and is deleted with that, and the pod belongs to the one with UID {mine['uid']}: "
                "wait until the claim is gone, then another one is created"
            )
    return ""


def _may_make(template: ResourceClaimTemplate, pod: Pod, claim: str) -> bool:
    """Whether the claim's name can end with the pod's label, by its length. A cheap check before the others: a
    hundred templates may match each of a pod's claims."""
    value = pod.metadata.labels.get(_shared_by(template).pod_label)
    return bool(value) and len(claim) == len(template.metadata.name) + 1 + len(value or "")


def _shared_by(template: ResourceClaimTemplate) -> SharedBy:
    assert template.spec.shared_by is not None
    return template.spec.shared_by


def _prefixes(claim: str) -> Iterable[str]:
    """The parts of the claim's name before each of its dashes, the longest first."""
    return [claim[:i] for i in range(len(claim) - 1, 0, -1) if claim[i] == "-"]


def _fault(template: ResourceClaimTemplate, pod: Pod, claim: str) -> str:
    """Why the template makes no claim of that name for the pod; "" if it does."""
    name, shared = template.metadata.name, _shared_by(template)
    return _unlabelled(name, shared, pod, claim) or _unowned(name, shared, pod, claim)


def _unlabelled(template: str, shared: SharedBy, pod: Pod, claim: str) -> str:
    """Why the pod's label is not the end of the claim's name; "" if it is."""
    namespace, label = pod.metadata.namespace, shared.pod_label
    value = pod.metadata.labels.get(label)
    missing = f"claim {namespace}/{claim} does not exist"
    if not value:
        return (
            f"{missing}, and template {namespace}/{template} creates claims by the label {label!r} "
            f"(spec.sharedBy.podLabel), which pod {namespace}/{pod.metadata.name} does not have: set it in "
            "metadata.labels, or create the claim"
        )
    made = f"{template}-{value}"
    labelled = f"pod {namespace}/{pod.metadata.name}, whose label {label!r} has the value {value!r}"
    if len(made) > MAX_NAME or _NAME.fullmatch(made) is None:
        return (
            f"{missing}, and template {namespace}/{template} cannot create one for {labelled}: a claim can't be "
            f"named {made!r}. Names have up to {MAX_NAME} lower-case letters, digits, '-' and '.': choose a "
            "label with such values for spec.sharedBy.podLabel of the template"
        )
    if made != claim:
        return (
            f"{missing}, and template {namespace}/{template} creates {made!r} for {labelled}: name that claim, or "
            "create this one"
        )
    return ""


def _unowned(template: str, shared: SharedBy, pod: Pod, claim: str) -> str:
    """Why the pod's labels do not give the claim's owner; "" if they do, or it is to have none."""
    owner, meta = shared.owner, pod.metadata
    if owner is None:
        return ""
    for field, label in (("nameLabel", owner.name_label or shared.pod_label), ("uidLabel", owner.uid_label)):
        if not meta.labels.get(label):
            return (
                f"claim {meta.namespace}/{claim} does not exist, and template {meta.namespace}/{template} creates "
                f"it for the {owner.kind} in the label {label!r} (spec.sharedBy.owner.{field}), which pod "
                f"{meta.namespace}/{meta.name} does not have: set it in metadata.labels, or create the claim"
            )
    return ""


def _manifest(template: ResourceClaimTemplate, shared: SharedBy, pod: Pod, claim: str) -> Mapping[str, Any]:
    """The claim's manifest, with the finalizer from the start: it may be deleted before its mirror is created."""
    meta, inner = template.metadata, template.spec.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim,
            "namespace": meta.namespace,
            "labels": _without_parleys(inner.labels),
            "annotations": {**_without_parleys(inner.annotations), MADE_FROM_ANNOTATION: meta.name},
            "finalizers": [FINALIZER],
            "ownerReferences": _owners(shared, pod),
        },
        "spec": template.spec.spec.wire(),
    }


def _without_parleys(given: Mapping[str, str]) -> dict[str, str]:
    """Labels or annotations without those that mark Parley's and drivers' own objects: these are not inherited."""
    suffix = driver_annotation("")
    return {k: v for k, v in given.items() if not k.startswith(f"{GROUP}/") and not k.endswith(suffix)}


def _owners(shared: SharedBy, pod: Pod) -> list[dict[str, str]]:
    owner, labels = shared.owner, pod.metadata.labels
    if owner is None:
        return []
    name, uid = labels[owner.name_label or shared.pod_label], labels[owner.uid_label]
    return [{"apiVersion": owner.api_version, "kind": owner.kind, "name": name, "uid": uid}]
