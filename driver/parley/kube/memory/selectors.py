"""Label and field selectors as predicates on JSON objects.

Supported fields: `metadata.name` and `metadata.namespace` of every kind, the node of a pod or ResourceSlice, a
pod's phase and scheduler, a slice's driver, the UID of the object that an event is about, and the
`selectableFields` of Parley's CRDs. Others are refused, as by a real server.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from parley.api.crd.definitions import KINDS
from parley.api.resources import Resource
from parley.api.selectors import label_selector
from parley.kube.memory.errors import bad_request
from parley.kube.memory.kinds import Json

Predicate = Callable[[Json], bool]

_SELECTABLE: dict[tuple[str, str], frozenset[str]] = {
    ("", "pods"): frozenset({"spec.nodeName", "spec.schedulerName", "status.phase"}),
    ("resource.k8s.io", "resourceslices"): frozenset({"spec.nodeName", "spec.driver"}),
    ("events.k8s.io", "events"): frozenset({"regarding.uid"}),
    **{(kind.resource.group, kind.resource.plural): frozenset(kind.selectable) for kind in KINDS},
}
_METADATA = frozenset({"metadata.name", "metadata.namespace"})
_EQUALITY = re.compile(r"^(?P<key>[^\s!=]+)\s*(?P<operator>==|=|!=)\s*(?P<value>\S*)$")
_BETWEEN = re.compile(r",(?![^(]*\))")


def selector(resource: Resource[Any], labels: str, fields: str) -> Predicate | None:
    """A predicate for selected objects; None if all are. Raises BadRequest if a selector can't be parsed."""
    checks = [*_field_checks(resource.group, resource.plural, fields)]
    if labels:
        checks.append(_label_check(labels))
    if not checks:
        return None
    return lambda body: all(check(body) for check in checks)


@lru_cache(maxsize=256)
def _label_check(text: str) -> Predicate:
    try:
        selects = label_selector(text)
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error
    return lambda body: selects(body["metadata"].get("labels") or {})


@lru_cache(maxsize=256)
def _field_checks(group: str, plural: str, text: str) -> tuple[Predicate, ...]:
    known = _METADATA | _SELECTABLE.get((group, plural), frozenset())
    return tuple(_field_check(part, known) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    return (part.strip() for part in _BETWEEN.split(text) if part.strip())


def _field_check(text: str, known: frozenset[str]) -> Predicate:
    match = _EQUALITY.match(text)
    if match is None:
        raise bad_request(f"invalid selector: {text!r}; write a field, = or !=, and a value")
    if match["key"] not in known:
        raise bad_request(f"field label not supported: {match['key']}")
    path, value, wanted = match["key"].split("."), match["value"], match["operator"] != "!="
    return lambda body: (_value(body, path) == value) is wanted


def _value(body: Any, path: list[str]) -> str:
    for name in path:
        body = body.get(name) or {}
    return body if isinstance(body, str) else ""
