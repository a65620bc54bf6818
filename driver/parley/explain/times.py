"""Ages and durations as text. No I/O."""

import re
from datetime import datetime

from parley.kube import clock

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_PASSING = re.compile(r"(?<=\bfor )\d+ (?:d|h|min|s)\b|\b\d+ (?:d|h|min|s)(?= ago\b)")


def moment(text: str) -> datetime | None:
    """An API timestamp as a datetime; None if there is none, or Python can't represent it: clients that write
    events or a claim's conditions may put the year 0 there."""
    return clock.moment(text)


def seconds_since(text: str, now: datetime) -> float | None:
    """How many seconds before `now` an API timestamp was; None if there is none."""
    start = moment(text)
    return (now - start).total_seconds() if start is not None else None


def ago(text: str, now: str) -> str:
    """ "3 min", counted from one API timestamp to another; "" if one of them is missing."""
    end = moment(now)
    seconds = seconds_since(text, end) if end is not None else None
    return span(seconds) if seconds is not None else ""


def without_ages(text: str) -> str:
    """The text without ages ("for 3 min", "2 h ago"), which change with every second."""
    return _PASSING.sub("", text)


def span(seconds: float) -> str:
    """A duration in its largest unit of which there are at least two, otherwise in seconds."""
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {name}"
    return f"{max(0, int(seconds))} s"
