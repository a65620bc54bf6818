"""Named claims: their mirrors, finalizers and conditions. Pods' use of them is the doors' business.

A Parley claim and its mirror both carry a finalizer: neither goes while a pod uses what was allocated. The
claim's condition `Accepted` tells whether it can be negotiated at all, and what to change if not.
"""

from collections.abc import Mapping

from parley.api import reasons
from parley.api.builtin import BuiltinClaim
from parley.api.models import ResourceClaim
from parley.api.names import FINALIZER
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS
from parley.control.clock import Clock, rfc3339
from parley.control.cluster import Cluster, Key
from parley.control.gathering import (
    class_not_found,
    mirror_follows,
    mode_unsupported,
    name_taken,
    too_large,
)
from parley.control.giving_back import GivingBack
from parley.control.ledger import Ledger
from parley.control.mirror import claim_mirror, is_mirror, owned_by, parameters_too_large
from parley.control.standin import is_stand_in
from parley.kube.client import AlreadyExists, Client, NotFound
from parley.sdk import PodReference
from parley.sdk.checks import BadParameters
from parley.sdk.embedded import EmbeddedDriver, RawClaim


class Claims:
    """Keeps named claims in order."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        ledger: Ledger,
        drivers: Mapping[str, EmbeddedDriver],
        giving_back: GivingBack,
        clock: Clock,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = ledger
        self._drivers = drivers
        self._giving_back = giving_back
        self._clock = clock

    async def sync(self, key: Key) -> None:
        """Do what the claim of that name needs next."""
        await self._give_up_unused(key)
        claim, mirror = self._cluster.claim(key), self._cluster.mirror(key)
        if claim is None or is_stand_in(claim):
            await self._orphan(mirror)
        elif claim.metadata.deletion_timestamp:
            await self._delete(claim, mirror)
        else:
            await self._keep(claim, mirror)

    async def _give_up_unused(self, key: Key) -> None:
        """What was allocated for a pod that is gone by now, before anybody could join it, is given back."""
        holding = self._ledger.of_claim(*key)
        if holding is None or holding.pods or holding.immediate or holding.leaving:
            return
        if self._ledger.expected_for(*key) is None:
            await self._giving_back.give_up(holding)

    async def _keep(self, claim: ResourceClaim, mirror: BuiltinClaim | None) -> None:
        code, message = self._verdict(claim, mirror)
        if await self._tell(claim, code, message):
            return  # the change comes back and calls again
        class_ = self._cluster.class_(claim.spec.resource_class_name)
        if mirror is None and class_ is not None and mirror_follows(self._cluster, claim):
            await self._create(claim, shareable=class_.shareable)
        elif mirror is not None and mirror.metadata.deletion_timestamp and self._mine(claim, mirror):
            await self._let_go(mirror, in_use=self._ledger.get(claim.metadata.uid) is not None)

    def _verdict(self, claim: ResourceClaim, mirror: BuiltinClaim | None) -> tuple[str, str]:
        full = f"{claim.metadata.namespace}/{claim.metadata.name}"
        class_ = self._cluster.class_(claim.spec.resource_class_name)
        if claim.spec.allocation_mode == "Immediate":
            return reasons.MODE_UNSUPPORTED, mode_unsupported(full)
        if size := parameters_too_large(claim.spec):
            return reasons.PARAMETERS_INVALID, too_large(f"claim {full}", size)
        if class_ is None:
            return reasons.CLASS_NOT_FOUND, class_not_found(claim.spec.resource_class_name, full)
        if mirror is not None and not self._mine(claim, mirror):
            return reasons.NAME_TAKEN, name_taken("ResourceClaim", claim.metadata.namespace, claim.metadata.name)
        if class_.driver_name not in self._drivers:
            return reasons.ACCEPTED, f"class is known; driver {class_.driver_name} will judge the parameters"
        meta = claim.metadata
        raw = RawClaim(
            meta.name,
            meta.uid,
            meta.namespace,
            meta.name,
            class_.metadata.name,
            claim.spec.parameters,
            class_.parameters,
        )
        try:
            self._drivers[class_.driver_name].request(PodReference(meta.namespace, "", ""), (raw,))
        except BadParameters as error:
            return reasons.PARAMETERS_INVALID, str(error)
        return reasons.ACCEPTED, "class, driver and parameters are known"

    def _mine(self, claim: ResourceClaim, mirror: BuiltinClaim) -> bool:
        return is_mirror(mirror) and owned_by(mirror, claim.metadata.uid)

    async def _tell(self, claim: ResourceClaim, code: str, message: str) -> bool:
        """Keep the condition up to date; returns whether it had to be written."""
        known = next((c for c in claim.status.conditions if c.type == reasons.ACCEPTED), None)
        if known is not None and (known.reason, known.message) == (code, message):
            return False
        status = "True" if code == reasons.ACCEPTED else "False"
        since = rfc3339(self._clock())
        if known is not None and known.status == status:
            since = known.last_transition_time
        condition = {
            "type": reasons.ACCEPTED,
            "status": status,
            "reason": code,
            "message": message,
            "lastTransitionTime": since,
        }
        others = [c.wire() for c in claim.status.conditions if c.type != reasons.ACCEPTED]
        body: dict[str, object] = {"conditions": [*others, condition]}
        if not claim.status.state:
            body["state"] = "pending"
        meta = claim.metadata
        await self._client.patch(CLAIMS, meta.name, {"status": body}, meta.namespace, subresource="status")
        return True

    async def _create(self, claim: ResourceClaim, *, shareable: bool) -> None:
        meta = claim.metadata
        if FINALIZER not in meta.finalizers:
            body = {
                "metadata": {
                    "resourceVersion": meta.resource_version,
                    "finalizers": [*meta.finalizers, FINALIZER],
                }
            }
            await self._client.patch(CLAIMS, meta.name, body, meta.namespace)
            return
        try:
            await self._client.create(BUILTIN_CLAIMS, claim_mirror(claim, shareable=shareable), meta.namespace)
        except AlreadyExists:
            pass  # not in the cache yet; its arrival calls again

    async def _let_go(self, mirror: BuiltinClaim, *, in_use: bool) -> None:
        """Somebody deleted the mirror: it goes when no pod uses it, and is then made anew."""
        if not in_use and FINALIZER in mirror.metadata.finalizers:
            await self._drop_finalizer(mirror)

    async def _drop_finalizer(self, mirror: BuiltinClaim) -> None:
        meta = mirror.metadata
        body = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "finalizers": [f for f in meta.finalizers if f != FINALIZER] or None,
            }
        }
        try:
            await self._client.patch(BUILTIN_CLAIMS, meta.name, body, meta.namespace)
        except NotFound:
            pass  # gone already

    async def _delete(self, claim: ResourceClaim, mirror: BuiltinClaim | None) -> None:
        if self._ledger.get(claim.metadata.uid) is not None or claim.status.allocation is not None:
            return
        if mirror is not None and self._mine(claim, mirror):
            await self._delete_mirror(mirror)
        elif FINALIZER in claim.metadata.finalizers:
            await self._let_claim_go(claim)

    async def _delete_mirror(self, mirror: BuiltinClaim) -> None:
        meta = mirror.metadata
        if not meta.deletion_timestamp:
            await self._client.delete(BUILTIN_CLAIMS, meta.name, meta.namespace, uid=meta.uid)
        elif FINALIZER in meta.finalizers:
            await self._drop_finalizer(mirror)

    async def _let_claim_go(self, claim: ResourceClaim) -> None:
        meta = claim.metadata
        left = [f for f in meta.finalizers if f != FINALIZER]
        body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": left or None}}
        await self._client.patch(CLAIMS, meta.name, body, meta.namespace)

    async def _orphan(self, mirror: BuiltinClaim | None) -> None:
        """The Parley claim is gone (its finalizer was forced off): its mirror must not stay behind for ever."""
        if mirror is None or not is_mirror(mirror) or FINALIZER not in mirror.metadata.finalizers:
            return
        if mirror.metadata.deletion_timestamp:
            await self._drop_finalizer(mirror)
