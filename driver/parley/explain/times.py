"""How long ago something was, as text. Pure."""

from datetime import UTC, datetime

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def moment(text: str) -> datetime | None:
    """A time of the API, None if there is none."""
    if not text:
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def ago(text: str, now: str) -> str:
    """ "3 min", counted from a time of the API to another; "" if one of them is missing."""
    start, end = moment(text), moment(now)
    if start is None or end is None:
        return ""
    return span((end - start).total_seconds())


def span(seconds: float) -> str:
    """A duration as its largest unit that is at least two, or in seconds."""
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {name}"
    return f"{max(0, int(seconds))} s"
