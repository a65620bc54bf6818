"""Gives receipts that a claim is not prepared on this node any more, so that its devices may be allocated to
others.

The controller requests a receipt by a ClaimRelease for this node; the receipt is its deletion. It is given when
the API shows no allocation of the claim any more (the controller records that in the ClaimRelease), the driver's
checkpoint on this node has no entry for the claim's UID, and no call for it is under way. After that the claim
can't be prepared: a call reads the claim before it prepares anything. Until then the controller keeps the claim
allocated.

If the claim has ended for good (`spec.removeData`), the driver first removes the data that its pods left on this
node. That may take minutes: each removal is a task of its own, and is retried with a growing back-off. Data that
is retained uses room of the node: that is published before the receipt is given.

Only the plugin of the claim's driver gives receipts: another plugin on the same node does not know the claim.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import structlog

from parley.api.models import Allocation, ClaimRelease
from parley.api.resources import CLAIM_RELEASES
from parley.kube.backoff import Backoff
from parley.kube.client import ApiError, Client, NotFound, OutcomeUnknown
from parley.kube.informer import Informer, Selection
from parley_kubelet.claims.preparation import ClaimName, Preparation
from parley_kubelet.state.checkpoint import CheckpointError, HeldDevice

RECHECK: Final = 3.0
"""Seconds between two checks of claims that are still prepared: a second plugin of a rolling update may have
unprepared them."""

RETRIES: Final = Backoff(first=2.0, longest=120.0, jitter=0.3)
"""The back-off between attempts to remove a claim's data."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Removal:
    """The removal of a claim's data. It failed `failures` times, and is retried at `retry_at` at the earliest (the
    event loop's clock)."""

    task: asyncio.Task[None] | None = None
    failures: int = 0
    retry_at: float = 0.0

    def stop(self) -> None:
        """Cancel the removal, if it is under way."""
        if self.task is not None:
            self.task.cancel()


class Receipts:
    """Gives receipts for the drivers of this process, by their names, on one node. `published` has functions that
    return when a driver's current devices are published in ResourceSlices."""

    def __init__(
        self,
        client: Client,
        node: str,
        drivers: Mapping[str, Preparation],
        published: Mapping[str, Callable[[], Awaitable[None]]] = MappingProxyType({}),
    ) -> None:
        self._client = client
        self._drivers = drivers
        self._published = published
        self._wake = asyncio.Event()
        self._given: set[str] = set()
        self._removals: dict[str, _Removal] = {}
        """By the ClaimRelease's UID."""
        self.receipts: Counter[str] = Counter()
        """The number of receipts given, by driver."""
        self._watch: Informer[ClaimRelease] = Informer(
            client,
            CLAIM_RELEASES,
            Selection(field_selector=f"spec.nodeName={node}"),
            on_change=lambda _old, _new: self._wake.set(),
            transform=_trimmed,
        )

    async def run(self) -> None:
        """Give receipts until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch.run())
                for preparation in self._drivers.values():
                    group.create_task(self._wake_on_release(preparation))
                while True:
                    await self._wait_for_work()
                    await self.give_receipts()
        finally:
            for removal in self._removals.values():
                removal.stop()

    async def give_receipts(self) -> None:
        """Give the receipts that can be given now. Each driver's checkpoint is read once: claims that are still
        prepared cost no more, even thousands of them."""
        waiting = self._pending()
        held = {name: await self._held(name) for name in {release.spec.driver_name for release in waiting}}
        for release in waiting:
            if release.spec.claim.uid in held[release.spec.driver_name]:
                continue
            try:
                await self._give_receipt(release)
            except (ApiError, OutcomeUnknown, CheckpointError, OSError) as error:
                log.warning("receipt not given yet", claim=_name(release), reason=str(error))

    async def _held(self, driver: str) -> Collection[str]:
        """The UIDs of the driver's held claims; none if the checkpoint can't be read now."""
        try:
            return await self._drivers[driver].entries()
        except (CheckpointError, OSError):
            return ()

    def pending(self) -> Counter[str]:
        """The number of receipts requested and not given yet, by driver."""
        return Counter(release.spec.driver_name for release in self._pending())

    def outage_seconds(self) -> float:
        """For how many seconds ClaimReleases have been neither listed nor watched; 0 while they are."""
        outage = self._watch.outage()
        return outage.seconds if outage is not None else 0.0

    def _pending(self) -> Sequence[ClaimRelease]:
        """The ClaimReleases whose receipts these drivers may give, and have not given."""
        there = {release.metadata.uid for release in self._watch.values()}
        self._given &= there
        for uid in self._removals.keys() - there:
            self._removals.pop(uid).stop()
        return [
            release
            for release in self._watch.values()
            if release.status.allocation_cleared
            and release.spec.driver_name in self._drivers
            and release.metadata.uid not in self._given
        ]

    async def _wait_for_work(self) -> None:
        """Waits until a ClaimRelease or held claim changes, for `RECHECK` at most while a receipt is pending."""
        try:
            async with asyncio.timeout(RECHECK if self._pending() else None):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _wake_on_release(self, preparation: Preparation) -> None:
        while True:
            await preparation.released.wait()
            preparation.released.clear()
            self._wake.set()

    async def _give_receipt(self, release: ClaimRelease) -> None:
        meta, spec = release.metadata, release.spec
        preparation = self._drivers[spec.driver_name]
        if await preparation.holds(spec.claim.uid):
            return
        if spec.remove_data and not self._data_removed(release, preparation):
            return
        try:
            await self._client.delete(CLAIM_RELEASES, meta.name, uid=meta.uid)
        except NotFound:
            return
        self._given.add(meta.uid)
        self.receipts[spec.driver_name] += 1
        claim = _name(release)
        log.info("receipt given: not prepared on this node", claim=claim, uid=spec.claim.uid, node=spec.node_name)

    def _data_removed(self, release: ClaimRelease, preparation: Preparation) -> bool:
        """Whether the driver has removed the claim's data; if not, starts or continues the removal."""
        removal = self._removals.setdefault(release.metadata.uid, _Removal())
        now, task = asyncio.get_running_loop().time(), removal.task
        if task is None:
            if now >= removal.retry_at:
                removal.task = asyncio.create_task(self._remove_data(release, preparation))
                removal.task.add_done_callback(lambda _: self._wake.set())
            return False
        if not task.done():
            return False
        if (error := task.exception()) is None:
            return True
        removal.task, removal.failures = None, removal.failures + 1
        removal.retry_at = now + RETRIES.delay(removal.failures)
        log.warning(
            "data not removed yet", claim=_name(release), driver=preparation.driver.name, reason=_reason(error)
        )
        return False

    async def _remove_data(self, release: ClaimRelease, preparation: Preparation) -> None:
        ended, handles = release.spec.claim, release.spec.allocation.handles
        devices = [HeldDevice(pool=d.pool, name=d.device) for handle in handles for d in handle.devices]
        data = handles[0].data if handles else None
        await preparation.remove_data(ClaimName(ended.namespace, ended.name, ended.uid), devices, data or {})
        if (published := self._published.get(release.spec.driver_name)) is not None:
            await published()


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _trimmed(release: ClaimRelease) -> ClaimRelease:
    """The fields that are cached: without the allocation, which only the removal of data needs."""
    if release.spec.remove_data:
        return release
    return release.model_copy(update={"spec": release.spec.model_copy(update={"allocation": Allocation()})})


def _name(release: ClaimRelease) -> str:
    return f"{release.spec.claim.namespace}/{release.spec.claim.name}"
