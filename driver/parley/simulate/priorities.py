"""Sets pods' priorities from the PriorityClasses that they name, as the API server does. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from msgspec import convert

from parley.api.builtin import ObjectMeta, Struct
from parley.api.resources import PODS, Resource
from parley.simulate.objects import BadManifests, Manifest


class PriorityClass(Struct, frozen=True):
    """scheduling.k8s.io/v1."""

    value: int
    metadata: ObjectMeta = ObjectMeta()
    global_default: bool = False
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"


PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClass)

_SYSTEM_CLASSES: Mapping[str, PriorityClass] = {
    "system-cluster-critical": PriorityClass(2_000_000_000),
    "system-node-critical": PriorityClass(2_000_001_000),
}
"""The classes that every cluster has (pkg/apis/scheduling/helpers.go, v1.37.0)."""


def prioritized(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The objects without the PriorityClasses, whose values are in the pods. A pod that has a priority keeps it.

    Raises BadManifests with every pod whose class does not exist.
    """
    classes = {
        **_SYSTEM_CLASSES,
        **{one.name: convert(one.body, PriorityClass) for one in manifests if one.resource == PRIORITY_CLASSES},
    }
    if faults := list(_faults(manifests, classes)):
        raise BadManifests(faults)
    default = next((class_ for class_ in classes.values() if class_.global_default), None)
    others = (manifest for manifest in manifests if manifest.resource != PRIORITY_CLASSES)
    return [_with_priority(one, classes, default) if _lacks_priority(one) else one for one in others]


def _lacks_priority(manifest: Manifest) -> bool:
    return manifest.resource == PODS and _spec(manifest).get("priority") is None


def _spec(manifest: Manifest) -> Mapping[str, Any]:
    return manifest.body.get("spec") or {}


def _faults(manifests: Sequence[Manifest], classes: Mapping[str, PriorityClass]) -> Iterator[str]:
    for manifest in filter(_lacks_priority, manifests):
        name = _spec(manifest).get("priorityClassName")
        if name and name not in classes:
            yield (
                f"{manifest.source}: Pod {manifest.namespace}/{manifest.name}: spec.priorityClassName: no "
                f"PriorityClass {name!r} is in the files: add it, or set spec.priority"
            )


def _with_priority(
    manifest: Manifest, classes: Mapping[str, PriorityClass], default: PriorityClass | None
) -> Manifest:
    spec = _spec(manifest)
    class_ = classes.get(spec.get("priorityClassName") or "", default)
    if class_ is None:
        return manifest
    more = {"preemptionPolicy": class_.preemption_policy, **spec, "priority": class_.value}
    return replace(manifest, body={**manifest.body, "spec": more})
