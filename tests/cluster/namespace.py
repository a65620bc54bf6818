"""A namespace of the tests' own, and what its user sees there: pods that run or wait, claims, devices, events.

It remembers what it created outside of the namespace. At its end everything is removed, and waited for until it
is gone, which is itself an assertion: no claim, mirror, PodScheduling or ClaimRelease may stay behind.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from tests.cluster.manifests import Manifest
from tests.cluster.watching import LIMIT, Identity, until, until_one

from parley.api.builtin import BuiltinClaim, Event, Pod
from parley.api.models import ClaimRelease, PodScheduling, ResourceClaim
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    EVENTS,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    VOLUME_CLAIMS,
    VOLUMES,
    Resource,
)
from parley.control.objects.mirror import allocated, driver_of, owner_pod_uid
from parley.kube.client import Client, Conflict, NotFound
from parley.sdk import Device

T = TypeVar("T")

DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, dict[str, Any])
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, dict[str, Any])

_ALL: tuple[Resource[Any], ...] = (
    PODS,
    CLAIMS,
    TEMPLATES,
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    POD_SCHEDULINGS,
    CLASSES,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    VOLUME_CLAIMS,
    VOLUMES,
)
_BY_KIND = {(resource.api_version, resource.kind): resource for resource in _ALL}
_OF_A_NAMESPACE: tuple[Resource[Any], ...] = tuple(resource for resource in _ALL if resource.namespaced)
_MADE_BY_USERS: tuple[Resource[Any], ...] = (
    PODS,
    CLAIMS,
    TEMPLATES,
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    VOLUME_CLAIMS,
)


class Namespace:
    """One namespace, as its user sees it."""

    def __init__(self, client: Client, name: str, *, grace: int | None = None) -> None:
        """`grace` is how long a deleted pod may take; 0 where no kubelet would confirm its end."""
        self.client = client
        self.name = name
        self._grace = grace
        self._outside: list[tuple[Resource[Any], str]] = []

    async def __aenter__(self) -> Self:
        await self.client.create(NAMESPACES, {"metadata": {"name": self.name}})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.clear()

    async def create(self, *manifests: Manifest) -> None:
        """Create the objects, in order."""
        for manifest in manifests:
            resource = _BY_KIND[manifest["apiVersion"], manifest["kind"]]
            if resource.namespaced:
                await self.client.create(resource.untyped(), manifest, self.name)
            else:
                await self.client.create(resource.untyped(), manifest)
                self._outside.append((resource, manifest["metadata"]["name"]))

    async def delete(self, resource: Resource[Any], name: str) -> None:
        """Delete the object and wait until it is gone."""
        if resource is PODS and self._grace == 0:
            await end_pod(self.client, self.name, name)
        else:
            grace = self._grace if resource is PODS else None
            await self.client.delete(resource, name, self.name, grace_period_seconds=grace)
        await self.gone(resource, name)

    async def gone(self, resource: Resource[Any], name: str, *, within: float = LIMIT) -> None:
        """Wait until there is no such object."""
        await until(
            self.client,
            resource,
            lambda objects: not objects,
            f"{resource.kind} {name} is gone",
            namespace=self.name,
            field_selector=f"metadata.name={name}",
            within=within,
        )

    async def pod(self, name: str, holds: Callable[[Pod], bool], what: str, *, within: float = LIMIT) -> Pod:
        """The pod, as soon as `holds` is true of it."""
        return await until_one(self.client, PODS, name, holds, what, namespace=self.name, within=within)

    async def pods(self, hold: Callable[[Collection[Pod]], bool], what: str) -> Collection[Pod]:
        """All pods, as soon as `hold` is true of them together."""
        seen = await until(self.client, PODS, lambda pods: hold(list(pods.values())), what, namespace=self.name)
        return list(seen.values())

    async def bound(self, name: str, *, within: float = LIMIT) -> Pod:
        """The pod, as soon as it is bound to a node."""
        return await self.pod(name, lambda pod: bool(pod.spec.node_name), "is bound", within=within)

    async def runs(self, name: str, *, within: float = LIMIT) -> Pod:
        """The pod, as soon as its container runs."""
        return await self.pod(name, lambda pod: pod.status.phase == "Running", "runs", within=within)

    async def scheduling(
        self, pod: str, holds: Callable[[PodScheduling], bool], what: str, *, within: float = LIMIT
    ) -> PodScheduling:
        """The pod's PodScheduling, as soon as `holds` is true of it."""
        return await until_one(self.client, POD_SCHEDULINGS, pod, holds, what, namespace=self.name, within=within)

    async def claim(
        self, name: str, holds: Callable[[BuiltinClaim], bool], what: str, *, within: float = LIMIT
    ) -> BuiltinClaim:
        """The built-in claim of that name, as soon as `holds` is true of it."""
        return await until_one(self.client, BUILTIN_CLAIMS, name, holds, what, namespace=self.name, within=within)

    async def claims(self, hold: Callable[[Collection[BuiltinClaim]], bool], what: str) -> None:
        """Return as soon as `hold` is true of all built-in claims together."""
        await until(
            self.client, BUILTIN_CLAIMS, lambda claims: hold(list(claims.values())), what, namespace=self.name
        )

    async def parley_claim(
        self, name: str, holds: Callable[[ResourceClaim], bool], what: str, *, within: float = LIMIT
    ) -> ResourceClaim:
        """Parley's claim of that name, as soon as `holds` is true of it."""
        return await until_one(self.client, CLAIMS, name, holds, what, namespace=self.name, within=within)

    async def finish(self, pod: str) -> None:
        """Say that the pod is done, as the kubelet would on a node without one."""
        await self.client.patch(PODS, pod, {"status": {"phase": "Succeeded"}}, self.name, subresource="status")

    async def schedulings(self) -> Sequence[PodScheduling]:
        """All PodSchedulings, as they are now."""
        return (await self.client.list(POD_SCHEDULINGS, self.name)).items

    async def waits(self, pod: str, code: str) -> str:
        """The pod waits for that reason; returns the message that its PodScheduling shows."""
        waiting = await self.scheduling(pod, lambda s: s.status.waiting_for == code, f"waits with {code}")
        return waiting.status.message

    async def told(self, name: str, code: str, kind: str = "Pod", *, within: float = LIMIT) -> str:
        """The note of the event with that reason about the object, as soon as there is one.

        What the kubelet says that asked before the node authorizer had heard of the binding does not count: it
        asks again.
        """

        def about(event: Event) -> bool:
            regarding = event.regarding or {}
            return (
                event.reason == code
                and (regarding.get("kind"), regarding.get("name")) == (kind, name)
                and "no relationship found between node" not in event.note
            )

        events = await until(
            self.client,
            EVENTS,
            lambda seen: any(about(event) for event in seen.values()),
            f"an event with reason {code} about {kind} {name}",
            namespace=self.name,
            within=within,
        )
        return next(event.note for event in events.values() if about(event))

    async def mirrors(self, pod: str) -> tuple[BuiltinClaim, ...]:
        """The generated claims of the pod, as they are now."""
        uid = (await self.client.get(PODS, pod, self.name)).metadata.uid
        claims = (await self.client.list(BUILTIN_CLAIMS, self.name)).items
        return tuple(claim for claim in claims if owner_pod_uid(claim) == uid)

    async def devices(self, pod: str) -> frozenset[Device]:
        """What the pod's generated claims hold, as they are now."""
        return frozenset(device for claim in await self.mirrors(pod) for device in devices_of(claim))

    async def clear(self) -> None:
        """Remove everything that was created here, and wait until nothing is left. Raises TooLate.

        What belongs to no namespace is removed in any case: other tests make objects of these names.
        """
        try:
            await self._clear_namespace()
        finally:
            for resource, name in reversed(self._outside):
                await self._delete(resource, name)
        await self._delete(NAMESPACES, self.name)

    async def _clear_namespace(self) -> None:
        for resource in _MADE_BY_USERS:
            grace = self._grace if resource is PODS else None
            for item in (await self.client.list(resource, self.name)).items:
                if grace == 0:
                    await end_pod(self.client, self.name, item.metadata.name)
                else:
                    await self._delete(resource, item.metadata.name, grace)
        for resource in _OF_A_NAMESPACE:
            await until(self.client, resource, _none, f"no {resource.kind} is left", namespace=self.name)
        await until(self.client, CLAIM_RELEASES, self._nothing_owed, "no node owes a receipt")

    def _nothing_owed(self, releases: Mapping[Identity, ClaimRelease]) -> bool:
        return all(release.spec.claim.namespace != self.name for release in releases.values())

    async def _delete(self, resource: Resource[Any], name: str, grace: int | None = None) -> None:
        namespace = self.name if resource.namespaced else None
        try:
            await self.client.delete(resource, name, namespace, grace_period_seconds=grace)
        except NotFound:
            pass  # removed by the test, or with what owned it


async def end_pod(client: Client, namespace: str, name: str) -> None:
    """Delete a pod of a node without a kubelet as one would: it is said to have ended before its object goes.

    One that is not bound is only deleted: a kube-scheduler that is placing it in the moment in which it is said to
    have ended binds it all the same, hears no more of it, and counts it for its node until the scheduler restarts.
    """
    try:
        if not await _deleted_unbound(client, namespace, name):
            await client.patch(PODS, name, {"status": {"phase": "Succeeded"}}, namespace, subresource="status")
            await client.delete(PODS, name, namespace, grace_period_seconds=0)
    except NotFound:
        pass  # gone meanwhile


async def _deleted_unbound(client: Client, namespace: str, name: str) -> bool:
    """Whether the pod was bound to no node, and was deleted."""
    while not (pod := await client.get(PODS, name, namespace)).spec.node_name:
        known = pod.metadata.resource_version
        try:
            await client.delete(PODS, name, namespace, resource_version=known, grace_period_seconds=0)
        except Conflict:
            continue  # perhaps it is bound by now
        return True
    return False


def devices_of(claim: BuiltinClaim) -> frozenset[Device]:
    """What the claim holds by its own record."""
    if claim.status.allocation is None:
        return frozenset()
    found = allocated(claim, driver_of(claim.status.allocation))
    return frozenset(found.devices) if found else frozenset()


def _none(objects: Mapping[Any, Any]) -> bool:
    return not objects
