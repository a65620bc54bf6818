"""Events on pods, templates and undecodable objects: one for each phase of an object, not one for each attempt.

A phase is a reason code. An event is written when it begins; while it lasts, or when it comes back, another one
with a new message (messages name nodes and counts, which change as other pods come and go) follows after `PAUSE`
at the earliest. The present message is in the PodScheduling. Each event also makes one line in the log.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog

from parley.api import reasons
from parley.api.events import About, Source, warning
from parley.api.names import GROUP
from parley.api.resources import EVENTS
from parley.control.telemetry.metrics import Metrics
from parley.kube.client import ApiError, Client, OutcomeUnknown
from parley.kube.clock import Clock, rfc3339_micro

PAUSE = 300.0
"""Seconds between two events on an object with the same reason."""

_MISTAKES = frozenset(
    {
        reasons.CLASS_NOT_FOUND,
        reasons.PARAMETERS_INVALID,
        reasons.PARAMETERS_NOT_FOUND,
        reasons.PARAMETERS_FORBIDDEN,
        reasons.CLAIM_NOT_FOUND,
        reasons.CLAIM_NOT_MADE,
        reasons.NAME_TAKEN,
    }
)
"""Codes whose message changes only when somebody has changed the object, and wants to see the result at once."""

_REMEMBERED = 100_000
"""The most objects whose events are remembered, in half a kilobyte each: others' are written again whenever
they are reported on. Pods are forgotten when they are gone."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Written:
    """The events of one object: its present phase, and when each was written, with a hash of its note."""

    phase: str = ""
    phases: dict[str, tuple[float, int]] = field(default_factory=dict)

    def is_due(self, now: float, code: str, digest: int) -> bool:
        """Whether another event is to be written."""
        if code not in self.phases:
            return True
        at, written_digest = self.phases[code]
        if now - at >= PAUSE:
            return digest != written_digest or code != self.phase
        return digest != written_digest and code in _MISTAKES


class Recorder:
    """Writes events; an event that cannot be written is logged and forgotten, nothing depends on it."""

    def __init__(self, client: Client, clock: Clock, instance: str, metrics: Metrics | None = None) -> None:
        self._client = client
        self._clock = clock
        self._source = Source(f"{GROUP}/controller", instance, "Negotiating")
        self._metrics = metrics or Metrics()
        self._written: OrderedDict[str, _Written] = OrderedDict()

    async def warn(
        self, kind: str, api_version: str, namespace: str, name: str, uid: str, code: str, note: str
    ) -> None:
        """Write an event about an object that needs attention, unless a similar one is recent."""
        series = self._written.setdefault(uid, _Written())
        self._written.move_to_end(uid)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)
        now, digest = asyncio.get_running_loop().time(), hash(note)
        due = series.is_due(now, code, digest)
        series.phase = code
        if not due:
            self._metrics.events_grouped.labels(code).inc()
            return
        series.phases[code] = (now, digest)
        about = About(kind, api_version, namespace, name, uid)
        log.info("needs attention", **about.fields(), reason=code, message=note)
        await self._write(about, code, note)

    async def _write(self, about: About, code: str, note: str) -> None:
        body = warning(about, self._source, code, note, rfc3339_micro(self._clock()))
        try:
            await self._client.create(EVENTS, body, about.place)
        except (ApiError, OutcomeUnknown) as error:
            log.warning("event not written", **about.fields(), reason=code, error=str(error))
        else:
            self._metrics.events.labels(code).inc()

    def forget(self, uid: str) -> None:
        """Forget the object: it is gone, or its phase is over."""
        self._written.pop(uid, None)
