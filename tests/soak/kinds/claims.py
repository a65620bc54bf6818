"""Named claims of a soak, and their JSON. Users create them, or Parley does from a template (on demand)."""

from collections.abc import Mapping

from tests.soak.kinds.classes import ON_DEMAND_CLASS_KINDS, ON_DEMAND_TEMPLATES, claim_spec
from tests.soak.kinds.names import NAMESPACE, Json, typed

from parley.api.resources import CLAIMS, TEMPLATES

CLAIM_KINDS: Mapping[str, tuple[str, Json]] = {
    "disk": ("gpu", {}),
    "tape": ("gpu", {"count": 2}),
    "common": ("shareable", {}),
    "cache": ("lasting", {}),
    "workspace": ("lasting-shared", {"shared": True}),
    "standing": ("standing", {}),
    "standing-shared": ("standing-shared", {"shared": True}),
    "manual": ("referring", {}),
    "seat": ("seats", {}),
    "zone": ("zonal", {}),
    "run-1": ("run", {}),
    "run-2": ("run", {}),
    "task-1": ("run-shared", {"shared": True}),
    "drive": ("far", {}),
    "array": ("far-shared", {}),
    "standing-far": ("far-standing", {}),
}
"""The class, and the parameters. A claim is only in worlds that have its class."""

IMMEDIATE = frozenset({"standing", "standing-shared", "far-standing"})
"""Classes whose named claims have `allocationMode: Immediate`."""


def claim_kinds(classes: Mapping[str, Json]) -> list[str]:
    """The named claims of those classes."""
    return [name for name, (class_name, _) in CLAIM_KINDS.items() if class_name in classes]


def is_on_demand(claim: str) -> bool:
    """Whether Parley creates the claim from a template."""
    return CLAIM_KINDS[claim][0] in ON_DEMAND_CLASS_KINDS


def on_demand_template(name: str) -> Json:
    """A ResourceClaimTemplate from which Parley creates one claim for all pods with the same label."""
    class_name = ON_DEMAND_TEMPLATES[name]
    parameters = next(parameters for kind, parameters in CLAIM_KINDS.values() if kind == class_name)
    spec = {"resourceClassName": class_name, "parameters": parameters}
    shared = {"podLabel": name}
    return typed(
        TEMPLATES,
        {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"sharedBy": shared, "spec": spec}},
    )


def claim(name: str) -> Json:
    """A ResourceClaim of that kind, as its users create it."""
    class_name, parameters = CLAIM_KINDS[name]
    spec = claim_spec(class_name, parameters)
    if class_name in IMMEDIATE:
        spec["allocationMode"] = "Immediate"
    return typed(CLAIMS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
