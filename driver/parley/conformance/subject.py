"""The subject of a run: a driver's name, a class of it, parameters for claims, and nodes to ask about.

It is read from the manifests that a driver's author has anyway: a ResourceClass, a claim or a template, and other
objects that the driver reads (Nodes, ResourceSlices).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from parley.api.resources import CLAIMS, CLASSES, NODES, TEMPLATES
from parley.simulate.objects import Manifest

Json = Mapping[str, Any]

NODE_NAMES = ("node-1", "node-2")
"""The nodes if the manifests have none."""

MOST_NODES = 4
"""The most nodes of a real cluster that are used."""

_CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110"}


class BadSubject(Exception):
    """Raised if the manifests lack something that the checks need; the message says what to add."""


@dataclass(frozen=True)
class Subject:
    """The driver to check. `class_body` is the class without its name, `parameters` are those of each claim,
    `others` are objects to create as they are."""

    driver: str
    class_body: Json
    parameters: Json | None
    nodes: tuple[str, ...]
    others: tuple[Manifest, ...] = ()

    @classmethod
    def of(cls, manifests: Sequence[Manifest], class_name: str = "") -> Self:
        """The subject in manifests; `class_name` chooses among several classes. Raises BadSubject."""
        chosen = _class(manifests, class_name)
        nodes = tuple(manifest.name for manifest in manifests if manifest.resource == NODES)
        others = [m for m in manifests if m.resource.group not in ("parley.dev", "") or m.resource == NODES]
        return cls(
            chosen.body["driverName"],
            {name: value for name, value in chosen.body.items() if name not in ("metadata", "limits")},
            _parameters(manifests, chosen.name),
            nodes,
            tuple(others),
        )

    def in_memory(self) -> Self:
        """The subject for a cluster in memory: with default nodes if the manifests have none."""
        if self.nodes:
            return self
        return replace(self, nodes=NODE_NAMES, others=(*self.others, *map(_node, NODE_NAMES)))

    def on_cluster(self, nodes: Sequence[str]) -> Self:
        """The subject for a real cluster: with its nodes, none of which are created. Raises BadSubject if it lacks
        nodes that the manifests name."""
        if missing := sorted(set(self.nodes) - set(nodes)):
            raise BadSubject(f"the cluster has no node {missing[0]!r}: leave the nodes out of the files")
        if not nodes:
            raise BadSubject("the cluster has no nodes: add one, or run without --real")
        others = tuple(manifest for manifest in self.others if manifest.resource != NODES)
        return replace(self, nodes=self.nodes or tuple(nodes[:MOST_NODES]), others=others)


def _class(manifests: Sequence[Manifest], name: str) -> Manifest:
    classes = {manifest.name: manifest for manifest in manifests if manifest.resource == CLASSES}
    if not classes:
        raise BadSubject("no ResourceClass in the files: add one of the driver's")
    if not name and len(classes) > 1:
        raise BadSubject(f"there are several classes: choose one with --class: {', '.join(sorted(classes))}")
    if name and name not in classes:
        raise BadSubject(f"no ResourceClass {name!r} in the files: they have {', '.join(sorted(classes))}")
    return classes[name] if name else next(iter(classes.values()))


def _parameters(manifests: Sequence[Manifest], class_name: str) -> Json | None:
    """The parameters of the first claim or template of the class."""
    for manifest in manifests:
        spec = manifest.body.get("spec") or {}
        if manifest.resource == TEMPLATES:
            spec = spec.get("spec") or {}
        elif manifest.resource != CLAIMS:
            continue
        if spec.get("resourceClassName") == class_name:
            found: Json | None = spec.get("parameters")
            return found
    raise BadSubject(
        f"no ResourceClaim or ResourceClaimTemplate of class {class_name!r} in the files: add one, with "
        "parameters that the driver can serve"
    )


def _node(name: str) -> Manifest:
    labels = {"kubernetes.io/hostname": name}
    body = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": _CAPACITY}}
    return Manifest("", NODES, None, name, body)
