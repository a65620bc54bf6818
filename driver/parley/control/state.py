"""The controller's state, from which every decision is made. Nothing is decided here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from parley.control.caches.cluster import ClusterCache
from parley.control.ledger import Ledger
from parley.control.moved import MovedClaims
from parley.control.nominations import Nominations
from parley.sdk.embedded import EmbeddedDriver


@dataclass(frozen=True, slots=True)
class State:
    """The informers' caches, the ledger of what is allocated, the drivers in this process by name, what is kept
    for pods that others were evicted for, and claims of which their drivers, elsewhere, do not know.

    The values live as long as the process; what they hold changes.
    """

    cluster: ClusterCache
    ledger: Ledger
    drivers: Mapping[str, EmbeddedDriver]
    nominations: Nominations = field(default_factory=Nominations)
    moved: MovedClaims = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moved", MovedClaims(self.cluster, self.ledger, self.drivers))
