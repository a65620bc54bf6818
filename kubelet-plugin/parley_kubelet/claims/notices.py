"""Writes events for the notices of a driver's node part about claims (`NodeDriver.notices`): on the claim and on
each pod that may use it. The number of claims with notices is a metric.

An event is written when a notice begins, and once an hour while it lasts: the API server keeps events for an hour.
A notice that comes and goes makes an event every few minutes at most. An event that can't be written is logged,
and written again in the next hour: nothing depends on it.
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
"""Seconds between two events while a notice lasts."""

REPEAT_RECURRING: Final = 300.0
"""Seconds between two events of a notice that ended and began again."""

MOST_PODS: Final = 16
"""The most pods of a claim that get an event; the claim always gets one."""

log = structlog.get_logger(__name__)

_Key = tuple[str, str]
"""A claim's UID, and the notice's reason."""


class Notices:
    """The notices of one driver on this node."""

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
        self._reported: dict[_Key, float] = {}
        self._current: frozenset[_Key] = frozenset()

    def counts(self) -> Counter[str]:
        """The number of claims that have a notice now, by reason."""
        return Counter(reason for _, reason in self._current)

    async def run(self) -> None:
        """Poll the driver until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(self._driver.notice_seconds)

    async def poll(self) -> None:
        """Ask the driver for notices once, and write the events that are due."""
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
        self._reported = {
            key: at for key, at in self._reported.items() if key in self._current or now - at < REPEAT_RECURRING
        }
        for notice in notices:
            key = (notice.claim.uid, notice.reason)
            pause = REPEAT if key in before else REPEAT_RECURRING
            if key not in self._reported or now - self._reported[key] >= pause:
                self._reported[key] = now
                await self._report(notice)

    async def _report(self, notice: Notice[Any]) -> None:
        claim = notice.claim
        log.warning(
            "notice", driver=self._driver.name, claim=str(claim), reason=notice.reason, message=notice.message
        )
        try:
            found = await self._client.get(BUILTIN_CLAIMS, claim.name, claim.namespace)
            for about in _event_subjects(found) if found.metadata.uid == claim.uid else ():
                await self._write(about, notice)
        except NotFound:
            pass  # the claim is deleted: nobody would read the event
        except (ApiError, OutcomeUnknown) as error:
            log.warning("event not written", claim=str(claim), reason=notice.reason, error=str(error))

    async def _write(self, about: About, notice: Notice[Any]) -> None:
        note = f"claim {notice.claim}: {notice.message}"
        body = warning(about, self._source, notice.reason, note, rfc3339_micro(self._clock()))
        await self._client.create(EVENTS, body, about.place)


def _event_subjects(claim: BuiltinClaim) -> Sequence[About]:
    return (_claim_subject(claim), *_pod_subjects(claim))


def _claim_subject(claim: BuiltinClaim) -> About:
    """The claim that the user created: for a mirror, the ResourceClaim of parley.dev."""
    meta = claim.metadata
    for owner in meta.owner_references:
        if (owner.api_version, owner.kind, owner.name) == (API_VERSION, "ResourceClaim", meta.name):
            return About("ResourceClaim", API_VERSION, meta.namespace, meta.name, owner.uid)
    return About("ResourceClaim", "resource.k8s.io/v1", meta.namespace, meta.name, meta.uid)


def _pod_subjects(claim: BuiltinClaim) -> Iterator[About]:
    for user in claim.status.reserved_for[:MOST_PODS]:
        yield About("Pod", "v1", claim.metadata.namespace, user.name, user.uid)
