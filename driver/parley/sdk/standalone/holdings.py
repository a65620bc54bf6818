"""The claims for which the driver holds, or may hold, resources. In memory; rebuilt from the claims at start.

A claim is added before the driver is called to allocate, and removed when the driver has deallocated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import structlog

from parley.kube.cache import Key
from parley.sdk.embedded import EmbeddedDriver

log = structlog.get_logger(__name__)


class AllocationStage(Enum):
    """The stage of an allocation."""

    CARRIED = "carried"
    """Begun by an earlier process: the claim may hold something, and the driver can continue."""

    OPEN = "open"
    """Begun in this process, and not recorded yet."""

    RECORDED = "recorded"
    """Recorded in the claim's status."""


@dataclass(frozen=True, slots=True)
class StandaloneHolding:
    """One claim's allocation. `node` is where it was allocated, None if that is not known."""

    key: Key
    node: str | None
    stage: AllocationStage


class Holdings:
    """All holdings of one driver, by claim UID. `freed` is called after each release."""

    def __init__(self, driver: EmbeddedDriver, freed: Callable[[], None]) -> None:
        self._driver = driver
        self._freed = freed
        self._by_uid: dict[str, StandaloneHolding] = {}
        self._by_key: dict[Key, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> StandaloneHolding | None:
        """The holding of the claim with that UID, None if there is none."""
        return self._by_uid.get(uid)

    def put(self, uid: str, holding: StandaloneHolding) -> None:
        """Adds or replaces the claim's holding."""
        self._by_uid[uid] = holding
        self._by_key.setdefault(holding.key, {})[uid] = None

    def orphans(self, key: Key, uid: str | None) -> list[str]:
        """UIDs of earlier claims with that namespace and name: all but the UID of the present one."""
        return [held for held in self._by_key.get(key, ()) if held != uid]

    async def release(self, uid: str) -> None:
        """Has the driver deallocate the claim; if that raises, the holding stays."""
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
