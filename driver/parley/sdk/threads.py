"""Calls from a driver's own threads, such as those of blocking libraries, run in the event loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def from_any_thread(call: Callable[P, None]) -> Callable[P, None]:
    """The call, for use in any thread: at once in the event loop's own, else as soon as the loop is free."""
    loop, own = asyncio.get_running_loop(), threading.get_ident()

    def call_in_loop(*args: P.args, **kwargs: P.kwargs) -> None:
        if threading.get_ident() == own:
            call(*args, **kwargs)
        else:
            loop.call_soon_threadsafe(lambda: call(*args, **kwargs))

    return call_in_loop
