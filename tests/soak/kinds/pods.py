"""Kinds of pods of a soak, by the worlds in which they are, and their JSON."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.soak.kinds.claims import is_on_demand
from tests.soak.kinds.classes import BORROWER
from tests.soak.kinds.names import NAMESPACE, ZONE, Json, typed
from tests.support.containers import requesting, using

from parley.api.resources import PODS
from parley.simulate.kubelet import RUN_SECONDS


class PodKind(NamedTuple):
    """How often a pod is of this kind (a weight), its templates, its named claims, and the rest of its spec."""

    weight: int
    templates: Sequence[str]
    claims: Sequence[str]
    spec: Json


def _apart() -> Json:
    """Anti-affinity between all pods that have it."""
    term = {"labelSelector": {"matchLabels": {"group": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _room(amount: str) -> list[Json]:
    """Containers that request the extended resource that claims reserve."""
    return requesting(**{"example.com/room": amount})


POD_KINDS: Mapping[str, PodKind] = {
    "one": PodKind(20, ("one",), (), {}),
    "pair": PodKind(10, ("one", "one"), (), {}),
    "double": PodKind(8, ("double",), (), {}),
    "large": PodKind(6, ("large",), (), {}),
    "share": PodKind(10, ("share",), (), {}),
    "offered": PodKind(12, ("offered",), (), {}),
    "offered-pair": PodKind(6, ("offered", "offered"), (), {}),
    "mixed": PodKind(5, ("offered", "one"), (), {}),
    "disk": PodKind(8, (), ("disk",), {}),
    "tape": PodKind(4, (), ("tape",), {}),
    "both": PodKind(6, ("one",), ("disk",), {}),
    "two-named": PodKind(3, (), ("disk", "tape"), {}),
    "common": PodKind(10, (), ("common",), {}),
    "common-one": PodKind(5, ("one",), ("common",), {}),
    "apart": PodKind(6, ("one",), (), {"affinity": _apart()}),
    "apart-offered": PodKind(4, ("offered",), (), {"affinity": _apart()}),
    "huge": PodKind(2, ("one",), (), {"containers": requesting(cpu="1000")}),
    "heavy": PodKind(6, ("one",), (), {"containers": requesting(cpu="5")}),
    "east": PodKind(5, ("one",), (), {"nodeSelector": {ZONE: "east"}}),
    "plain": PodKind(3, (), (), {}),
    "lost": PodKind(2, ("no-such-template",), (), {}),
}
"""Of every world."""

PREEMPTION_POD_KINDS: Mapping[str, PodKind] = {
    "one": PodKind(60, ("one",), (), {}),
    "double": PodKind(20, ("double",), (), {}),
    "kept": PodKind(8, ("kept",), (), {}),
    "kept-too": PodKind(4, ("one", "kept"), (), {}),
}
"""In worlds with priorities: pods with a class for which nobody is evicted, and more pods for which others are."""

FULL_NODES_POD_KINDS: Mapping[str, PodKind] = {
    "heavy": PodKind(60, ("one",), (), {"containers": requesting(cpu="5")}),
    "heavy-pair": PodKind(30, ("offered", "one"), (), {"containers": requesting(cpu="5")}),
    "heavy-plain": PodKind(120, (), (), {"containers": requesting(cpu="5")}),
}
"""In worlds where pods fill nodes, so that their scheduler preempts pods that it is binding."""

KEPT_CLAIMS_POD_KINDS: Mapping[str, PodKind] = {
    "cache": PodKind(10, (), ("cache",), {}),
    "cache-one": PodKind(5, ("one",), ("cache",), {}),
    "cache-apart": PodKind(3, (), ("cache",), {"affinity": _apart()}),
    "workspace": PodKind(15, (), ("workspace",), {}),
    "both-lasting": PodKind(4, (), ("cache", "workspace"), {}),
}
"""In worlds where some claims stay allocated without users."""

IMMEDIATE_POD_KINDS: Mapping[str, PodKind] = {
    "standing": PodKind(10, (), ("standing",), {}),
    "standing-shared": PodKind(10, (), ("standing-shared",), {}),
    "standing-both": PodKind(4, ("one",), ("standing", "standing-shared"), {}),
}
"""In worlds with immediate claims."""

ON_DEMAND_POD_KINDS: Mapping[str, PodKind] = {
    "run-1": PodKind(8, (), ("run-1",), {}),
    "run-2": PodKind(6, (), ("run-2",), {}),
    "task": PodKind(14, (), ("task-1",), {}),
    "run-task": PodKind(4, (), ("run-1", "task-1"), {}),
}
"""In worlds where Parley creates claims on demand."""

TOKEN_POD_KINDS: Mapping[str, PodKind] = {
    "licence": PodKind(8, ("licence",), (), {}),
    "licence-one": PodKind(15, ("licence", "one"), (), {}),
    "licences-double": PodKind(8, ("double", "licences"), (), {}),
    "seat": PodKind(6, (), ("seat",), {}),
    "seat-disk": PodKind(6, ("licence",), ("seat", "disk"), {}),
    "seat-offered": PodKind(4, ("offered",), ("seat",), {}),
    "zonal-one": PodKind(10, ("zonal", "one"), (), {}),
    "zonal-offered": PodKind(5, ("offered", "zonal"), (), {}),
    "zone": PodKind(10, (), ("zone",), {}),
    "zone-one": PodKind(8, ("one",), ("zone",), {}),
}
"""In worlds with the tokens driver."""

PARAMETER_REFERENCE_POD_KINDS: Mapping[str, PodKind] = {
    "referring": PodKind(20, ("referring",), (), {}),
    "referring-pair": PodKind(5, ("referring", "one"), (), {}),
    "manual": PodKind(10, (), ("manual",), {}),
}
"""In worlds where parameters are in a ConfigMap."""

STANDALONE_POD_KINDS: Mapping[str, PodKind] = {
    "far": PodKind(50, ("far",), (), {}),
    "far-pair": PodKind(16, ("far", "far"), (), {}),
    "far-double": PodKind(16, ("far-double",), (), {}),
    "far-share": PodKind(16, ("far-share",), (), {}),
    "far-one": PodKind(24, ("far", "one"), (), {}),
    "far-offered": PodKind(12, ("far", "offered"), (), {}),
    "far-heavy": PodKind(10, ("far",), (), {"containers": requesting(cpu="5")}),
    "far-apart": PodKind(10, ("far",), (), {"affinity": _apart()}),
    "drive": PodKind(20, (), ("drive",), {}),
    "drive-far": PodKind(10, ("far",), ("drive",), {}),
    "array": PodKind(28, (), ("array",), {}),
    "array-common": PodKind(8, (), ("array", "common"), {}),
    "standing-far": PodKind(16, (), ("standing-far",), {}),
}
"""In worlds with a standalone driver."""

VIEW_POD_KINDS: Mapping[str, PodKind] = {
    "view": PodKind(20, ("view",), (), {}),
    "view-one": PodKind(5, ("view", "one"), (), {}),
    "view-common": PodKind(10, ("view",), ("common",), {}),
}
"""What else there is where allocations need another one: see `rules/views`."""

YIELDING_POD_KINDS: Mapping[str, PodKind] = {
    "guest": PodKind(12, (BORROWER,), (), {"containers": _room("2")}),
    "guest-one": PodKind(5, (BORROWER, "one"), (), {"containers": _room("1")}),
    "other": PodKind(8, ("one",), (), {"containers": _room("1")}),
    "other-large": PodKind(5, ("one",), (), {"containers": _room("3")}),
}
"""In worlds where reserved room yields: pods that request that room, some with the class to which it yields."""

ALL_POD_KINDS = {
    **POD_KINDS,
    **PREEMPTION_POD_KINDS,
    **FULL_NODES_POD_KINDS,
    **KEPT_CLAIMS_POD_KINDS,
    **IMMEDIATE_POD_KINDS,
    **ON_DEMAND_POD_KINDS,
    **PARAMETER_REFERENCE_POD_KINDS,
    **TOKEN_POD_KINDS,
    **VIEW_POD_KINDS,
    **YIELDING_POD_KINDS,
    **STANDALONE_POD_KINDS,
}


def pod(
    name: str,
    kind: str,
    *,
    node: str = "",
    seconds: float | None = None,
    scheduler: str = "",
    wishes: Json | None = None,
) -> Json:
    """A pod of that kind. Its creator puts it on `node` if that is given; it succeeds by itself after `seconds`.

    `scheduler` is its schedulerName; without it the cluster's own scheduler places it. `wishes` are labels,
    annotations and more of the spec.
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
