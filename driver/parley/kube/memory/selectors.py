"""Label and field selectors as predicates on JSON objects.

Fields that can be selected: `metadata.name` and `metadata.namespace` of every kind, a pod's and a slice's node,
a pod's phase and scheduler, what an event is about, and the `selectableFields` of our CRDs. Others are refused, as
by a real server.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from parley.api.crd.definitions import KINDS
from parley.api.resources import Resource
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
_SET_BASED = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s!=]+)\s*(?P<operator>==|=|!=)\s*(?P<value>\S*)$")
_EXISTENCE = re.compile(r"^(?P<not>!?)\s*(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)$")
_BETWEEN = re.compile(r",(?![^(]*\))")


def selector(resource: Resource[Any], labels: str, fields: str) -> Predicate | None:
    """Whether an object is selected; None if every object is. Raises BadRequest if a selector can't be read."""
    checks = [*_label_checks(labels), *_field_checks(resource.group, resource.plural, fields)]
    if not checks:
        return None
    return lambda body: all(check(body) for check in checks)


@lru_cache(maxsize=256)
def _label_checks(text: str) -> tuple[Predicate, ...]:
    return tuple(_label_check(part) for part in _parts(text))


@lru_cache(maxsize=256)
def _field_checks(group: str, plural: str, text: str) -> tuple[Predicate, ...]:
    known = _METADATA | _SELECTABLE.get((group, plural), frozenset())
    return tuple(_field_check(part, known) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    return (part.strip() for part in _BETWEEN.split(text) if part.strip())


def _label_check(text: str) -> Predicate:
    if match := _SET_BASED.match(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return _among(match["key"], values, match["operator"] == "in")
    if match := _EQUALITY.match(text):
        return _among(match["key"], frozenset({match["value"]}), match["operator"] != "!=")
    if match := _EXISTENCE.match(text):
        key, wanted = match["key"], not match["not"]
        return lambda body: (key in _labels(body)) is wanted
    raise bad_request(f"unable to parse requirement: the label selector {text!r} is not understood")


def _among(key: str, values: frozenset[str], wanted: bool) -> Predicate:
    """An object without the label is not among them, so that "not in" selects it."""
    return lambda body: (_labels(body).get(key) in values) is wanted


def _labels(body: Json) -> dict[str, str]:
    return body["metadata"].get("labels") or {}


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
