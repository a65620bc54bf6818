"""Validation of names, labels, annotations, finalizers and owner references of any kind.

Source: k8s.io/apimachinery/pkg/api/validation (objectmeta.go) and util/validation (1.37). The stricter names of a
few kinds (namespaces, services) are left out.
"""

import re
from collections.abc import Iterator
from typing import Any

from parley.kube.memory.errors import Fault

Json = dict[str, Any]

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_MAX_NAME = 253
_MAX_PART = 63
_MAX_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations together, keys and values."""
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_NOT_A_NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character"
)
_NOT_A_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)
_NOT_A_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character"
)


def faults(old: Json | None, new: Json, *, custom: bool) -> Iterator[Fault]:
    """The faults of the metadata. Parts that did not change are not checked again.

    Finalizers without a domain are refused for built-in kinds only.
    """
    before = old or {}
    if old is None:
        yield from _names(new)
    if new.get("labels") != before.get("labels"):
        yield from _labels(new.get("labels") or {})
    if new.get("annotations") != before.get("annotations"):
        yield from _annotations(new.get("annotations") or {})
    if new.get("finalizers") != before.get("finalizers"):
        yield from _finalizers(new.get("finalizers") or [], custom=custom)
    if new.get("ownerReferences") != before.get("ownerReferences"):
        yield from _owners(new.get("ownerReferences") or [])


def _names(meta: Json) -> Iterator[Fault]:
    prefix = meta.get("generateName")
    if prefix and not _is_name(prefix[:-1] + "a" if prefix.endswith("-") else prefix):
        yield Fault("metadata.generateName", f'Invalid value: "{prefix}": {_NOT_A_NAME}')
    if not _is_name(meta["name"]):
        yield Fault("metadata.name", f'Invalid value: "{meta["name"]}": {_NOT_A_NAME}')


def _is_name(text: str) -> bool:
    return len(text) <= _MAX_NAME and _SUBDOMAIN.fullmatch(text) is not None


def _labels(labels: Json) -> Iterator[Fault]:
    yield from _keys("metadata.labels", labels)
    for value in labels.values():
        if value and (len(value) > _MAX_PART or not _PART.fullmatch(value)):
            yield Fault("metadata.labels", f'Invalid value: "{value}": {_NOT_A_VALUE}')


def _annotations(annotations: Json) -> Iterator[Fault]:
    yield from _keys("metadata.annotations", annotations)
    if sum(len(text.encode()) for pair in annotations.items() for text in pair) > _MAX_ANNOTATIONS:
        yield Fault("metadata.annotations", f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes")


def _keys(field: str, mapping: Json) -> Iterator[Fault]:
    for key in mapping:
        if not _is_qualified(key):
            yield Fault(field, f'Invalid value: "{key}": {_NOT_A_PART}')


def _is_qualified(key: str) -> bool:
    domain, slash, part = key.rpartition("/")
    return (not slash or _is_name(domain)) and len(part) <= _MAX_PART and _PART.fullmatch(part) is not None


def _finalizers(finalizers: list[str], *, custom: bool) -> Iterator[Fault]:
    for index, name in enumerate(finalizers):
        field = f"metadata.finalizers[{index}]"
        if not _is_qualified(name):
            yield Fault(field, f'Invalid value: "{name}": {_NOT_A_PART}')
        elif not custom and "/" not in name and name not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield Fault(field, f'Invalid value: "{name}": {why}')


def _owners(owners: list[Json]) -> Iterator[Fault]:
    for index, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                yield Fault(f"metadata.ownerReferences[{index}].{name}", "Required value: must not be empty")
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        yield Fault(
            "metadata.ownerReferences", "Invalid value: Only one reference can have Controller set to true"
        )
