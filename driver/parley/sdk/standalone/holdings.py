"""What the driver holds, or may hold, by claim. In memory; rebuilt from the claims at start.

A claim enters before the driver is asked to allocate, and leaves when the driver has deallocated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import structlog

from parley.kube.cache import Key
from parley.sdk.embedded import EmbeddedDriver

log = structlog.get_logger(__name__)


class AllocationStage(Enum):
    """How far an allocation is."""

    CARRIED = "carried"
    """Begun before this process started: it may hold something, and the driver can go on from there."""

    OPEN = "open"
    """Begun in this process, not recorded."""

    RECORDED = "recorded"
    """The claim's status shows it."""


@dataclass(frozen=True, slots=True)
class StandaloneHolding:
    """What one claim holds. `node` is where it was allocated, None if that is not known."""

    key: Key
    node: str | None
    stage: AllocationStage


class Holdings:
    """All of one driver's. `freed` is called when something came free."""

    def __init__(self, driver: EmbeddedDriver, freed: Callable[[], None]) -> None:
        self._driver = driver
        self._freed = freed
        self._by_uid: dict[str, StandaloneHolding] = {}
        self._by_key: dict[Key, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> StandaloneHolding | None:
        """What the claim of that UID holds."""
        return self._by_uid.get(uid)

    def put(self, uid: str, holding: StandaloneHolding) -> None:
        """From now on it holds this."""
        self._by_uid[uid] = holding
        self._by_key.setdefault(holding.key, {})[uid] = None

    def orphans(self, key: Key, uid: str | None) -> list[str]:
        """UIDs under that namespace and name other than the one of the claim that is there now."""
        return [held for held in self._by_key.get(key, ()) if held != uid]

    async def release(self, uid: str) -> None:
        """The driver releases what the claim may hold; if it raises, the claim may hold it still."""
        holding = self._by_uid.get(uid)
        if holding is None:
            return
        await self._driver.deallocate(uid)
        self._drop(uid, holding)
        log.info("released", driver=self._driver.name, claim="/".join(holding.key), node=holding.node)
        self._freed()

    def _drop(self, uid: str, holding: StandaloneHolding) -> None:
        del self._by_uid[uid]
        uids = self._by_key[holding.key]
        del uids[uid]
        if not uids:
            del self._by_key[holding.key]
