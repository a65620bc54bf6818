"""Tells users what a driver's node part has to say about their claims (`NodeDriver.notices`): an event on the
claim and on each pod that may use it. How many claims there is something to say about is a metric.

An event is written when a reason begins, and once an hour while it lasts, for the API server keeps events for
that long. One that comes and goes makes an event every few minutes at most. An event that can't be written is
logged, and tried again with the next hour: nothing depends on it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import structlog

from parley.api.builtin import BuiltinClaim
from parley.api.events import About, Source, warning
from parley.api.names import API_VERSION, GROUP
from parley.api.resources import BUILTIN_CLAIMS, EVENTS
from parley.kube.cancelling import uncancelled
from parley.kube.client import ApiError, Client, NotFound, OutcomeUnknown
from parley.kube.clock import Clock, rfc3339_micro, utc
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.hooks import Notice

LIMIT: Final = 25.0
"""Seconds for the driver's answer."""

REPEAT: Final = 3600.0
"""Seconds between two events while a reason lasts."""

AGAIN: Final = 300.0
"""Seconds between two events of one reason that went meanwhile."""

MOST_PODS: Final = 16
"""So many pods of a claim get an event; the claim has one in any case."""

log = structlog.get_logger(__name__)

_Key = tuple[str, str]
"""The UID of a claim, and a reason."""


class Notices:
    """Those of one driver."""

    def __init__(
        self,
        preparation: Preparation,
        client: Client,
        clock: Clock = utc,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._preparation = preparation
        self._driver = preparation.driver
        self._client = client
        self._clock = clock
        self._now = now
        self._source = Source(f"{GROUP}/kubelet", self._driver.node, "Watching")
        self._told: dict[_Key, float] = {}
        self._current: frozenset[_Key] = frozenset()

    def counts(self) -> Counter[str]:
        """For how many claims there is a notice now, by its reason."""
        return Counter(reason for _, reason in self._current)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._driver.notice_seconds)

    async def look(self) -> None:
        """Ask once, and tell what is due."""
        try:
            async with asyncio.timeout(LIMIT):
                held = await self._preparation.held()
                with uncancelled(self._driver.name):
                    notices = await self._driver.notices(held)
            current = frozenset((notice.claim.uid, notice.reason) for notice in notices)
        except Exception as error:
            log.warning("no notices", driver=self._driver.name, reason=str(error), kind=type(error).__name__)
            return
        now, before, self._current = self._now(), self._current, current
        self._told = {key: at for key, at in self._told.items() if key in self._current or now - at < AGAIN}
        for notice in notices:
            key = (notice.claim.uid, notice.reason)
            pause = REPEAT if key in before else AGAIN
            if key not in self._told or now - self._told[key] >= pause:
                self._told[key] = now
                await self._tell(notice)

    async def _tell(self, notice: Notice[Any]) -> None:
        claim = notice.claim
        log.warning(
            "notice", driver=self._driver.name, claim=str(claim), reason=notice.reason, message=notice.message
        )
        try:
            found = await self._client.get(BUILTIN_CLAIMS, claim.name, claim.namespace)
            for about in _abouts(found) if found.metadata.uid == claim.uid else ():
                await self._write(about, notice)
        except NotFound:
            pass  # the claim is gone, and so is who would read it
        except (ApiError, OutcomeUnknown) as error:
            log.warning("event not written", claim=str(claim), reason=notice.reason, error=str(error))

    async def _write(self, about: About, notice: Notice[Any]) -> None:
        note = f"claim {notice.claim}: {notice.message}"
        body = warning(about, self._source, notice.reason, note, rfc3339_micro(self._clock()))
        await self._client.create(EVENTS, body, about.place)


def _abouts(claim: BuiltinClaim) -> Sequence[About]:
    return (_claim(claim), *_pods(claim))


def _claim(claim: BuiltinClaim) -> About:
    """The claim as its user knows it: the one of parley.dev, if it stands for one."""
    meta = claim.metadata
    for owner in meta.owner_references:
        if (owner.api_version, owner.kind, owner.name) == (API_VERSION, "ResourceClaim", meta.name):
            return About("ResourceClaim", API_VERSION, meta.namespace, meta.name, owner.uid)
    return About("ResourceClaim", "resource.k8s.io/v1", meta.namespace, meta.name, meta.uid)


def _pods(claim: BuiltinClaim) -> Iterator[About]:
    for user in claim.status.reserved_for[:MOST_PODS]:
        yield About("Pod", "v1", claim.metadata.namespace, user.name, user.uid)
