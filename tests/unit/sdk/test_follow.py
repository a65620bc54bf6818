"""A driver that follows its provider, and fails: it is called again, and none of its earlier answers counts."""

from collections.abc import Callable

from parley.sdk import Driver, NoParameters
from parley.sdk.embedded import EmbeddedDriver
from parley.simulate.virtual_time import run


class Failing(Driver[NoParameters, NoParameters]):
    """Takes a change over, and fails before it says so."""

    name = "failing.example.com"
    parameters = class_parameters = NoParameters
    free = 0

    async def follow(self, changed: Callable[[], None]) -> None:
        if not self.free:
            self.free = 1
            raise ConnectionError("the provider is gone")


def test_what_a_failed_call_changed_makes_earlier_answers_old() -> None:
    driver, heard = EmbeddedDriver(Failing()), list[int]()
    before = driver.revision
    run(driver.follow(lambda: heard.append(driver.revision)))
    assert heard == [before + 1]
