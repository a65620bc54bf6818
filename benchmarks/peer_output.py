"""What scheduler_perf tells about a run: moments in its log, and its own figures in perf-dash's format. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import msgspec

_HEADER = r"I(\d{4} \d\d:\d\d:\d\d\.\d{6})\b[^\n]*?"
"""How klog begins a line: severity, month and day, time of day."""


class DataItem(msgspec.Struct, frozen=True):
    """One figure, by what it is of (`labels`), and as what (`data`: Average, Perc99, ...)."""

    labels: dict[str, str] = {}
    data: dict[str, float] | None = None
    unit: str = ""


class DataItems(msgspec.Struct, frozen=True, rename={"items": "dataItems"}):
    """A file of them."""

    items: list[DataItem]


@dataclass(frozen=True, slots=True)
class Span:
    """From one moment to another, in seconds since the epoch."""

    started: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.started


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds that were used until a moment: by what is measured, and by the whole machine."""

    moment: float
    used: float
    busy: float


def throughput(figures: bytes) -> float | None:
    """scheduler_perf's own pods per second: the mean of one-second samples but the first; None if it took none.

    Raises msgspec.ValidationError where that is no file of DataItems.
    """
    items = msgspec.json.decode(figures, type=DataItems).items
    found = (item.data for item in items if item.labels.get("Metric") == "SchedulingThroughput" and item.data)
    return next((round(data["Average"], 1) for data in found), None)


def announcement(namespace: str, pods: int) -> str:
    """What the log says just before so many pods are created in the namespace; the line has no time of day."""
    return f'creating {pods} pods in namespace "{namespace}"'


def last_binding(log: str, namespace: str, pods: int, year: int) -> float:
    """When the last of so many pods of the namespace was bound, in seconds since the epoch.

    Raises ValueError where the log tells of another number of bindings.
    """
    bound = re.findall(rf'{_HEADER}"Successfully bound pod to node" pod="{namespace}/', log)
    if len(bound) != pods:
        raise ValueError(f"the log tells of {len(bound)} bindings in namespace {namespace!r} instead of {pods}")
    return max(_moment(text, year) for text in bound)


def between(readings: Sequence[Reading], span: Span) -> Reading:
    """What was used in that time, `moment` being its length; readings before and after it are needed.

    Raises ValueError where there are none.
    """
    first, last = _at(readings, span.started), _at(readings, span.ended)
    return Reading(span.seconds, last.used - first.used, last.busy - first.busy)


def _at(readings: Sequence[Reading], moment: float) -> Reading:
    """Between two readings, as if everything had been used evenly."""
    for before, after in pairwise(readings):
        if before.moment <= moment <= after.moment:
            share = (moment - before.moment) / (after.moment - before.moment)
            return Reading(
                moment,
                before.used + share * (after.used - before.used),
                before.busy + share * (after.busy - before.busy),
            )
    raise ValueError(f"no readings around {datetime.fromtimestamp(moment, UTC).isoformat()}: was the clock set?")


def _moment(text: str, year: int) -> float:
    return datetime.strptime(f"{year}{text}", "%Y%m%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
