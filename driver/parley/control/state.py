"""What every decision is made from. Nothing is decided here."""

from collections.abc import Mapping
from dataclasses import dataclass

from parley.control.caches.cluster import Cluster
from parley.control.ledger import Ledger
from parley.sdk.embedded import EmbeddedDriver


@dataclass(frozen=True, slots=True)
class State:
    """The informers' caches, the ledger of what is allocated, and the drivers in this process by name.

    The three values live as long as the process; what they hold changes.
    """

    cluster: Cluster
    ledger: Ledger
    drivers: Mapping[str, EmbeddedDriver]
