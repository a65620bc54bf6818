"""Changes to a cluster before it is simulated: objects added or removed, nodes drained. No I/O.

Pods of a node that is removed or drained are recreated and wait for a node, as their controllers would do; pods of
DaemonSets are removed. Pods that are being deleted are left out, unless they are on a node that would never end
them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parley.api.names import OUT_OF_SERVICE_TAINT
from parley.api.resources import CLAIMS, CLASSES, NODES, PODS, RESOURCE_SLICES
from parley.drivers import built_in
from parley.simulate.objects import Manifest


class NoSuchObject(Exception):
    """Raised if an object to remove or drain does not exist; the message has the syntax."""


_EMBEDDED = frozenset(driver.name for driver in built_in())
_FOREVER = "9999-01-01T00:00:00Z"
"""A time after the end of any simulation."""

_HOW = "write pod/NAMESPACE/NAME, pod/NAME, node/NAME or device/NODE/NAME"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The changes: objects to add, names to remove ("node/a", "pod/team/p", "device/a/gpu-0"), nodes to drain."""

    added: Sequence[Manifest] = ()
    removed: Sequence[str] = ()
    drained: Sequence[str] = ()


def changed(manifests: Sequence[Manifest], changes: WhatIf) -> list[Manifest]:
    """The objects after the changes; added ones replace others of the same kind and name. Raises NoSuchObject."""
    new = {_identity(manifest): manifest for manifest in changes.added}
    result = [manifest for manifest in manifests if _identity(manifest) not in new] + list(new.values())
    for text in changes.removed:
        result = list(_without(result, text))
    for node in changes.drained:
        result = list(_drained(result, node))
    result = list(_without_terminating(result))
    return list(_keeping_claims(result, _bound_claims(manifests) - _bound_claims(result)))


def _without_terminating(manifests: Sequence[Manifest]) -> Iterator[Manifest]:
    """The objects without terminating pods; those on nodes that do not answer stay."""
    silent = {one.name for one in manifests if one.resource == NODES and _is_silent(one.body)}
    for manifest in manifests:
        terminating = manifest.resource == PODS and manifest.body["metadata"].get("deletionTimestamp")
        if not terminating or manifest.body.get("spec", {}).get("nodeName") in silent:
            yield manifest


def _is_silent(node: Mapping[str, Any]) -> bool:
    """Whether the node's kubelet does not end pods, and the node is not marked out of service, which ends them."""
    ready = [c for c in (node.get("status") or {}).get("conditions") or () if c.get("type") == "Ready"]
    taints = {taint.get("key") for taint in (node.get("spec") or {}).get("taints") or ()}
    return any(c.get("status") != "True" for c in ready) and OUT_OF_SERVICE_TAINT not in taints


def _bound_claims(manifests: Iterable[Manifest]) -> set[tuple[str | None, str, str]]:
    """The named claims of bound pods, as namespace, pod and claim."""
    return {
        (manifest.namespace, manifest.name, entry["resourceClaimName"])
        for manifest in manifests
        if manifest.resource == PODS and manifest.body.get("spec", {}).get("nodeName")
        for entry in manifest.body["spec"].get("resourceClaims") or ()
        if entry.get("resourceClaimName")
    }


def _keeping_claims(
    manifests: Sequence[Manifest], left: Collection[tuple[str | None, str, str]]
) -> Iterator[Manifest]:
    """The objects; claims whose pods have `left` stay allocated if their classes keep unused claims."""
    claims = {(namespace, claim) for namespace, _, claim in left}
    keeping = {one.name for one in manifests if one.resource == CLASSES and _keeps(one.body)}
    for manifest in manifests:
        spec, status = manifest.body.get("spec") or {}, manifest.body.get("status") or {}
        is_left = manifest.resource == CLAIMS and (manifest.namespace, manifest.name) in claims
        stays = spec.get("resourceClassName") in keeping and spec.get("allocationMode") != "Immediate"
        if is_left and stays and status.get("allocation"):
            manifest = replace(manifest, body={**manifest.body, "status": {**status, "keptUntil": _FOREVER}})
        yield manifest


def _keeps(class_: Mapping[str, Any]) -> bool:
    """Whether the class keeps unused claims: only for embedded drivers, which here are those that come with
    Parley."""
    return bool(class_.get("whenUnused")) and class_.get("driverName") in _EMBEDDED


def _identity(manifest: Manifest) -> tuple[Any, ...]:
    return manifest.resource, manifest.namespace, manifest.name


def _without(manifests: Sequence[Manifest], text: str) -> Iterable[Manifest]:
    kind, _, name = text.partition("/")
    if kind == "node" and name:
        return _without_node(manifests, name)
    if kind == "pod" and name:
        return _without_pod(manifests, name)
    if kind == "device" and name.count("/") == 1:
        return _without_device(manifests, *name.split("/"))
    raise NoSuchObject(f"--remove {text!r} is not understood: {_HOW}")


def _without_node(manifests: Sequence[Manifest], node: str) -> Iterator[Manifest]:
    _find(manifests, NODES, None, node)
    for manifest in manifests:
        if manifest.resource == NODES and manifest.name == node:
            continue
        if manifest.resource == RESOURCE_SLICES and manifest.body.get("spec", {}).get("nodeName") == node:
            continue
        yield from _evicted(manifest, node)


def _without_pod(manifests: Sequence[Manifest], name: str) -> Iterator[Manifest]:
    namespace, _, short = name.rpartition("/")
    found = _find(manifests, PODS, namespace or "default", short)
    return (manifest for manifest in manifests if manifest is not found)


def _without_device(manifests: Sequence[Manifest], node: str, device: str) -> list[Manifest]:
    found, result = False, []
    for manifest in manifests:
        spec = manifest.body.get("spec", {})
        if manifest.resource == RESOURCE_SLICES and spec.get("nodeName") == node:
            left = [one for one in spec.get("devices", ()) if one["name"] != device]
            found = found or len(left) < len(spec.get("devices", ()))
            manifest = replace(manifest, body={**manifest.body, "spec": {**spec, "devices": left}})
        result.append(manifest)
    if not found:
        raise NoSuchObject(f"no ResourceSlice of node {node!r} has a device {device!r}: {_HOW}")
    return result


def _drained(manifests: Sequence[Manifest], node: str) -> Iterator[Manifest]:
    drained = _find(manifests, NODES, None, node, "write the name of a node")
    for manifest in manifests:
        if manifest is drained:
            spec = {**manifest.body.get("spec", {}), "unschedulable": True}
            yield replace(manifest, body={**manifest.body, "spec": spec})
        else:
            yield from _evicted(manifest, node)


def _evicted(manifest: Manifest, node: str) -> Iterator[Manifest]:
    """The object; a pod of the node is yielded unbound, or not at all if it is a DaemonSet's."""
    body = manifest.body
    if manifest.resource != PODS or body.get("spec", {}).get("nodeName") != node:
        yield manifest
    elif not _of_daemon_set(body):
        spec = {key: value for key, value in body["spec"].items() if key != "nodeName"}
        yield replace(manifest, body={**body, "spec": spec})


def _of_daemon_set(pod: Mapping[str, Any]) -> bool:
    owners = pod.get("metadata", {}).get("ownerReferences") or ()
    return any(owner.get("kind") == "DaemonSet" for owner in owners)


def _find(
    manifests: Iterable[Manifest], resource: Any, namespace: str | None, name: str, how: str = _HOW
) -> Manifest:
    for manifest in manifests:
        if _identity(manifest) == (resource, namespace, name):
            return manifest
    full = f"{namespace}/{name}" if namespace else name
    raise NoSuchObject(f"there is no {resource.kind} {full!r}: {how}")
