"""The five CustomResourceDefinitions: how each kind is served, named and shown by kubectl. Pure.

What the objects look like comes from the models (`structural`); names and scope come from `parley.api.resources`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from parley.api.crd.structural import structural_schema
from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES, POD_SCHEDULINGS, TEMPLATES, Resource

HEADER = "# Generated from the models by `make crds`: edit driver/parley/api/models/ instead.\n"
_CATEGORY = "parley"
_WIDTH = 115


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`, after NAME; a `wide` one is shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def entry(self) -> dict[str, Any]:
        """As a version's `additionalPrinterColumns` have it."""
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


def _condition(type_: str) -> Column:
    """Whether a condition is True. kubectl's columns know JSONPath and nothing else."""
    return Column(type_, f'.status.conditions[?(@.type=="{type_}")].status')


_READY_REASON = Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True)
_AGE = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True)
class Kind:
    """What a kind's CRD has beyond its model. `status`: whether the status is written apart from the rest,
    `selectable`: fields, besides name and namespace, that a field selector may name."""

    resource: Resource[Any]
    short_names: tuple[str, str]
    columns: tuple[Column, ...]
    status: bool = False
    selectable: tuple[str, ...] = ()


KINDS = (
    Kind(
        CLASSES,
        ("prclass", "prclasses"),
        (
            Column("Driver", ".driverName"),
            _condition("Ready"),
            Column("Total", ".status.total", "integer"),
            Column("Free", ".status.free", "integer"),
            _AGE,
            Column("Shareable", ".shareable", "boolean", wide=True),
            Column("Placement", ".placement", wide=True),
            Column("Node-Part", ".nodePart", wide=True),
            _READY_REASON,
        ),
        status=True,
    ),
    Kind(
        CLAIMS,
        ("prclaim", "prclaims"),
        (
            Column("Class", ".spec.resourceClassName"),
            _condition("Allocated"),
            _condition("Ready"),
            Column("Driver", ".status.driverName"),
            _AGE,
            Column("Mode", ".spec.allocationMode", wide=True),
            Column("Reserved-For", ".status.reservedFor[*].name", wide=True),
            Column("Kept-Until", ".status.keptUntil", wide=True),
            _READY_REASON,
            Column("Allocation", '.status.conditions[?(@.type=="Allocated")].message', wide=True),
        ),
        status=True,
    ),
    Kind(
        TEMPLATES,
        ("prtemplate", "prtemplates"),
        (
            Column("Class", ".spec.spec.resourceClassName"),
            _AGE,
            Column("Mode", ".spec.spec.allocationMode", wide=True),
        ),
    ),
    Kind(
        POD_SCHEDULINGS,
        ("psched", "pscheds"),
        (
            Column("Candidates", ".status.candidates", "integer"),
            Column("Viable", ".status.viable", "integer"),
            Column("Selected", ".spec.selectedNode"),
            Column("Waiting-For", ".status.waitingFor"),
            _AGE,
            Column("Round", ".spec.round", "integer", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
    ),
    Kind(
        CLAIM_RELEASES,
        ("prrelease", "prreleases"),
        (
            Column("Namespace", ".spec.claim.namespace"),
            Column("Claim", ".spec.claim.name"),
            Column("Node", ".spec.nodeName"),
            Column("Driver", ".spec.driverName"),
            _AGE,
            Column("Class", ".spec.resourceClassName", wide=True),
            Column("Cleared", ".status.allocationCleared", "boolean", wide=True),
        ),
        selectable=("spec.nodeName",),
    ),
)


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    resource = kind.resource
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(kind.short_names),
                "categories": [_CATEGORY],
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    selectable = [{"jsonPath": f".{field}"} for field in kind.selectable]
    return {
        "name": kind.resource.version,
        "served": True,
        "storage": True,
        **({"subresources": {"status": {}}} if kind.status else {}),
        **({"selectableFields": selectable} if selectable else {}),
        "additionalPrinterColumns": [column.entry() for column in kind.columns],
        "schema": {"openAPIV3Schema": structural_schema(kind.resource.type)},
    }


def manifests() -> Iterator[tuple[str, str]]:
    """File name and YAML of each definition."""
    for kind in KINDS:
        text = yaml.safe_dump(definition(kind), sort_keys=False, allow_unicode=True, width=_WIDTH)
        yield f"{kind.resource.plural}.yaml", HEADER + text
