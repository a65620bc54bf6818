"""The controller's state, on which every decision is based. Nothing is decided here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from parley.control.caches.cluster import ClusterCache
from parley.control.ledger import Ledger
from parley.control.moved import MovedClaims
from parley.control.nominations import Nominations
from parley.sdk.embedded import EmbeddedDriver


@dataclass(frozen=True, slots=True)
class State:
    """The informers' caches, the ledger of allocated claims, the embedded drivers by name, the nominations of pods
    that others were evicted for, and claims that their drivers do not know since they became standalone.

    The values live as long as the process; their contents change.
    """

    cluster: ClusterCache
    ledger: Ledger
    drivers: Mapping[str, EmbeddedDriver]
    nominations: Nominations = field(default_factory=Nominations)
    moved: MovedClaims = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moved", MovedClaims(self.cluster, self.ledger, self.drivers))
