"""What a driver holds by claim: until it has deallocated, and by names whose claim was recreated."""

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.sdk.standalone.world import ShelfDriver

from parley.sdk.checks import DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.standalone.holdings import AllocationStage, Holdings, StandaloneHolding
from parley.simulate.virtual_time import run

KEY = ("team", "disk")
HOLDING = StandaloneHolding(KEY, "a", AllocationStage.RECORDED)


class Stuck(ShelfDriver):
    """Can't deallocate as long as `fault` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None
        self.deallocated: list[str] = []

    async def deallocate(self, uid: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.deallocated.append(uid)


def with_holdings(scenario: Callable[[Stuck, Holdings, list[str]], Awaitable[None]]) -> None:
    """Plays it with a driver; the list has an entry for each time that something came free."""

    async def main() -> None:
        driver, freed = Stuck(), list[str]()
        await scenario(driver, Holdings(EmbeddedDriver(driver), lambda: freed.append("freed")), freed)

    run(main())


def test_what_is_released_is_deallocated_and_gone() -> None:
    async def scenario(driver: Stuck, holdings: Holdings, freed: list[str]) -> None:
        holdings.put("uid-1", HOLDING)
        assert holdings.get("uid-1") == HOLDING
        await holdings.release("uid-1")
        assert (driver.deallocated, freed, len(holdings)) == (["uid-1"], ["freed"], 0)
        assert holdings.get("uid-1") is None

    with_holdings(scenario)


def test_what_could_not_be_deallocated_is_held_still() -> None:
    async def scenario(driver: Stuck, holdings: Holdings, freed: list[str]) -> None:
        holdings.put("uid-1", HOLDING)
        driver.fault = RuntimeError("array is away")
        with pytest.raises(DriverFault, match="failed in deallocate: RuntimeError: array is away"):
            await holdings.release("uid-1")
        assert (holdings.get("uid-1"), freed) == (HOLDING, [])

    with_holdings(scenario)


def test_releasing_nothing_asks_nobody() -> None:
    async def scenario(driver: Stuck, holdings: Holdings, freed: list[str]) -> None:
        await holdings.release("uid-1")
        assert (driver.deallocated, freed) == ([], [])

    with_holdings(scenario)


def test_what_an_earlier_claim_of_the_name_held_is_orphaned() -> None:
    async def scenario(driver: Stuck, holdings: Holdings, freed: list[str]) -> None:
        holdings.put("uid-1", HOLDING)
        holdings.put("uid-2", HOLDING)
        assert holdings.orphans(KEY, "uid-2") == ["uid-1"]
        assert holdings.orphans(KEY, None) == ["uid-1", "uid-2"]
        assert holdings.orphans(("team", "other"), None) == []
        await holdings.release("uid-1")
        assert holdings.orphans(KEY, "uid-2") == []

    with_holdings(scenario)
