"""What constrains a waiting pod's placement besides the nodes' own fields: where its volumes can be used, and
which of the extended resources that it requests are allocated by DRA drivers.

Read for each explained pod, with the user's own permissions: a snapshot does not have them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from parley.api.builtin import DeviceClass, Pod
from parley.api.resources import DEVICE_CLASSES, VOLUME_CLAIMS, VOLUMES, Resource
from parley.api.volumes import PersistentVolume, PersistentVolumeClaim
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.delegated import extended_resources
from parley.control.caches.volumes import volume_claims
from parley.kube.cache import Key
from parley.kube.client import Client, Forbidden, NotFound
from parley.negotiation.requests import requested

MOST_VOLUMES = 64
"""The most volumes that are read for one pod."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlacementConstraints:
    """One pod's volume claims and volumes, and the DeviceClasses, None if the pod requests no extended resources.
    `unread` lists why some of it could not be read."""

    claims: tuple[PersistentVolumeClaim, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    device_classes: tuple[DeviceClass, ...] | None = None
    unread: tuple[str, ...] = ()

    def apply_to(self, cluster: ClusterCache) -> None:
        """Put them into the caches, in place of those of the pod explained before."""
        cluster.volumes.replace(self.claims, self.volumes)
        if self.device_classes is not None:
            cluster.delegated.replace(self.device_classes)


UNCONSTRAINED = PlacementConstraints()
"""The constraints of a pod without volumes and extended resources."""


async def read_constraints(client: Client, pod: Pod) -> PlacementConstraints:
    """Reads the pod's constraints; none for a bound pod, which is past them."""
    named = list(dict.fromkeys(volume_claims(pod)))
    backed = extended_resources(requested(pod))
    if pod.spec.node_name or not (named or backed):
        return UNCONSTRAINED
    unread: list[str] = []
    if len(named) > MOST_VOLUMES:
        unread.append(f"of the pod's {len(named)} volumes only {MOST_VOLUMES} are read")
    claims = await _fetch(client, VOLUME_CLAIMS, named[:MOST_VOLUMES], unread)
    bound = dict.fromkeys(("", claim.bound_to) for claim in claims if claim.bound_to)
    volumes = await _fetch(client, VOLUMES, list(bound), unread)
    classes: tuple[DeviceClass, ...] | None = None
    if backed:
        try:
            classes = tuple((await client.list(DEVICE_CLASSES)).items)
        except Forbidden as error:
            unread.append(error.message)
    return PlacementConstraints(claims, volumes, classes, tuple(unread))


async def _fetch(client: Client, resource: Resource[T], keys: Sequence[Key], unread: list[str]) -> tuple[T, ...]:
    """Gets the objects that exist: a missing one constrains a pod to no node."""

    async def get(key: Key) -> Sequence[T]:
        try:
            return (await client.get(resource, key[1], key[0] or None),)
        except NotFound:
            return ()
        except Forbidden as error:
            unread.append(error.message)
            return ()

    return tuple(chain.from_iterable(await asyncio.gather(*map(get, keys))))
