"""Namespaces of a simulated cluster: limits of classes may select them by labels. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from parley.api.resources import CLASSES, NAMESPACES
from parley.simulate.objects import Manifest

_NAME = "kubernetes.io/metadata.name"
"""The label that the API server sets on each namespace."""


def with_namespaces(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The objects, preceded by the namespaces that they are in; ones that no file describes have no labels of
    their own. Without a class that selects namespaces by labels there are none: the controller does not read them
    then."""
    given = [one for one in manifests if one.resource == NAMESPACES]
    others = [one for one in manifests if one.resource != NAMESPACES]
    if not any(one.resource == CLASSES and _selects(one.body) for one in others):
        return others
    used = dict.fromkeys(one.namespace for one in manifests if one.namespace is not None)
    missing = [_named(name) for name in used if all(name != one.name for one in given)]
    return [*map(_labelled, [*given, *missing]), *others]


def _selects(class_: Mapping[str, Any]) -> bool:
    return any(limit.get("namespaceSelector") is not None for limit in class_.get("limits") or ())


def _named(name: str) -> Manifest:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return Manifest(f"namespace {name}", NAMESPACES, None, name, body)


def _labelled(namespace: Manifest) -> Manifest:
    meta: Mapping[str, Any] = namespace.body["metadata"]
    labels = {**(meta.get("labels") or {}), _NAME: namespace.name}
    return replace(namespace, body={**namespace.body, "metadata": {**meta, "labels": labels}})
