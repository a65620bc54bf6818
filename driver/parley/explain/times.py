"""How long ago something was, as text. Pure."""

import re
from datetime import datetime

from parley.kube import clock

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))
_PASSING = re.compile(r"(?<=\bfor )\d+ (?:d|h|min|s)\b|\b\d+ (?:d|h|min|s)(?= ago\b)")


def moment(text: str) -> datetime | None:
    """A time of the API; None if there is none, or one that Python does not know: whoever makes events, or writes
    conditions of a claim, may put the year 0 there."""
    return clock.moment(text)


def seconds_since(text: str, now: datetime) -> float | None:
    """How long before `now` a time of the API was; None if there is none."""
    start = moment(text)
    return (now - start).total_seconds() if start is not None else None


def ago(text: str, now: str) -> str:
    """ "3 min", counted from a time of the API to another; "" if one of them is missing."""
    end = moment(now)
    seconds = seconds_since(text, end) if end is not None else None
    return span(seconds) if seconds is not None else ""


def without_ages(text: str) -> str:
    """The text without what changes by itself: for how long something has been so, or how long ago it was."""
    return _PASSING.sub("", text)


def span(seconds: float) -> str:
    """A duration as its largest unit that is at least two, or in seconds."""
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {name}"
    return f"{max(0, int(seconds))} s"
