"""The drivers of a soak's controllers."""

import asyncio
import random
from types import SimpleNamespace

from tests.soak.drivers.misbehaving import MisbehavingDriver
from tests.soak.drivers.variants import driver_kind
from tests.soak.plan import Plan

from parley.simulate.virtual_time import run


class Always(random.Random):
    """Whatever may happen by chance happens."""

    def random(self) -> float:
        return 0.0


def test_a_driver_that_hangs_tells_first_for_whom_it_was_asked_to_allocate() -> None:
    async def story() -> None:
        driver = driver_kind(Plan(misbehaving_driver=True, full_nodes=True))(Always())
        assert isinstance(driver, MisbehavingDriver)
        driver.is_misbehaving = True
        chosen: list[str] = []
        driver.allocating = chosen.append
        asked = asyncio.create_task(driver.allocate(SimpleNamespace(pod=SimpleNamespace(uid="p")), "a"))
        await asyncio.sleep(0)

        assert chosen == ["p"]

        asked.cancel()

    run(story())
