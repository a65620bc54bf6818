"""Takes over from an earlier copy of a standalone driver, before restoring: makes its late writes conflict.

A copy that lost its lease may have sent an allocation that the network delivers after this copy became the leader.
Each write carries the resourceVersion that it was based on, and none allocates without the driver's finalizer on
the claim. So every claim with the finalizer and without an allocation is changed: the API server then refuses late
writes. A claim that can't be changed, because a webhook refuses it or does not answer, is skipped after a while.
"""

import structlog

from parley.api.models import ResourceClaim
from parley.kube.cache import identity
from parley.kube.client import REFUSALS
from parley.kube.errors import is_right_lacking
from parley.kube.repeated import repeated
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import ClaimRef
from parley.sdk.standalone.records import Gone, StandaloneRecords

log = structlog.get_logger(__name__)


async def fence_earlier_copies(informers: Informers, records: StandaloneRecords) -> None:
    """Returns when no write of an earlier copy can allocate any more. The informers' caches then have all that it
    wrote."""

    async def take_over(claim: ResourceClaim) -> None:
        try:
            await records.take_over(ClaimRef(identity(claim).key, claim.metadata.uid))
        except Gone:
            pass  # no late write can succeed either
        except REFUSALS as error:
            if is_right_lacking(error):
                raise
            _not_prevented(claim, error.message)

    begun = [c for c in informers.claims() if c.status.allocation is None and records.has_finalizer(c)]
    _, failed = await repeated(begun, take_over)
    for claim, error in failed:
        _not_prevented(claim, str(error))


def _not_prevented(claim: ResourceClaim, error: str) -> None:
    name = "/".join(identity(claim).key)
    log.warning("late writes of an earlier copy are not prevented", claim=name, error=error)
