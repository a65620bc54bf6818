"""Gives receipts: what was allocated on this node is not prepared here any more, and may be given to others.

The controller requests one by a ClaimRelease for this node; the receipt is its deletion. Decides when: as soon as
the API shows no allocation of the claim any more (the controller records that in the ClaimRelease), the driver's
checkpoint on this node has no entry for the claim's UID, and no call for it is under way. After that it can't be
prepared: a call reads the claim before it prepares anything. What happens until then is the controller's affair.

Only the plugin of the claim's driver answers: on the same node another plugin knows nothing of it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from parley.api.models import Allocation, ClaimRelease
from parley.api.resources import CLAIM_RELEASES
from parley.kube.client import ApiError, Client, NotFound, OutcomeUnknown
from parley.kube.informer import Informer, Selection
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.state.checkpoint import CheckpointError

AGAIN: Final = 3.0
"""Seconds after which claims that are still prepared are looked at again: a second plugin of a rolling update may
have unprepared them."""

log = structlog.get_logger(__name__)


class Receipts:
    """Answers for the drivers of this process, by their names, on one node."""

    def __init__(self, client: Client, node: str, drivers: Mapping[str, Preparation]) -> None:
        self._client = client
        self._drivers = drivers
        self._asked = asyncio.Event()
        self._given: set[str] = set()
        self._watch: Informer[ClaimRelease] = Informer(
            client,
            CLAIM_RELEASES,
            Selection(field_selector=f"spec.nodeName={node}"),
            on_change=lambda _old, _new: self._asked.set(),
            transform=_kept,
        )

    async def run(self) -> None:
        """Give receipts until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch.run())
            for preparation in self._drivers.values():
                group.create_task(self._listen(preparation))
            while True:
                await self._news()
                await self.look()

    async def look(self) -> None:
        """Give the receipts that can be given now."""
        for release in self._waiting():
            try:
                await self._answer(release)
            except (ApiError, OutcomeUnknown, CheckpointError, OSError) as error:
                log.warning("receipt not given yet", claim=_name(release), reason=str(error))

    def _waiting(self) -> Sequence[ClaimRelease]:
        """The releases that these drivers may answer, and have not."""
        self._given &= {release.metadata.uid for release in self._watch.values()}
        return [
            release
            for release in self._watch.values()
            if release.status.allocation_cleared
            and release.spec.driver_name in self._drivers
            and release.metadata.uid not in self._given
        ]

    async def _news(self) -> None:
        """Until something was requested or given back; not longer than `AGAIN` while a ClaimRelease is open."""
        try:
            async with asyncio.timeout(AGAIN if self._waiting() else None):
                await self._asked.wait()
        except TimeoutError:
            return
        self._asked.clear()

    async def _listen(self, preparation: Preparation) -> None:
        while True:
            await preparation.released.wait()
            preparation.released.clear()
            self._asked.set()

    async def _answer(self, release: ClaimRelease) -> None:
        meta, spec = release.metadata, release.spec
        if await self._drivers[spec.driver_name].holds(spec.claim.uid):
            return
        try:
            await self._client.delete(CLAIM_RELEASES, meta.name, uid=meta.uid)
        except NotFound:
            return
        self._given.add(meta.uid)
        claim = _name(release)
        log.info("receipt given: not prepared on this node", claim=claim, uid=spec.claim.uid, node=spec.node_name)


def _kept(release: ClaimRelease) -> ClaimRelease:
    """What is read here: not what the driver allocated."""
    return release.model_copy(update={"spec": release.spec.model_copy(update={"allocation": Allocation()})})


def _name(release: ClaimRelease) -> str:
    return f"{release.spec.claim.namespace}/{release.spec.claim.name}"
