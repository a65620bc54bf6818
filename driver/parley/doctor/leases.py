"""Who holds a Lease, and whether it is heard of. Pure."""

from datetime import datetime

from parley.api.builtin import Lease
from parley.explain.times import seconds_since

_LATE = 2
"""A Lease is old when its duration has passed so many times: clocks of two machines differ."""


def age(lease: Lease, now: datetime) -> float | None:
    """Seconds since it was renewed; None if it never was."""
    return seconds_since(lease.spec.renew_time or "", now)


def fresh(lease: Lease, now: datetime) -> bool:
    """Whether somebody holds it now."""
    seconds = age(lease, now)
    held = bool(lease.spec.holder_identity) and seconds is not None
    return held and (seconds or 0.0) <= _LATE * max(1, lease.spec.lease_duration_seconds)
