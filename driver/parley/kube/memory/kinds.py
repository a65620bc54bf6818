"""The server's strategy for each kind: its subresources, generation, list maps, defaults and rules.

A kind that is not listed is served too, without rules of its own: as a custom resource if its group is not one of
Kubernetes'. Source: the kinds' strategies in k8s.io/kubernetes/pkg/registry, and the struct tags of
k8s.io/api (1.37).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

from pydantic import BaseModel

from parley.api import models
from parley.api.names import GROUP
from parley.api.resources import Resource
from parley.kube.memory import builtin_claims, pods
from parley.kube.memory.errors import Fault
from parley.kube.memory.schema import Check, checker
from parley.kube.memory.structural_schema import broken_rules, list_maps, nulls, ruled, schema_of, settled

Json = dict[str, Any]
Fields = tuple[str, ...]
"""Field names from the object's root, without indexes and keys of lists."""

Rule = Callable[[Json | None, Json], Sequence[Fault]]
"""Returns the faults of the new object, given the old one, which is None for a creation."""


def without_nulls(value: Any) -> Any:
    """The value without null fields, which built-in kinds do not have."""
    if isinstance(value, dict):
        return {name: without_nulls(child) for name, child in value.items() if child is not None}
    if isinstance(value, list):
        return [without_nulls(child) for child in value]
    return value


class Generation(Enum):
    """Which changes raise `metadata.generation`."""

    NEVER = "never"
    SPEC = "spec"
    ALL_BUT_STATUS = "all but metadata and status"
    ALL = "all but metadata"


_EVERYWHERE: Mapping[Fields, Fields] = {
    ("metadata", "ownerReferences"): ("uid",),
    ("metadata", "finalizers"): (),
    ("status", "conditions"): ("type",),
}
"""List maps that every kind has. A list without key fields is a set."""


@dataclass(frozen=True)
class Traits:
    """How one kind is served. With `status_on_create` a status is kept at creation, as for nodes;
    `metadata_with_status` are the fields of the metadata that a write of the status changes too.

    `settle` converts an object to its stored form, `defaults` adds a new object's defaults, `adjust` makes the
    changes that follow from a change (old, new). `nulls` returns fields that an apply must not leave null,
    `schema` violations of the CRD's schema.
    """

    custom: bool = False
    status: bool = False
    status_on_create: bool = False
    metadata_with_status: frozenset[str] = frozenset()
    generation: Generation = Generation.NEVER
    list_maps: Mapping[Fields, Fields] = field(default_factory=lambda: _EVERYWHERE)
    atomic: frozenset[Fields] = frozenset()
    schema: Check | None = None
    settle: Callable[[Json], Json] = without_nulls
    nulls: Callable[[Json], Sequence[Fault]] = lambda _: ()
    defaults: Callable[[Json], Json] = lambda body: body
    adjust: Callable[[Json, Json], Json] = lambda _, new: new
    rules: tuple[Rule, ...] = ()


def _maps(own: Mapping[Fields, Fields]) -> Mapping[Fields, Fields]:
    return {**_EVERYWHERE, **own}


def _ours(model: type[BaseModel], *, status: bool = False) -> Traits:
    """The traits of one of Parley's kinds, from its CRD, which is generated from the model."""
    schema = schema_of(model)
    with_rules = ruled(schema)
    return Traits(
        custom=True,
        status=status,
        generation=Generation.ALL_BUT_STATUS if status else Generation.ALL,
        list_maps=_maps(dict(list_maps(schema))),
        schema=checker(schema),
        settle=lambda body: settled(body, schema),
        nulls=lambda body: list(nulls(body, schema)),
        rules=(lambda old, new: list(broken_rules(old, new, with_rules)),),
    )


_LABELLED = frozenset({"labels", "annotations", "finalizers"})
_POD = Traits(
    status=True,
    metadata_with_status=_LABELLED,
    generation=Generation.SPEC,
    list_maps=_maps(
        {
            ("spec", "containers"): ("name",),
            ("spec", "initContainers"): ("name",),
            ("spec", "resourceClaims"): ("name",),
            ("spec", "containers", "resources", "claims"): ("name",),
            ("spec", "schedulingGates"): ("name",),
            ("spec", "volumes"): ("name",),
            ("status", "resourceClaimStatuses"): ("name",),
        }
    ),
    defaults=pods.with_defaults,
    rules=(pods.spec_rules,),
)
_NODE = Traits(
    status=True,
    status_on_create=True,
    metadata_with_status=_LABELLED | {"ownerReferences"},
    list_maps=_maps({("status", "addresses"): ("type",)}),
)
_BUILTIN_CLAIM = Traits(
    status=True,
    list_maps=_maps(
        {
            ("status", "reservedFor"): ("uid",),
            ("status", "devices"): ("driver", "device", "pool", "shareID"),
            ("status", "devices", "conditions"): ("type",),
        }
    ),
    atomic=frozenset({("status", "devices", "data"), ("status", "allocation", "nodeSelector")}),
    adjust=builtin_claims.without_deallocated,
    rules=(builtin_claims.rules,),
)

_KINDS: Mapping[tuple[str, str], Traits] = {
    ("", "pods"): _POD,
    ("", "nodes"): _NODE,
    ("resource.k8s.io", "resourceclaims"): _BUILTIN_CLAIM,
    ("resource.k8s.io", "resourceclaimtemplates"): Traits(rules=(builtin_claims.template_rules,)),
    ("resource.k8s.io", "resourceslices"): Traits(generation=Generation.SPEC),
    ("policy", "poddisruptionbudgets"): Traits(status=True, generation=Generation.SPEC),
}
_OURS: Mapping[str, Callable[[], Traits]] = {
    "resourceclasses": lambda: _ours(models.ResourceClass, status=True),
    "resourceclaimtemplates": lambda: _ours(models.ResourceClaimTemplate),
    "claimreleases": lambda: _ours(models.ClaimRelease),
    "podschedulings": lambda: _ours(models.PodScheduling),
    "resourceclaims": lambda: _ours(models.ResourceClaim, status=True),
}
"""Created when first needed: a schema takes some milliseconds."""

_BUILTIN = Traits()
_CUSTOM = Traits(custom=True, generation=Generation.ALL)


@cache
def _traits(group: str, plural: str) -> Traits:
    if group == GROUP and plural in _OURS:
        return _OURS[plural]()
    known = _KINDS.get((group, plural))
    if known is not None:
        return known
    return _CUSTOM if is_custom(group) else _BUILTIN


def is_custom(group: str) -> bool:
    """Whether kinds of the group are CustomResourceDefinitions."""
    return "." in group and not group.endswith(".k8s.io")


def traits(resource: Resource[Any]) -> Traits:
    """The kind's traits."""
    return _traits(resource.group, resource.plural)
