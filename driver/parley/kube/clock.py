"""Wall time as a parameter, for times that are written into objects. Intervals use the event loop's clock."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """The time in the format of metav1.Time, in seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime | None:
    """Parses a time in an object's field; None if Python can't parse it, though the API server accepted it."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def rfc3339_micro(moment: datetime) -> str:
    """The time in the format of metav1.MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
