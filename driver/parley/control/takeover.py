"""What a new leader does before it decides anything: it makes late writes of former leaders conflict.

A leader that was cut off may have sent an allocation which the network delivers when another one leads. Each of
its writes names the resourceVersion that it was decided on. So the new leader changes every built-in claim that
such a write could give devices to: what comes later is refused by the API server. Where a claim is too large for
this change, it is too large for an allocation as well. The same for claims that it could have accepted, which
standalone drivers then allocate. A claim that nobody can change, as a webhook refuses that or does not answer, is
left after a while: others do not wait for its namespace.
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


async def shut_out_former_leaders(client: Client, cluster: ClusterCache) -> Mapping[str, BuiltinClaim]:
    """Return when no write of an earlier leader can allocate anything any more.

    Returns the claims that were changed, by UID: they are newer than the cache, and may show a last write.
    """
    return await _change(MirrorWrites(client, cluster), _allocatable(cluster))


async def shut_out_acceptances(
    client: Client, cluster: ClusterCache, claims: Iterable[ResourceClaim]
) -> Mapping[str, ResourceClaim]:
    """Return when no write of an earlier leader can accept these claims any more. Returns them as they are."""
    return await _change(ClaimWrites(client, cluster), claims)


async def _change(writes: ObjectWrites[C], claims: Iterable[C]) -> Mapping[str, C]:
    changed, failed = await repeated(claims, partial(_changed, writes))
    for claim, error in failed:
        _not_prevented(claim, str(error))
    return {claim.metadata.uid: claim for claim in changed if claim is not None}


def _allocatable(cluster: ClusterCache) -> Iterator[BuiltinClaim]:
    for mirror in cluster.mirrors():
        if is_mirror(mirror) and (mirror.status.allocation is None or offer_stands(mirror)):
            yield mirror


async def _changed(writes: ObjectWrites[C], claim: C) -> C | None:
    """The claim after it was changed; None if it is gone."""
    try:
        return await writes.touch(claim)
    except NotFound:
        return None
    except REFUSALS as error:
        if is_right_lacking(error):
            raise
        _not_prevented(claim, error.message)
        return None


def _not_prevented(claim: BuiltinClaim | ResourceClaim, error: str) -> None:
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    log.warning("late writes of a former leader are not prevented", claim=name, error=error)


async def persist(problem: str, request: Callable[[], Awaitable[T]]) -> T:
    """The answer of a server that is busy or just starting: it is asked again, like by an informer."""
    failures = 0
    while True:
        try:
            return await request()
        except (ApiError, OutcomeUnknown) as error:
            failures += 1
            log.warning(problem, failures=failures, error=str(error))
            await asyncio.sleep(RELISTS.delay(failures))
