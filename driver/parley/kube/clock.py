"""Time as a parameter: wall time for what is written into objects. Intervals use the event loop's clock."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """As metav1.Time: seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime | None:
    """The time that an object's field has; None if it is none for Python, though the API server took it."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def rfc3339_micro(moment: datetime) -> str:
    """As metav1.MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
