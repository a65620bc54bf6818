"""Validates objects as an API server would, with its messages.

The API server in memory validates Parley's kinds by their CRDs; unknown fields are refused as by `kubectl apply`,
which requests strict validation. Of built-in kinds it validates names only: fields that can't be decoded, invalid
quantities, and faults of a pod's claims are found here. A real API server checks much more: see `kubectl apply
--dry-run=server`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from parley.api.names import GROUP, LABEL
from parley.api.quantity import parse
from parley.api.resources import PODS, Resource, Undecodable
from parley.kube.client import ApiError
from parley.kube.memory import MemoryServer
from parley.kube.memory.structural_schema import schema_of, unknown_fields

_AMOUNTS = frozenset({"allocatable", "capacity", "requests", "limits", "overhead"})
"""Fields whose values are quantities, if they are mappings."""

_OTHERS_OWN = frozenset({"parameters", "data"})
"""Fields whose content is a driver's own: names in there have no meaning here."""

_LOCATED = re.compile(r"^\w+: (?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?$")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_LABEL = re.compile(LABEL)
_NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
_NEW = frozenset({"uid", "resourceVersion", "ownerReferences", "managedFields", "creationTimestamp"})
"""Fields of the metadata in a dump that a new object does not have."""


def name_fault(name: object) -> str:
    """Why the object's name is missing or no string; "" if it has one."""
    if name is None or name == "":
        return "metadata.name is missing; every object needs a name"
    return "" if isinstance(name, str) else f"metadata.name={name!r} is not a string; put it in quotes"


class Validator:
    """Validates objects one by one; keeps none of them."""

    def __init__(self) -> None:
        self._server = MemoryServer()

    def faults_of(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str | None) -> list[str]:
        """All faults of the object, each a clause."""
        if resource.group == GROUP:
            return self._of_ours(resource, body, namespace)
        faults = [*self._refused(resource, body, namespace), *_decoding(resource, body), *_quantities(body, "")]
        return list(_claims(body["spec"])) if resource == PODS and "spec" in body and not faults else faults

    def _of_ours(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str | None) -> list[str]:
        unknown = list(unknown_fields(body, schema_of(resource.type)))
        if unknown:
            fields = ", ".join(f'unknown field "{field}"' for field in unknown)
            return [f"strict decoding error: {fields}"]
        return list(self._refused(resource, body, namespace))

    def _refused(self, resource: Resource[Any], body: Mapping[str, Any], namespace: str | None) -> Iterator[str]:
        meta = {key: value for key, value in (body.get("metadata") or {}).items() if key not in _NEW}
        try:
            self._server.dry_run(resource, {**body, "metadata": meta}, namespace)
        except ApiError as error:
            yield error.message.partition(" is invalid: ")[2] or error.message


def _decoding(resource: Resource[Any], body: Mapping[str, Any]) -> Iterator[str]:
    try:
        resource.decode(orjson.dumps(body))
    except Undecodable as error:
        yield _of_struct(str(error), body)


def _of_struct(message: str, body: Mapping[str, Any]) -> str:
    match = _LOCATED.match(message)
    problem, path = (match["problem"], match["path"] or "") if match else (message, "")
    missing = re.fullmatch(r"Object missing required field `(.+)`", problem)
    if missing:
        return f"{_join(path, missing[1])} is missing; add it"
    problem = problem.replace("`", "")
    return f"{path}={_value(path, body)!r}: {problem[:1].lower()}{problem[1:]}"


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _value(path: str, body: Any) -> Any:
    """The value at a path as msgspec writes it; `[...]` is an unknown key of a mapping, and ends the search."""
    value = body
    for field, index in _STEP.findall(path):
        if index == "...":
            return value
        value = value[int(index)] if index else value[field]
    return value


def _claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """The faults of a pod's claims, and of its containers' references to them: ValidatePodSpec of Kubernetes."""
    entries = spec.get("resourceClaims") or ()
    names: set[str] = set()
    for index, entry in enumerate(entries):
        path = f"spec.resourceClaims[{index}]"
        named = {"resourceClaimName", "resourceClaimTemplateName"} & entry.keys()
        if unknown := sorted(entry.keys() - named - {"name"}):
            yield from (f'unknown field "{path}.{field}"' for field in unknown)
        elif not named:
            yield f"{path}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        elif len(named) > 1:
            yield f"{path}: at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        if entry["name"] in names:
            yield f'{path}.name: Duplicate value: "{entry["name"]}"'
        elif not _LABEL.fullmatch(entry["name"]):
            yield f'{path}.name: Invalid value: "{entry["name"]}": {_NOT_A_LABEL}'
        names.add(entry["name"])
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(kind) or ()):
            used = (container.get("resources") or {}).get("claims") or ()
            before: set[tuple[str, str]] = set()
            for index, claim in enumerate(used):
                path = f"spec.{kind}[{number}].resources.claims[{index}]"
                name, request = claim["name"], claim.get("request") or ""
                if any(known == name and (not request or other in ("", request)) for known, other in before):
                    yield f'{path}: Duplicate value: "{name}"'
                before.add((name, request))
                if name not in names:
                    yield f'{path}: Not found: "{name}": must be one of the names in pod.spec.resourceClaims'


def _quantities(body: Any, path: str) -> Iterator[str]:
    if isinstance(body, list):
        for index, item in enumerate(body):
            yield from _quantities(item, f"{path}[{index}]")
    elif isinstance(body, dict):
        for name, value in body.items():
            inner = _join(path, name)
            if name in _AMOUNTS and isinstance(value, dict):
                yield from _amounts(value, inner)
            elif name not in _OTHERS_OWN:
                yield from _quantities(value, inner)


def _amounts(amounts: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, amount in amounts.items():
        if isinstance(amount, dict) and name in _AMOUNTS and "value" not in amount:  # `requests` of a claim
            yield from _amounts(amount, f"{path}.{name}")
            continue
        value: Any = amount.get("value") if isinstance(amount, dict) else amount
        try:
            parse(str(value))
        except ValueError as error:
            yield f"{path}.{name}: {error}"
