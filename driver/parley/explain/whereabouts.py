"""Where a waiting pod can go besides what nodes say: where its volumes can be used, and which of the extended
resources that it requests DRA drivers allocate.

Read for each pod that is explained, as far as who asks may: a snapshot does not have them.
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

MOST = 64
"""Of one pod's volumes so many are read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Of one pod; `device_classes` is None where they don't matter. `unread` is why something is not known."""

    claims: tuple[PersistentVolumeClaim, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    device_classes: tuple[DeviceClass, ...] | None = None
    unread: tuple[str, ...] = ()

    def show(self, cluster: ClusterCache) -> None:
        """Have them in the caches, in place of what another pod had there."""
        cluster.volumes.replace(self.claims, self.volumes)
        if self.device_classes is not None:
            cluster.delegated.replace(self.device_classes)


ANYWHERE = Whereabouts()
"""Of a pod that nothing ties but what nodes say."""


async def whereabouts(client: Client, pod: Pod) -> Whereabouts:
    """Nothing for a pod that is bound: it has gone by them."""
    named = list(dict.fromkeys(volume_claims(pod)))
    backed = extended_resources(requested(pod))
    if pod.spec.node_name or not (named or backed):
        return ANYWHERE
    unread: list[str] = []
    if len(named) > MOST:
        unread.append(f"of the pod's {len(named)} volumes only {MOST} are read")
    claims = await _got(client, VOLUME_CLAIMS, named[:MOST], unread)
    bound = dict.fromkeys(("", claim.bound_to) for claim in claims if claim.bound_to)
    volumes = await _got(client, VOLUMES, list(bound), unread)
    classes: tuple[DeviceClass, ...] | None = None
    if backed:
        try:
            classes = tuple((await client.list(DEVICE_CLASSES)).items)
        except Forbidden as error:
            unread.append(error.message)
    return Whereabouts(claims, volumes, classes, tuple(unread))


async def _got(client: Client, resource: Resource[T], keys: Sequence[Key], unread: list[str]) -> tuple[T, ...]:
    """Those that are there: what is missing ties a pod to no node."""

    async def get(key: Key) -> Sequence[T]:
        try:
            return (await client.get(resource, key[1], key[0] or None),)
        except NotFound:
            return ()
        except Forbidden as error:
            unread.append(error.message)
            return ()

    return tuple(chain.from_iterable(await asyncio.gather(*map(get, keys))))
