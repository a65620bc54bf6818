"""Gives receipts: what was allocated on this node is not prepared here any more, and may be given to others.

The controller requests one by a ClaimRelease for this node; the receipt is its deletion. Decides when: as soon as
the API shows no allocation of the claim any more (the controller records that in the ClaimRelease), the driver's
checkpoint on this node has no entry for the claim's UID, and no call for it is under way. After that it can't be
prepared: a call reads the claim before it prepares anything. What happens until then is the controller's affair.

Where the claim has ended for good (`spec.removeData`) the driver first removes what its pods left on this node.
That may take minutes: each removal is a task of its own, and one that fails is tried again after a growing pause.
What is retained takes room of the node: that is published before others are promised what the claim had.

Only the plugin of the claim's driver answers: on the same node another plugin knows nothing of it.
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

AGAIN: Final = 3.0
"""Seconds after which claims that are still prepared are looked at again: a second plugin of a rolling update may
have unprepared them."""

RETRIES: Final = Backoff(first=2.0, longest=120.0, jitter=0.3)
"""Before data that could not be removed is removed again."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Removal:
    """Data of a claim that is being removed. It failed `failures` times, and is tried again at `again` at the
    earliest (the event loop's clock)."""

    task: asyncio.Task[None] | None = None
    failures: int = 0
    again: float = 0.0

    def stop(self) -> None:
        """Cancel it, if it is under way."""
        if self.task is not None:
            self.task.cancel()


class Receipts:
    """Answers for the drivers of this process, by their names, on one node. `published` return when what a driver
    offers by now is published."""

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
        self._asked = asyncio.Event()
        self._given: set[str] = set()
        self._removals: dict[str, _Removal] = {}
        """By the ClaimRelease's UID."""
        self.receipts: Counter[str] = Counter()
        """So many were given, by driver."""
        self._watch: Informer[ClaimRelease] = Informer(
            client,
            CLAIM_RELEASES,
            Selection(field_selector=f"spec.nodeName={node}"),
            on_change=lambda _old, _new: self._asked.set(),
            transform=_kept,
        )

    async def run(self) -> None:
        """Give receipts until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch.run())
                for preparation in self._drivers.values():
                    group.create_task(self._listen(preparation))
                while True:
                    await self._news()
                    await self.look()
        finally:
            for removal in self._removals.values():
                removal.stop()

    async def look(self) -> None:
        """Give the receipts that can be given now. Of thousands of claims that are still prepared none costs more
        than one look at what is held."""
        waiting = self._waiting()
        held = {name: await self._held(name) for name in {release.spec.driver_name for release in waiting}}
        for release in waiting:
            if release.spec.claim.uid in held[release.spec.driver_name]:
                continue
            try:
                await self._answer(release)
            except (ApiError, OutcomeUnknown, CheckpointError, OSError) as error:
                log.warning("receipt not given yet", claim=_name(release), reason=str(error))

    async def _held(self, driver: str) -> Collection[str]:
        """UIDs of claims that the driver holds something for; none if they can't be read now."""
        try:
            return await self._drivers[driver].entries()
        except (CheckpointError, OSError):
            return ()

    def waiting(self) -> Counter[str]:
        """How many receipts are requested and not given yet, by driver."""
        return Counter(release.spec.driver_name for release in self._waiting())

    def outage_seconds(self) -> float:
        """For how long requests for receipts were neither listed nor watched; 0 while they are."""
        outage = self._watch.outage()
        return outage.seconds if outage is not None else 0.0

    def _waiting(self) -> Sequence[ClaimRelease]:
        """The releases that these drivers may answer, and have not."""
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

    async def _news(self) -> None:
        """Until something was requested or released; not longer than `AGAIN` while a ClaimRelease is open."""
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
        preparation = self._drivers[spec.driver_name]
        if await preparation.holds(spec.claim.uid):
            return
        if spec.remove_data and not self._is_removed(release, preparation):
            return
        try:
            await self._client.delete(CLAIM_RELEASES, meta.name, uid=meta.uid)
        except NotFound:
            return
        self._given.add(meta.uid)
        self.receipts[spec.driver_name] += 1
        claim = _name(release)
        log.info("receipt given: not prepared on this node", claim=claim, uid=spec.claim.uid, node=spec.node_name)

    def _is_removed(self, release: ClaimRelease, preparation: Preparation) -> bool:
        """Whether the driver has removed the claim's data; if not, that begins, or goes on."""
        removal = self._removals.setdefault(release.metadata.uid, _Removal())
        now, task = asyncio.get_running_loop().time(), removal.task
        if task is None:
            if now >= removal.again:
                removal.task = asyncio.create_task(self._remove(release, preparation))
                removal.task.add_done_callback(lambda _: self._asked.set())
            return False
        if not task.done():
            return False
        if (error := task.exception()) is None:
            return True
        removal.task, removal.failures = None, removal.failures + 1
        removal.again = now + RETRIES.delay(removal.failures)
        log.warning(
            "data not removed yet", claim=_name(release), driver=preparation.driver.name, reason=_reason(error)
        )
        return False

    async def _remove(self, release: ClaimRelease, preparation: Preparation) -> None:
        ended, handles = release.spec.claim, release.spec.allocation.handles
        devices = [HeldDevice(pool=d.pool, name=d.device) for handle in handles for d in handle.devices]
        data = handles[0].data if handles else None
        await preparation.remove_data(ClaimName(ended.namespace, ended.name, ended.uid), devices, data or {})
        if (published := self._published.get(release.spec.driver_name)) is not None:
            await published()


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _kept(release: ClaimRelease) -> ClaimRelease:
    """What is read here: not what the driver allocated, unless data is to be removed by that."""
    if release.spec.remove_data:
        return release
    return release.model_copy(update={"spec": release.spec.model_copy(update={"allocation": Allocation()})})


def _name(release: ClaimRelease) -> str:
    return f"{release.spec.claim.namespace}/{release.spec.claim.name}"
