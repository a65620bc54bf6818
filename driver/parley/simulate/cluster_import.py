"""Imports a live cluster's objects into an API server in memory, before any component runs there.

Bound pods keep their nodes and claims, so that a starting controller finds them as after a restart. Other objects
are as users created them: waiting pods are new, and their generated claims are created again. Claims that are
being deleted are deleted again, and removed if no pod uses them. Objects get new UIDs; references to UIDs are
updated.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from parley.api.names import MIRROR_LABEL
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIM_RELEASES, CLAIMS, NODES, PODS
from parley.kube.client import Client, NotFound
from parley.simulate.cluster import ALLOCATABLE
from parley.simulate.objects import Manifest

Body = Mapping[str, Any]

_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
)
_ENDED = ("Succeeded", "Failed")


def pods_of(manifests: Iterable[Manifest]) -> int:
    """The number of pods that are imported: all but terminal ones."""
    return sum(1 for manifest in manifests if manifest.resource == PODS and not _ended(manifest.body))


async def import_objects(client: Client, manifests: Sequence[Manifest]) -> list[tuple[str, str]]:
    """Create the objects, each with the part of its status that is still valid.

    Returns the claims that nodes still have prepared for deleted pods, as node and the built-in claim's UID.
    """
    importer = _Import(client)
    for manifest in manifests:
        if manifest.resource not in (PODS, CLAIMS, BUILTIN_CLAIMS, CLAIM_RELEASES):
            await importer.add(manifest)
    for manifest in manifests:
        if manifest.resource == PODS and not _ended(manifest.body):
            await importer.add_pod(manifest)
    for kind in (CLAIMS, BUILTIN_CLAIMS):
        for manifest in manifests:
            if manifest.resource == kind:
                await importer.add(manifest)
    releases = [await importer.add_release(one) for one in manifests if one.resource == CLAIM_RELEASES]
    await importer.delete_again()
    return releases


def _ended(pod: Body) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _labels(body: Body) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


class _Import:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._uids: dict[str, str] = {}
        self._deleted: list[tuple[Manifest, str]] = []
        """The claims that were being deleted, each with its name."""

    async def add(self, manifest: Manifest) -> None:
        """Create the object, unless a controller creates it again."""
        body = manifest.body
        if self._is_recreated(manifest):
            return
        status = self._status(manifest)
        made = await self._create(manifest, _with_allocatable(body) if manifest.resource == NODES else body)
        if manifest.resource not in (CLAIMS, BUILTIN_CLAIMS):
            return
        untyped, name = manifest.resource.untyped(), made["metadata"]["name"]
        if status:
            await self._client.patch(untyped, name, {"status": status}, manifest.namespace, subresource="status")
        if body["metadata"].get("deletionTimestamp"):
            self._deleted.append((manifest, name))

    async def delete_again(self) -> None:
        """Delete claims that were being deleted; those that pods use stay until the pods have ended."""
        for manifest, name in self._deleted:
            with suppress(NotFound):  # garbage-collected with its owner
                await self._client.delete(manifest.resource.untyped(), name, manifest.namespace)

    async def add_pod(self, manifest: Manifest) -> None:
        """Create a bound pod with its status, another one without."""
        body, bound = manifest.body, bool(manifest.body.get("spec", {}).get("nodeName"))
        made = await self._create(manifest, {**body, "status": {}}, remember=bound)
        status = body.get("status") or {}
        kept = {key: status[key] for key in ("phase", "conditions", "resourceClaimStatuses") if key in status}
        if bound and kept:
            name = made["metadata"]["name"]
            await self._client.patch(PODS, name, {"status": kept}, manifest.namespace, subresource="status")

    async def add_release(self, manifest: Manifest) -> tuple[str, str]:
        """Create a ClaimRelease whose receipt was not given, and will not be; returns the node, and the claim that
        is prepared there."""
        spec = manifest.body["spec"]
        uid, holding = self._uid(spec["claim"]["uid"]), self._uid(spec["holdingUid"])
        renewed = {**spec, "claim": {**spec["claim"], "uid": uid}, "holdingUid": holding}
        await self._create(manifest, {**manifest.body, "spec": renewed})
        return spec["nodeName"], uid

    def _uid(self, old: str) -> str:
        """The object's new UID; the old one if the object was not imported."""
        return self._uids.get(old, old)

    async def _create(self, manifest: Manifest, body: Body, *, remember: bool = True) -> dict[str, Any]:
        resource = manifest.resource.untyped()
        made = await self._client.create(resource, self._cleaned(body), manifest.namespace)
        if remember and (old := body["metadata"].get("uid")):
            self._uids[old] = made["metadata"]["uid"]
        return made

    def _cleaned(self, body: Body) -> dict[str, Any]:
        meta = {key: value for key, value in body["metadata"].items() if key not in _SERVER_FIELDS}
        owners = [self._renewed(owner) for owner in meta.pop("ownerReferences", None) or () if self._known(owner)]
        return {**body, "metadata": {**meta, "ownerReferences": owners}}

    def _known(self, reference: Body) -> bool:
        return reference.get("uid") in self._uids

    def _renewed(self, reference: Body) -> dict[str, Any]:
        return {**reference, "uid": self._uids[reference["uid"]]}

    def _is_recreated(self, manifest: Manifest) -> bool:
        """Whether a controller creates the object again: unallocated mirrors, and objects generated for pods that
        do not exist or are not bound."""
        body = manifest.body
        if manifest.resource == BUILTIN_TEMPLATES:
            return MIRROR_LABEL in _labels(body)
        owners = body["metadata"].get("ownerReferences") or ()
        of_a_pod = any(owner.get("kind") == "Pod" for owner in owners)
        if manifest.resource in (CLAIMS, BUILTIN_CLAIMS) and of_a_pod:
            return not any(self._known(owner) for owner in owners)
        return manifest.resource == BUILTIN_CLAIMS and MIRROR_LABEL in _labels(body) and not self._status(manifest)

    def _status(self, manifest: Manifest) -> dict[str, Any]:
        """A claim's status with the users that were imported; empty if there are none and the claim needs users to
        stay allocated."""
        status = dict(manifest.body.get("status") or {})
        users = [self._renewed(user) for user in status.pop("reservedFor", None) or () if self._known(user)]
        spec = manifest.body.get("spec") or {}
        stays = spec.get("allocationMode") == "Immediate" or status.get("keptUntil")
        if not status.get("allocation") or not (users or (stays and manifest.resource == CLAIMS)):
            return {}
        return {**status, "reservedFor": users} if users else status


def _with_allocatable(node: Body) -> dict[str, Any]:
    status = node.get("status") or {}
    return {**node, "status": {**status, "allocatable": {**ALLOCATABLE, **(status.get("allocatable") or {})}}}
