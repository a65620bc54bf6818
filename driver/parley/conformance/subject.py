"""What is checked: a driver by its name, with a class of it, parameters for its claims, and nodes to ask about.

All of it is read from the manifests that a driver's author has anyway: a ResourceClass, a claim or a template, and
whatever else the driver reads (Nodes, ResourceSlices).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from parley.api.resources import CLAIMS, CLASSES, NODES, TEMPLATES
from parley.simulate.objects import Manifest

Json = Mapping[str, Any]

NODE_NAMES = ("node-1", "node-2")
"""The nodes, if the manifests name none."""

_CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110"}


class BadSubject(Exception):
    """Raised when the manifests don't say what to check; the message says what to add."""


@dataclass(frozen=True)
class Subject:
    """`class_body` is the class without its name, `parameters` those of each claim, `others` created as it is."""

    driver: str
    class_body: Json
    parameters: Json | None
    nodes: tuple[str, ...]
    others: tuple[Manifest, ...] = ()

    @classmethod
    def of(cls, manifests: Sequence[Manifest], class_name: str = "") -> Self:
        """By manifests; `class_name` chooses among several classes. Raises BadSubject."""
        chosen = _class(manifests, class_name)
        nodes = tuple(manifest.name for manifest in manifests if manifest.resource == NODES)
        others = [m for m in manifests if m.resource.group not in ("parley.dev", "") or m.resource == NODES]
        return cls(
            chosen.body["driverName"],
            {name: value for name, value in chosen.body.items() if name not in ("metadata", "limits")},
            _parameters(manifests, chosen.name),
            nodes or NODE_NAMES,
            (*others, *(() if nodes else map(_node, NODE_NAMES))),
        )


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
    """Of the first claim or template of the class."""
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
