"""What drivers call from threads of their own."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from parley.sdk import Driver, NoParameters
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.threads import from_any_thread


class Polling(Driver[NoParameters, NoParameters]):
    """Asks a provider by a library that blocks."""

    name = "polling.example.com"
    parameters = class_parameters = NoParameters

    async def follow(self, changed: Callable[[], None]) -> None:
        await asyncio.to_thread(changed)


async def test_changes_that_a_thread_tells_of_are_heard_in_the_event_loop() -> None:
    heard: list[int] = []
    await EmbeddedDriver(Polling()).follow(lambda: heard.append(threading.get_ident()))
    await asyncio.sleep(0)
    assert heard == [threading.get_ident()]


async def test_a_loop_that_waits_is_woken_by_a_threads_call() -> None:
    event: Any = asyncio.Event()
    tell = from_any_thread(event.set)
    threading.Timer(0.05, tell).start()
    async with asyncio.timeout(60):
        await event.wait()


async def test_a_call_in_the_loop_is_not_delayed() -> None:
    heard: list[str] = []
    from_any_thread(heard.append)("now")
    assert heard == ["now"]
