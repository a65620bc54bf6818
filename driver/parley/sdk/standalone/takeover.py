"""What a standalone driver does before it is restored: it makes late writes of an earlier copy conflict.

One that lost its lease may have sent an allocation which the network delivers when this copy leads. Each write
names the resourceVersion that it was decided on, and none allocates without the driver's finalizer on the claim.
So every claim that has it, and no allocation, is changed: what comes later is refused by the API server.
"""

import asyncio

import structlog

from parley.api.models import ResourceClaim
from parley.kube.cache import identity
from parley.kube.client import REFUSALS
from parley.sdk.standalone.allocating import persist
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import ClaimRef
from parley.sdk.standalone.records import Gone, StandaloneRecords

AT_ONCE = 32
"""So many claims are changed at the same time."""

log = structlog.get_logger(__name__)


async def shut_out_earlier_copies(informers: Informers, records: StandaloneRecords) -> None:
    """Return when no write of an earlier copy can allocate anything any more. What it wrote until then is in the
    informers' caches."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def change(claim: ResourceClaim) -> None:
        async with slots:
            await _take_over(ClaimRef(identity(claim).key, claim.metadata.uid), records)

    begun = [c for c in informers.claims() if c.status.allocation is None and records.has_finalizer(c)]
    await asyncio.gather(*map(change, begun))


async def _take_over(ref: ClaimRef, records: StandaloneRecords) -> None:
    async def attempt(ref: ClaimRef) -> None:
        try:
            await records.take_over(ref)
        except REFUSALS as error:
            log.warning(
                "late writes of an earlier copy are not prevented", claim="/".join(ref.key), error=error.message
            )

    try:
        await persist(ref, attempt)
    except Gone:
        pass  # with what could have been written to it
