"""What a standalone driver does before it is restored: it makes late writes of an earlier copy conflict.

One that lost its lease may have sent an allocation which the network delivers when this copy leads. Each write
names the resourceVersion that it was decided on, and none allocates without the driver's finalizer on the claim.
So every claim that has it, and no allocation, is changed: what comes later is refused by the API server. One that
can't be changed, as a webhook refuses that or does not answer, is left after a while.
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


async def shut_out_earlier_copies(informers: Informers, records: StandaloneRecords) -> None:
    """Return when no write of an earlier copy can allocate anything any more. What it wrote until then is in the
    informers' caches."""

    async def take_over(claim: ResourceClaim) -> None:
        try:
            await records.take_over(ClaimRef(identity(claim).key, claim.metadata.uid))
        except Gone:
            pass  # with what could have been written to it
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
