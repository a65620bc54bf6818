"""What this version of Parley installs: its CRDs, and the objects of `deploy/base`, by kind and name.

A wheel carries the files of `deploy/base`; a checkout has them where they are written.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from parley.api.crd import KINDS, definition
from parley.doctor.kinds import Body

_CHECKOUT = Path(__file__).parents[3] / "deploy" / "base"
_NO_OBJECTS = "kustomization.yaml"

NAMESPACE = "parley-system"
"""That of the files."""


@cache
def crds() -> Mapping[str, Body]:
    """The CustomResourceDefinitions by name."""
    made = [definition(kind) for kind in KINDS]
    return {crd["metadata"]["name"]: crd for crd in made}


def of_kind(kind: str, namespace: str = NAMESPACE) -> Mapping[str, Body]:
    """The objects of that kind, by name, as they are where Parley is installed in that namespace."""
    return {body["metadata"]["name"]: _moved(body, namespace) for body in _objects() if body["kind"] == kind}


def _moved(value: Any, namespace: str) -> Any:
    """The value with Parley's namespace replaced by another, alone or in the name of a service account."""
    if isinstance(value, dict):
        return {key: _moved(inner, namespace) for key, inner in value.items()}
    if isinstance(value, list):
        return [_moved(inner, namespace) for inner in value]
    return value.replace(NAMESPACE, namespace) if isinstance(value, str) else value


@cache
def _objects() -> tuple[Body, ...]:
    return tuple(_read())


def _read() -> Iterator[Body]:
    packaged = files("parley.doctor") / "base"
    folder = packaged if packaged.is_dir() else _CHECKOUT
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".yaml") and file.name != _NO_OBJECTS:
            documents: Iterator[Any] = yaml.safe_load_all(file.read_text(encoding="utf-8"))
            yield from (document for document in documents if document)
