"""Failures of a driver's methods become faults of the driver, and a method that has to go on is called again."""

import asyncio
from collections.abc import Callable

import pytest

from parley.sdk.checks import DriverFault
from parley.sdk.guard import Guard
from parley.simulate.virtual_time import run


class Failures:
    """A guard, and the failures that it reported, with the times at which they were."""

    def __init__(self) -> None:
        self.guard = Guard("disks.example.com", self._failed)
        self.reported: list[tuple[str, str]] = []
        self.times: list[float] = []

    def _failed(self, call: str, error: BaseException) -> None:
        self.reported.append((call, str(error)))
        self.times.append(asyncio.get_running_loop().time())


def failing(times: int, error: BaseException) -> Callable[[], object]:
    """A method that fails as many times, and then ends."""
    left = [error] * times

    async def method() -> None:
        if left:
            raise left.pop()

    return method


def test_an_exception_becomes_a_fault_that_names_driver_and_method() -> None:
    failures = Failures()

    async def story() -> None:
        with pytest.raises(DriverFault) as raised, failures.guard.contained("score"):
            raise KeyError("node")
        assert str(raised.value) == "driver disks.example.com failed in score: KeyError: 'node'"

    run(story())
    assert failures.reported == [("score", "'node'")]


@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError()])
def test_a_method_that_fails_is_called_again_after_growing_pauses(error: BaseException) -> None:
    failures = Failures()
    told: list[float] = []

    async def story() -> None:
        def changed() -> None:
            told.append(asyncio.get_running_loop().time())

        await failures.guard.repeated("follow", failing(3, error), changed)

    run(story())
    assert [call for call, _ in failures.reported] == ["follow"] * 3
    pauses = [after - before for before, after in zip(failures.times, told, strict=True)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1]


def test_a_method_that_is_not_async_is_a_failure_like_any_other() -> None:
    failures = Failures()
    results: list[object] = [None]

    async def done() -> None:
        pass

    def method() -> object:
        return results.pop() if results else done()

    async def story() -> None:
        await failures.guard.repeated("follow", method, lambda: None)

    run(story())
    (_, message) = failures.reported[0]
    assert message == (
        "driver disks.example.com returned None from follow, which cannot be awaited: follow must be async def"
    )


def test_who_repeats_a_method_can_stop() -> None:
    async def story() -> None:
        work = asyncio.create_task(Failures().guard.repeated("follow", asyncio.Event().wait, lambda: None))
        await asyncio.sleep(5)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    run(story())
