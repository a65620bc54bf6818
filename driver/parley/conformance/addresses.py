"""Parses the paths of API requests, and answers discovery requests of client libraries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from parley.api import resources
from parley.api.resources import Resource

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, dict[str, Any])

_KNOWN: Final[Mapping[tuple[str, str], Resource[Any]]] = {
    (found.group, found.plural): found
    for found in (*vars(resources).values(), NAMESPACES)
    if isinstance(found, Resource)
}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an object, or of a collection if `name` is empty."""

    group: str
    version: str
    plural: str
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    def resource(self, body: Any) -> Resource[Any]:
        """The resource; of an unknown one, with the kind in the body."""
        known = _KNOWN.get((self.group, self.plural))
        if known is not None:
            return known
        kind = (body or {}).get("kind") or self.plural.removesuffix("s").capitalize()
        return Resource(self.group, self.version, self.plural, kind, self.namespace is not None, dict[str, Any])


def address_of(path: str) -> Address | None:
    """The address in a path; None if it is not an object's or collection's."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        parts = ["", *parts[1:]]
    elif parts[:1] == ["apis"]:
        parts = parts[1:]
    else:
        return None
    if len(parts) < 3:
        return None
    group, version, *rest = parts
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return Address(group, version, plural, namespace, name, subresource)


def discovery(path: str) -> dict[str, Any] | None:
    """The answer to a request about the server itself (version, health, discovery); None for other paths."""
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0", "platform": "linux/amd64"}
        case ["readyz" | "livez" | "healthz"]:
            return {}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()}
        case ["api", "v1"]:
            return _resources("", "v1")
        case ["apis", group, version]:
            return _resources(group, version)
    return None


def _groups() -> list[dict[str, Any]]:
    found = {resource.group: resource for resource in _KNOWN.values() if resource.group}
    versions = {group: {"groupVersion": r.api_version, "version": r.version} for group, r in found.items()}
    return [{"name": group, "versions": [v], "preferredVersion": v} for group, v in versions.items()]


def _resources(group: str, version: str) -> dict[str, Any]:
    in_group = [r for r in _KNOWN.values() if (r.group, r.version) == (group, version)]
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            {"name": r.plural, "singularName": "", "kind": r.kind, "namespaced": r.namespaced, "verbs": verbs}
            for r in in_group
        ],
    }
