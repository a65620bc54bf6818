"""Takes over from former leaders: before a new leader decides anything, it makes their late writes conflict.

A leader that was cut off may have sent an allocation that the network delivers when another one leads. Each of its
writes names the resourceVersion that it was decided on. So the new leader changes every built-in claim that such a
write could allocate: later ones are refused by the API server. A claim that is too large for this change is too
large for an allocation as well. The same is done for claims that a former leader could have accepted, which
standalone drivers would then allocate. A claim that can't be changed because a webhook refuses that or does not
answer is left out after a while: other namespaces do not wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

import structlog

from parley.api.builtin import BuiltinClaim
from parley.api.models import ResourceClaim
from parley.control.caches.cluster import ClusterCache
from parley.control.objects.mirror import is_mirror, offer_stands
from parley.control.writes import ClaimWrites, MirrorWrites, ObjectWrites
from parley.kube.client import REFUSALS, ApiError, Client, NotFound, OutcomeUnknown
from parley.kube.errors import is_right_lacking
from parley.kube.informer import RELISTS
from parley.kube.repeated import repeated

T = TypeVar("T")
C = TypeVar("C", BuiltinClaim, ResourceClaim)

log = structlog.get_logger(__name__)


async def fence_former_leaders(client: Client, cluster: ClusterCache) -> Mapping[str, BuiltinClaim]:
    """Wait until no write of an earlier leader can allocate anything any more.

    Returns the changed claims, by UID: they are newer than the cache, and may show a last write of that leader.
    """
    return await _touch_all(MirrorWrites(client, cluster), _allocatable(cluster))


async def fence_acceptances(
    client: Client, cluster: ClusterCache, claims: Iterable[ResourceClaim]
) -> Mapping[str, ResourceClaim]:
    """Wait until no write of an earlier leader can accept these claims any more. Returns them by UID."""
    return await _touch_all(ClaimWrites(client, cluster), claims)


async def _touch_all(writes: ObjectWrites[C], claims: Iterable[C]) -> Mapping[str, C]:
    changed, failed = await repeated(claims, partial(_touch, writes))
    for claim, error in failed:
        _warn_not_prevented(claim, str(error))
    return {claim.metadata.uid: claim for claim in changed if claim is not None}


def _allocatable(cluster: ClusterCache) -> Iterator[BuiltinClaim]:
    for mirror in cluster.mirrors():
        if is_mirror(mirror) and (mirror.status.allocation is None or offer_stands(mirror)):
            yield mirror


async def _touch(writes: ObjectWrites[C], claim: C) -> C | None:
    """The changed claim; None if it is gone, or may not be changed."""
    try:
        return await writes.touch(claim)
    except NotFound:
        return None
    except REFUSALS as error:
        if is_right_lacking(error):
            raise
        _warn_not_prevented(claim, error.message)
        return None


def _warn_not_prevented(claim: BuiltinClaim | ResourceClaim, error: str) -> None:
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    log.warning("late writes of a former leader are not prevented", claim=name, error=error)


async def retry_while_unavailable(problem: str, request: Callable[[], Awaitable[T]]) -> T:
    """The answer to the request, repeated with an informer's pauses while the server is busy or just starting."""
    failures = 0
    while True:
        try:
            return await request()
        except (ApiError, OutcomeUnknown) as error:
            failures += 1
            log.warning(problem, failures=failures, error=str(error))
            await asyncio.sleep(RELISTS.delay(failures))
