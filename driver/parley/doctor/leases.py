"""The holder of a Lease, and whether it is renewed. No I/O.

The time in a Lease is that of its holder's clock, and of another machine it may differ by any amount. So where it
makes somebody look dead, or is still to come, it is looked whether the Lease is renewed (`facts.gather`).
"""

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from parley.api.builtin import Lease
from parley.explain.times import seconds_since, span
from parley.kube.clock import rfc3339_micro

_LATE = 2
"""A Lease is old when its duration has passed so many times: clocks of two machines differ."""


def age(lease: Lease, now: datetime) -> float | None:
    """Seconds since the Lease was renewed; None if it never was."""
    return seconds_since(lease.spec.renew_time or "", now)


def renewed(lease: Lease, now: datetime) -> str:
    """When the Lease was renewed, as a clause."""
    seconds = age(lease, now)
    if seconds is None:
        return "never"
    return f"{span(seconds)} ago" if seconds > -1 else f"{span(-seconds)} ahead of this machine's clock"


def fresh(lease: Lease, now: datetime) -> bool:
    """Whether the Lease is held now."""
    seconds = age(lease, now)
    held = bool(lease.spec.holder_identity) and seconds is not None
    return held and abs(seconds or 0.0) <= _LATE * max(1, lease.spec.lease_duration_seconds)


def doubtful(lease: Lease, now: datetime) -> bool:
    """Whether the Lease is held, but only clocks, which may differ, tell whether its holder still exists."""
    return bool(lease.spec.holder_identity and lease.spec.renew_time) and not fresh(lease, now)


def as_seen(lease: Lease, before: Mapping[str, Lease], now: datetime) -> Lease:
    """The Lease, with the current time as its renew time if it was renewed since `before`, which has Leases by
    name."""
    earlier = before.get(lease.metadata.name)
    if earlier is None or earlier.spec == lease.spec or not lease.spec.holder_identity:
        return lease
    return replace(lease, spec=replace(lease.spec, renew_time=rfc3339_micro(now)))
