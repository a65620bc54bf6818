"""Tasks that run beside a test, and end with it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@asynccontextmanager
async def beside_the_test() -> AsyncIterator[Start]:
    """Starts tasks; those that still run at the end of the block are cancelled."""
    running: list[asyncio.Task[None]] = []

    def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        running.append(asyncio.create_task(work))
        return running[-1]

    yield start
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
