"""Virtual time: waiting costs nothing, and the order of events is that of a real clock."""

import asyncio
import time

import pytest

from parley.simulate import virtual_time


def test_an_hour_passes_at_once() -> None:
    async def wait() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()

    assert virtual_time.run(wait()) == 3600
    assert time.monotonic() - began < 60


def test_what_is_due_first_happens_first() -> None:
    async def note(seconds: float, seen: list[tuple[float, float]]) -> None:
        await asyncio.sleep(seconds)
        seen.append((seconds, asyncio.get_running_loop().time()))

    async def both() -> list[tuple[float, float]]:
        seen: list[tuple[float, float]] = []
        await asyncio.gather(note(20, seen), note(0.5, seen), note(7, seen))
        return seen

    assert virtual_time.run(both()) == [(0.5, 0.5), (7, 7), (20, 20)]


def test_the_clock_stands_still_while_there_is_work() -> None:
    async def work() -> float:
        timer = asyncio.create_task(asyncio.sleep(1))
        for _ in range(100):
            await asyncio.sleep(0)
        now = asyncio.get_running_loop().time()
        timer.cancel()
        return now

    assert virtual_time.run(work()) == 0


def test_a_timeout_is_a_timeout() -> None:
    async def too_slow() -> None:
        async with asyncio.timeout(5):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        virtual_time.run(too_slow())
