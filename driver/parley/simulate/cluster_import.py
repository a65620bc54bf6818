"""Puts a live cluster's objects into an API server in memory, before anything runs there.

Pods that are bound keep their nodes and claims, so that a controller that starts finds them as after a restart.
Everything else is as its user made it: pods that wait are new, and what was generated for them is made again.
Claims that are being deleted are being deleted again, and gone if nobody uses them.
Objects get new UIDs; what refers to a UID follows.
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

_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields")
_ENDED = ("Succeeded", "Failed")


def pods_of(manifests: Iterable[Manifest]) -> int:
    """How many pods are imported; terminal ones are not."""
    return sum(1 for manifest in manifests if manifest.resource == PODS and not _ended(manifest.body))


async def import_objects(client: Client, manifests: Sequence[Manifest]) -> list[tuple[str, str]]:
    """Create the objects, each with its status as far as that still holds.

    Returns what nodes still have prepared for pods that are gone, by node and the built-in claim's UID.
    """
    taking = _Import(client)
    for manifest in manifests:
        if manifest.resource not in (PODS, CLAIMS, BUILTIN_CLAIMS, CLAIM_RELEASES):
            await taking.take(manifest)
    for manifest in manifests:
        if manifest.resource == PODS and not _ended(manifest.body):
            await taking.take_pod(manifest)
    for kind in (CLAIMS, BUILTIN_CLAIMS):
        for manifest in manifests:
            if manifest.resource == kind:
                await taking.take(manifest)
    releases = [await taking.take_release(one) for one in manifests if one.resource == CLAIM_RELEASES]
    await taking.delete_again()
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
        """Claims that were being deleted, each with its name."""

    async def take(self, manifest: Manifest) -> None:
        """Create the object, unless it is made again by itself."""
        body = manifest.body
        if self._is_made_again(manifest):
            return
        status = self._status(manifest)
        made = await self._create(manifest, _equipped(body) if manifest.resource == NODES else body)
        if manifest.resource not in (CLAIMS, BUILTIN_CLAIMS):
            return
        untyped, name = manifest.resource.untyped(), made["metadata"]["name"]
        if status:
            await self._client.patch(untyped, name, {"status": status}, manifest.namespace, subresource="status")
        if body["metadata"].get("deletionTimestamp"):
            self._deleted.append((manifest, name))

    async def delete_again(self) -> None:
        """Claims that were being deleted are, again: those that pods use stay until these have ended."""
        for manifest, name in self._deleted:
            with suppress(NotFound):  # its owner is gone, and so is it
                await self._client.delete(manifest.resource.untyped(), name, manifest.namespace)

    async def take_pod(self, manifest: Manifest) -> None:
        """A bound pod as it is, another one without anything that was found for it."""
        body, bound = manifest.body, bool(manifest.body.get("spec", {}).get("nodeName"))
        made = await self._create(manifest, {**body, "status": {}}, remember=bound)
        status = body.get("status") or {}
        kept = {key: status[key] for key in ("phase", "conditions", "resourceClaimStatuses") if key in status}
        if bound and kept:
            name = made["metadata"]["name"]
            await self._client.patch(PODS, name, {"status": kept}, manifest.namespace, subresource="status")

    async def take_release(self, manifest: Manifest) -> tuple[str, str]:
        """A release that its node has not answered, and will not; returns what is prepared there."""
        spec = manifest.body["spec"]
        uid, holding = self._uid(spec["claim"]["uid"]), self._uid(spec["holdingUid"])
        renewed = {**spec, "claim": {**spec["claim"], "uid": uid}, "holdingUid": holding}
        await self._create(manifest, {**manifest.body, "spec": renewed})
        return spec["nodeName"], uid

    def _uid(self, old: str) -> str:
        """What it is here; as it was if the object is gone."""
        return self._uids.get(old, old)

    async def _create(self, manifest: Manifest, body: Body, *, remember: bool = True) -> dict[str, Any]:
        resource = manifest.resource.untyped()
        made = await self._client.create(resource, self._bare(body), manifest.namespace)
        if remember and (old := body["metadata"].get("uid")):
            self._uids[old] = made["metadata"]["uid"]
        return made

    def _bare(self, body: Body) -> dict[str, Any]:
        meta = {key: value for key, value in body["metadata"].items() if key not in _SERVERS}
        owners = [self._renewed(owner) for owner in meta.pop("ownerReferences", None) or () if self._known(owner)]
        return {**body, "metadata": {**meta, "ownerReferences": owners}}

    def _known(self, reference: Body) -> bool:
        return reference.get("uid") in self._uids

    def _renewed(self, reference: Body) -> dict[str, Any]:
        return {**reference, "uid": self._uids[reference["uid"]]}

    def _is_made_again(self, manifest: Manifest) -> bool:
        """Mirrors that hold nothing, and what was generated for pods that are not there or not bound."""
        body = manifest.body
        if manifest.resource == BUILTIN_TEMPLATES:
            return MIRROR_LABEL in _labels(body)
        owners = body["metadata"].get("ownerReferences") or ()
        of_a_pod = any(owner.get("kind") == "Pod" for owner in owners)
        if manifest.resource in (CLAIMS, BUILTIN_CLAIMS) and of_a_pod:
            return not any(self._known(owner) for owner in owners)
        return manifest.resource == BUILTIN_CLAIMS and MIRROR_LABEL in _labels(body) and not self._status(manifest)

    def _status(self, manifest: Manifest) -> dict[str, Any]:
        """What a claim holds, for users that are there; nothing if they are not and it needs some."""
        status = dict(manifest.body.get("status") or {})
        users = [self._renewed(user) for user in status.pop("reservedFor", None) or () if self._known(user)]
        spec = manifest.body.get("spec") or {}
        stays = spec.get("allocationMode") == "Immediate" or status.get("keptUntil")
        if not status.get("allocation") or not (users or (stays and manifest.resource == CLAIMS)):
            return {}
        return {**status, "reservedFor": users} if users else status


def _equipped(node: Body) -> dict[str, Any]:
    status = node.get("status") or {}
    return {**node, "status": {**status, "allocatable": {**ALLOCATABLE, **(status.get("allocatable") or {})}}}
