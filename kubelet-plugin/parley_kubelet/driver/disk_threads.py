"""Threads for calls to a disk that may not answer: a dead disk or file server may block a call for ever.

Limits how many calls run at a time. A cancelled call keeps its slot and turn until it has ended: it may still
change something. Callers decide on timeouts. Neither the event loop nor the threads that write the checkpoint ever
wait for these calls.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class DiskThreads:
    """At most `most` calls at a time, each in a thread of its own."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots = asyncio.Semaphore(most)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._clock = clock
        self._began: dict[Future[Any], float] = {}

    async def run(self, work: Callable[[], T], turn: str) -> T:
        """Returns or raises what `work` does. Calls of the same `turn` run one at a time. If cancelled, this
        returns when the call ends, or when it is cancelled again: then the process ends."""
        async with self._turns.setdefault(turn, asyncio.Lock()), self._slots:
            call = asyncio.wrap_future(self.start(work))
            try:
                return await asyncio.shield(call)
            except asyncio.CancelledError:
                await asyncio.wait({call})
                raise

    def start(self, work: Callable[[], T]) -> "Future[T]":
        """Start a call at once, outside the limit of `run`: the caller has to wait for its end before it starts
        another one. Raises RuntimeError if there are too many threads."""
        call: Future[T] = Future()
        call.set_running_or_notify_cancel()

        def run() -> None:
            try:
                call.set_result(work())
            except BaseException as error:
                call.set_exception(error)

        threading.Thread(target=run, name="disk-call", daemon=True).start()
        self._began[call] = self._clock()
        call.add_done_callback(self._began.pop)
        return call

    def oldest(self) -> float:
        """For how many seconds the oldest call has been under way; 0 if there is none."""
        return max((self._clock() - began for began in list(self._began.values())), default=0.0)
