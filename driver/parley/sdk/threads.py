"""What drivers call from threads of their own, where they use libraries that block: it runs in the event loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def from_any_thread(call: Callable[P, None]) -> Callable[P, None]:
    """The call, at once in the thread of the running event loop; from another one as soon as the loop is free."""
    loop, own = asyncio.get_running_loop(), threading.get_ident()

    def called(*args: P.args, **kwargs: P.kwargs) -> None:
        if threading.get_ident() == own:
            call(*args, **kwargs)
        else:
            loop.call_soon_threadsafe(lambda: call(*args, **kwargs))

    return called
