"""The kinds of pods, templates, claims, classes and nodes that a soak uses, as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.soak.rules.mirrors import FAR, ZONE_OF
from tests.support.containers import requesting, using

from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import (
    CLAIMS,
    CLASSES,
    CONFIG_MAPS,
    NODES,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.simulate.kubelet import RUN_SECONDS

Json = dict[str, Any]
NAMESPACE = "default"
DRIVER = "device.parley.dev"
PARAMETERS = "parameters"
"""A ConfigMap."""

CLASS_KINDS: Mapping[str, Json] = {
    "gpu": {},
    "exact": {"placement": "Exact"},
    "shareable": {"shareable": True},
}
TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {
    "one": ("gpu", {}),
    "double": ("gpu", {"count": 2}),
    "large": ("gpu", {"memory": "60Gi"}),
    "share": ("gpu", {"shared": True}),
    "offered": ("exact", {}),
}
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
"""Named claims: the class, and what is asked for. Some are there only where their classes are."""

IMMEDIATE = frozenset({"standing", "standing-shared", "far-standing"})
STANDING_CLASS_KINDS: Mapping[str, Json] = {"standing": {}, "standing-shared": {"shareable": True}}
"""Classes of claims that are allocated without a pod."""

TOKENS = "tokens.parley.dev"
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
"""Claims of a second driver, which can be used everywhere, or in one zone."""

FAR_CLASS_KINDS: Mapping[str, Json] = {
    "far": {"driverName": FAR},
    "far-shared": {"driverName": FAR, "shareable": True},
    "far-standing": {"driverName": FAR},
}
FAR_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {
    "far": ("far", {}),
    "far-double": ("far", {"count": 2}),
    "far-share": ("far", {"shared": True}),
}
"""Claims of a standalone driver, which has devices of its own: their memory, by node."""

FAR_DEVICES: Mapping[str, Sequence[str]] = {"a": ("40Gi",), "b": ("40Gi", "40Gi"), "c": (), "d": ("80Gi", "80Gi")}

REFERRING_CLASS_KINDS: Mapping[str, Json] = {"referring": {}}
REFERRING_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {"referring": ("referring", {})}
"""The parameters of their claims are in a ConfigMap."""

ON_DEMAND_CLASS_KINDS: Mapping[str, Json] = {"run": {}, "run-shared": {"shareable": True}}
"""Classes of claims that are made when pods name them."""

MAKING_TEMPLATES: Mapping[str, str] = {"run": "run", "task": "run-shared"}
"""Templates that make these, and their classes."""

LASTING_CLASS_KINDS: Mapping[str, Json] = {
    "lasting": {"whenUnused": {"keepSeconds": 240}},
    "lasting-shared": {"shareable": True, "whenUnused": {"keepSeconds": 60}},
}
"""Classes whose claims stay allocated without users, for less than `rules/quiescence.QUIET`: at rest they are free."""

ZONE = "topology.kubernetes.io/zone"
NODE_KINDS: Mapping[str, tuple[str, Sequence[str], int]] = {
    "a": (ZONE_OF["a"], ("40Gi",), 1),
    "b": (ZONE_OF["b"], ("40Gi", "80Gi"), 1),
    "c": (ZONE_OF["c"], ("40Gi", "40Gi", "40Gi"), 1),
    "d": (ZONE_OF["d"], ("80Gi",), 4),
}
"""Zone, each device's memory, and the number of shares that each can be split into."""


def _apart() -> Json:
    term = {"labelSelector": {"matchLabels": {"group": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "one": (20, ("one",), (), {}),
    "pair": (10, ("one", "one"), (), {}),
    "double": (8, ("double",), (), {}),
    "large": (6, ("large",), (), {}),
    "share": (10, ("share",), (), {}),
    "offered": (12, ("offered",), (), {}),
    "offered-pair": (6, ("offered", "offered"), (), {}),
    "mixed": (5, ("offered", "one"), (), {}),
    "disk": (8, (), ("disk",), {}),
    "tape": (4, (), ("tape",), {}),
    "both": (6, ("one",), ("disk",), {}),
    "two-named": (3, (), ("disk", "tape"), {}),
    "common": (10, (), ("common",), {}),
    "common-one": (5, ("one",), ("common",), {}),
    "apart": (6, ("one",), (), {"affinity": _apart()}),
    "apart-offered": (4, ("offered",), (), {"affinity": _apart()}),
    "huge": (2, ("one",), (), {"containers": requesting(cpu="1000")}),
    "heavy": (6, ("one",), (), {"containers": requesting(cpu="5")}),
    "east": (5, ("one",), (), {"nodeSelector": {ZONE: "east"}}),
    "plain": (3, (), (), {}),
    "lost": (2, ("no-such-template",), (), {}),
}
"""How often, claims from templates, named claims, and the rest of the spec."""

KEPT_CLASS_KINDS: Mapping[str, Json] = {"kept": {}}
KEPT_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {"kept": ("kept", {})}
KEPT_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "one": (60, ("one",), (), {}),
    "double": (20, ("double",), (), {}),
    "kept": (8, ("kept",), (), {}),
    "kept-too": (4, ("one", "kept"), (), {}),
}
"""What else there is in worlds with priorities: a class of which nothing is taken, and more pods that take."""

CROWDING_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "heavy": (60, ("one",), (), {"containers": requesting(cpu="5")}),
    "heavy-pair": (30, ("offered", "one"), (), {"containers": requesting(cpu="5")}),
    "heavy-plain": (120, (), (), {"containers": requesting(cpu="5")}),
}
"""What else there is where pods fill nodes, so that their scheduler preempts those that it is binding."""

LASTING_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "cache": (10, (), ("cache",), {}),
    "cache-one": (5, ("one",), ("cache",), {}),
    "cache-apart": (3, (), ("cache",), {"affinity": _apart()}),
    "workspace": (15, (), ("workspace",), {}),
    "both-lasting": (4, (), ("cache", "workspace"), {}),
}

STANDING_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "standing": (10, (), ("standing",), {}),
    "standing-shared": (10, (), ("standing-shared",), {}),
    "standing-both": (4, ("one",), ("standing", "standing-shared"), {}),
}

ON_DEMAND_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "run-1": (8, (), ("run-1",), {}),
    "run-2": (6, (), ("run-2",), {}),
    "task": (14, (), ("task-1",), {}),
    "run-task": (4, (), ("run-1", "task-1"), {}),
}

TOKEN_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "licence": (8, ("licence",), (), {}),
    "licence-one": (15, ("licence", "one"), (), {}),
    "licences-double": (8, ("double", "licences"), (), {}),
    "seat": (6, (), ("seat",), {}),
    "seat-disk": (6, ("licence",), ("seat", "disk"), {}),
    "seat-offered": (4, ("offered",), ("seat",), {}),
    "zonal-one": (10, ("zonal", "one"), (), {}),
    "zonal-offered": (5, ("offered", "zonal"), (), {}),
    "zone": (10, (), ("zone",), {}),
    "zone-one": (8, ("one",), ("zone",), {}),
}

REFERRING_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "referring": (20, ("referring",), (), {}),
    "referring-pair": (5, ("referring", "one"), (), {}),
    "manual": (10, (), ("manual",), {}),
}

FAR_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "far": (50, ("far",), (), {}),
    "far-pair": (16, ("far", "far"), (), {}),
    "far-double": (16, ("far-double",), (), {}),
    "far-share": (16, ("far-share",), (), {}),
    "far-one": (24, ("far", "one"), (), {}),
    "far-offered": (12, ("far", "offered"), (), {}),
    "far-heavy": (10, ("far",), (), {"containers": requesting(cpu="5")}),
    "far-apart": (10, ("far",), (), {"affinity": _apart()}),
    "drive": (20, (), ("drive",), {}),
    "drive-far": (10, ("far",), ("drive",), {}),
    "array": (28, (), ("array",), {}),
    "array-common": (8, (), ("array", "common"), {}),
    "standing-far": (16, (), ("standing-far",), {}),
}

VIEW_CLASS_KINDS: Mapping[str, Json] = {"view": {}}
VIEW_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {"view": ("view", {})}
VIEW_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "view": (20, ("view",), (), {}),
    "view-one": (5, ("view", "one"), (), {}),
    "view-common": (10, ("view",), ("common",), {}),
}
"""What else there is where allocations need another one: see `rules/views`."""

GUEST = "guest"
"""A class to which claims yield what they reserve."""


def _room(amount: str) -> list[Json]:
    return requesting(**{"example.com/room": amount})


YIELDING_CLASS_KINDS: Mapping[str, Json] = {GUEST: {}}
YIELDING_TEMPLATE_KINDS: Mapping[str, tuple[str, Json]] = {GUEST: (GUEST, {})}
YIELDING_POD_KINDS: Mapping[str, tuple[int, Sequence[str], Sequence[str], Json]] = {
    "guest": (12, (GUEST,), (), {"containers": _room("2")}),
    "guest-one": (5, (GUEST, "one"), (), {"containers": _room("1")}),
    "other": (8, ("one",), (), {"containers": _room("1")}),
    "other-large": (5, ("one",), (), {"containers": _room("3")}),
}
"""What else there is where reserved room yields: pods that request of it, and may have it or not."""

ALL_POD_KINDS = {
    **POD_KINDS,
    **KEPT_POD_KINDS,
    **CROWDING_POD_KINDS,
    **LASTING_POD_KINDS,
    **STANDING_POD_KINDS,
    **ON_DEMAND_POD_KINDS,
    **REFERRING_POD_KINDS,
    **TOKEN_POD_KINDS,
    **VIEW_POD_KINDS,
    **YIELDING_POD_KINDS,
    **FAR_POD_KINDS,
}
ALL_TEMPLATE_KINDS = {
    **TEMPLATE_KINDS,
    **KEPT_TEMPLATE_KINDS,
    **REFERRING_TEMPLATE_KINDS,
    **TOKEN_TEMPLATE_KINDS,
    **VIEW_TEMPLATE_KINDS,
    **YIELDING_TEMPLATE_KINDS,
    **FAR_TEMPLATE_KINDS,
}


def claim_kinds(classes: Mapping[str, Json]) -> list[str]:
    """The named claims of those classes."""
    return [name for name, (class_name, _) in CLAIM_KINDS.items() if class_name in classes]


def pod(
    name: str,
    kind: str,
    *,
    node: str = "",
    seconds: float | None = None,
    scheduler: str = "",
    wishes: Json | None = None,
) -> Json:
    """A pod of that kind: put on a node by its creator if one is named, and ending by itself after `seconds`.

    `scheduler` is the one that it names; without it the cluster's own places it. `wishes` are labels, annotations
    and more of the spec.
    """
    _, templates, claims, spec = ALL_POD_KINDS[kind]
    more = {"labels": {}, "annotations": {}, "spec": {}, **(wishes or {})}
    entries: list[Json] = [{"name": f"gpu-{i}", "resourceClaimTemplateName": t} for i, t in enumerate(templates)]
    entries += [{"name": claim, "resourceClaimName": claim} for claim in claims]
    numbers = {claim.rpartition("-")[0]: claim.rpartition("-")[2] for claim in claims if is_on_demand(claim)}
    body: Json = {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "group": "apart" if "affinity" in spec else "other",
                "kind": kind,
                **numbers,
                **more["labels"],
            },
            "annotations": {**({RUN_SECONDS: str(seconds)} if seconds is not None else {}), **more["annotations"]},
        },
        "spec": {
            "resourceClaims": entries,
            "containers": [{"name": "main", "image": "none"}],
            **spec,
            **more["spec"],
        },
    }
    body["spec"]["containers"] = using(body["spec"]["containers"], entries)
    if node:
        body["spec"]["nodeName"] = node
    if scheduler:
        body["spec"]["schedulerName"] = scheduler
    return typed(PODS, body)


def class_(name: str, kind: Json) -> Json:
    return typed(CLASSES, {"metadata": {"name": name}, "driverName": DRIVER, **kind})


def template(name: str) -> Json:
    spec = _claim_spec(*ALL_TEMPLATE_KINDS[name])
    return typed(TEMPLATES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": spec}})


def is_on_demand(claim: str) -> bool:
    """Whether a template makes the claim."""
    return CLAIM_KINDS[claim][0] in ON_DEMAND_CLASS_KINDS


def making_template(name: str) -> Json:
    class_name = MAKING_TEMPLATES[name]
    parameters = next(parameters for kind, parameters in CLAIM_KINDS.values() if kind == class_name)
    spec = {"resourceClassName": class_name, "parameters": parameters}
    shared = {"podLabel": name}
    return typed(
        TEMPLATES,
        {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"sharedBy": shared, "spec": spec}},
    )


def claim(name: str) -> Json:
    class_name, parameters = CLAIM_KINDS[name]
    spec = _claim_spec(class_name, parameters)
    if class_name in IMMEDIATE:
        spec["allocationMode"] = "Immediate"
    return typed(CLAIMS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


def _claim_spec(class_name: str, parameters: Json) -> Json:
    if class_name in REFERRING_CLASS_KINDS:
        return {"resourceClassName": class_name, "parametersRef": {"kind": "ConfigMap", "name": PARAMETERS}}
    return {"resourceClassName": class_name, "parameters": parameters}


def config_map(text: str = "{}") -> Json:
    """The one with the parameters, which say nothing if they are not given."""
    metadata = {"name": PARAMETERS, "namespace": NAMESPACE}
    return typed(CONFIG_MAPS, {"metadata": metadata, "data": {"parameters": text}})


def node(name: str) -> Json:
    labels = {"kubernetes.io/hostname": name, ZONE: NODE_KINDS[name][0]}
    allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", "example.com/room": "4"}
    return typed(NODES, {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})


def slice_(node_name: str, generation: int, missing: frozenset[int] = frozenset()) -> Json:
    """What a node publishes; `missing` are the numbers of devices that it does not."""
    _, memories, shares = NODE_KINDS[node_name]
    devices = [
        {"name": f"gpu-{i}", "capacity": {"memory": {"value": memory}, "slices": {"value": str(shares)}}}
        for i, memory in enumerate(memories)
        if i not in missing
    ]
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": devices}
    metadata = {"name": f"{node_name}-devices", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
    return typed(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})


def far_slice(node_name: str, generation: int, missing: frozenset[int] = frozenset()) -> Json:
    """What the standalone driver's node part publishes."""
    devices = [
        {"name": f"far-{i}", "capacity": {"memory": {"value": memory}, "slices": {"value": "2"}}}
        for i, memory in enumerate(FAR_DEVICES[node_name])
        if i not in missing
    ]
    pool = {"name": node_name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": FAR, "nodeName": node_name, "pool": pool, "devices": devices}
    metadata = {"name": f"{node_name}-far", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
    return typed(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})


def typed(resource: Resource[Any], body: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
