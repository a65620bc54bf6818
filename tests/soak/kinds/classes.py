"""Classes and claim templates of a soak, by the worlds in which they are, and their JSON.

A class is what its object says besides its name; a template is the class of its claims, with their parameters.
"""

from collections.abc import Mapping

from tests.soak.kinds.names import DRIVER, NAMESPACE, PARAMETERS, STANDALONE_DRIVER, TOKENS, Json, typed

from parley.api.resources import CLASSES, CONFIG_MAPS, TEMPLATES

CLASS_KINDS: Mapping[str, Json] = {
    "gpu": {},
    "exact": {"placement": "Exact"},
    "shareable": {"shareable": True},
}
"""Of every world."""

TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {
    "one": ("gpu", {}),
    "double": ("gpu", {"count": 2}),
    "large": ("gpu", {"memory": "60Gi"}),
    "share": ("gpu", {"shared": True}),
    "offered": ("exact", {}),
}
"""Of every world: the class, and the parameters."""

IMMEDIATE_CLASS_KINDS: Mapping[str, Json] = {"standing": {}, "standing-shared": {"shareable": True}}
"""Classes of immediate claims, which are allocated without a pod."""

ON_DEMAND_CLASS_KINDS: Mapping[str, Json] = {"run": {}, "run-shared": {"shareable": True}}
"""Classes of claims that Parley creates when pods name them."""

ON_DEMAND_TEMPLATES: Mapping[str, str] = {"run": "run", "task": "run-shared"}
"""Templates from which Parley creates these (`sharedBy`), and their classes."""

KEPT_CLAIMS_CLASS_KINDS: Mapping[str, Json] = {
    "lasting": {"whenUnused": {"keepSeconds": 240}},
    "lasting-shared": {"shareable": True, "whenUnused": {"keepSeconds": 60}},
}
"""Classes whose claims stay allocated without users (`whenUnused`), for less than `quiescence.QUIET`: at rest
they are free."""

PREEMPTION_CLASS_KINDS: Mapping[str, Json] = {"kept": {}}
"""In worlds with priorities: nobody is evicted for claims of this class."""

PREEMPTION_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {"kept": ("kept", {})}

VIEW_CLASS_KINDS: Mapping[str, Json] = {"view": {}}
"""In worlds where allocations need another one (`rules.views`)."""

VIEW_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {"view": ("view", {})}

BORROWER = "guest"
"""The class of pods that may have the room that claims reserve, where it yields."""

YIELDING_CLASS_KINDS: Mapping[str, Json] = {BORROWER: {}}

YIELDING_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {BORROWER: (BORROWER, {})}

PARAMETER_REFERENCE_CLASS_KINDS: Mapping[str, Json] = {"referring": {}}

PARAMETER_REFERENCE_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {"referring": ("referring", {})}
"""The parameters of their claims are in the ConfigMap `PARAMETERS`."""

ZONAL = "zonal"
"""A class whose tokens can be used in the zone of the node for which they were allocated."""

TOKEN_CLASS_KINDS: Mapping[str, Json] = {
    "licences": {"driverName": TOKENS, "parameters": {"pool": 3}, "nodePart": "None"},
    "seats": {"driverName": TOKENS, "parameters": {"pool": 1}, "nodePart": "None", "shareable": True},
    ZONAL: {"driverName": TOKENS, "parameters": {"pool": 3}, "nodePart": "None", "shareable": True},
}

TOKEN_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {
    "licence": ("licences", {}),
    "licences": ("licences", {"count": 2}),
    "zonal": (ZONAL, {}),
}
"""Claims of the tokens driver, which can be used everywhere, or in one zone."""

STANDALONE_CLASS_KINDS: Mapping[str, Json] = {
    "far": {"driverName": STANDALONE_DRIVER},
    "far-shared": {"driverName": STANDALONE_DRIVER, "shareable": True},
    "far-standing": {"driverName": STANDALONE_DRIVER},
}

STANDALONE_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {
    "far": ("far", {}),
    "far-double": ("far", {"count": 2}),
    "far-share": ("far", {"shared": True}),
}
"""Claims of the standalone driver, which has devices of its own."""

ALL_TEMPLATE_KINDS = {
    **TEMPLATE_KINDS,
    **PREEMPTION_TEMPLATE_KINDS,
    **PARAMETER_REFERENCE_TEMPLATE_KINDS,
    **TOKEN_TEMPLATE_KINDS,
    **VIEW_TEMPLATE_KINDS,
    **YIELDING_TEMPLATE_KINDS,
    **STANDALONE_TEMPLATE_KINDS,
}


def class_(name: str, kind: Json) -> Json:
    """A ResourceClass."""
    return typed(CLASSES, {"metadata": {"name": name}, "driverName": DRIVER, **kind})


def template(name: str) -> Json:
    """A ResourceClaimTemplate of that kind."""
    spec = claim_spec(*ALL_TEMPLATE_KINDS[name])
    return typed(TEMPLATES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": spec}})


def claim_spec(class_name: str, parameters: Json) -> Json:
    """The spec of a claim: its parameters are in it, or in the ConfigMap."""
    if class_name in PARAMETER_REFERENCE_CLASS_KINDS:
        return {"resourceClassName": class_name, "parametersRef": {"kind": "ConfigMap", "name": PARAMETERS}}
    return {"resourceClassName": class_name, "parameters": parameters}


def config_map(text: str = "{}") -> Json:
    """The ConfigMap with parameters: by default none are set."""
    metadata = {"name": PARAMETERS, "namespace": NAMESPACE}
    return typed(CONFIG_MAPS, {"metadata": metadata, "data": {"parameters": text}})
