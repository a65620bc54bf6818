"""A work queue: keys to reconcile, each once, by one worker at a time, requeued with a backoff after a failure.

The queue holds keys, never events: a worker that takes a key reads the present state and does what is missing.
A key added while a worker has it is handed out again once that worker is done (client-go's dirty and
processing sets), so no change is missed and no two workers meet on one key. Delays go by the event loop's
clock. What to do for a key, and what counts as a failure, is the handler's; nothing is kept over a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

import structlog

from parley.kube.backoff import Backoff
from parley.kube.client import ApiError, OutcomeUnknown
from parley.kube.lease import LeaseLost

K = TypeVar("K", bound=Hashable)

RETRIES = Backoff(first=0.01, longest=60)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """What a queue holds: keys `ready` to be taken, `processing` now, `delayed` until later, and `failing`
    (retried since they last succeeded)."""

    ready: int
    processing: int
    delayed: int
    failing: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """What a handler returns to have its key again: after so many seconds, or, without them, with back-off."""

    after: float | None = None


SHORTEST_DELAY = 0.001
"""Seconds."""


OLDEST_EVERY = 4
"""Of so many keys that are taken one is the oldest, whatever its rank: none waits for ever behind others."""


class _Ready(asyncio.Queue[K]):
    """The keys to be taken, each once: the smallest rank first, then one of each flow in turn, then the oldest.

    That is start-time fair queueing: within a rank a key's turn follows the one of its flow's last key, or the
    present one.
    """

    def __init__(self, rank: Callable[[K], int], flow: Callable[[K], Hashable]) -> None:
        super().__init__()
        self._rank = rank
        self._flow = flow

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - asyncio.Queue's
        self._numbers = count()
        self._taken = 0
        self._by_age: dict[K, int] = {}
        self._by_rank: list[tuple[int, int, int, K]] = []
        """A heap. What was taken by its age is still in it."""
        self._turns: dict[int, int] = {}
        """The present turn of each rank."""
        self._last_turns: dict[tuple[int, Hashable], int] = {}
        """The turn of the last key of each flow, by rank."""

    def qsize(self) -> int:
        return len(self._by_age)

    def empty(self) -> bool:
        return not self._by_age

    def _put(self, item: K) -> None:
        number = self._by_age[item] = next(self._numbers)
        rank, flow = self._rank(item), self._flow(item)
        turn = max(self._turns.get(rank, 0), self._last_turns.get((rank, flow), 0)) + 1
        self._last_turns[rank, flow] = turn
        heappush(self._by_rank, (rank, turn, number, item))
        if len(self._by_rank) > 2 * len(self._by_age) + 16:
            self._by_rank = [entry for entry in self._by_rank if self._by_age.get(entry[3]) == entry[2]]
            heapify(self._by_rank)
        if len(self._last_turns) > 2 * len(self._by_age) + 16:
            self._forget_turns()

    def _forget_turns(self) -> None:
        """Of flows without keys that are to be taken, and of ranks without flows."""
        last = self._last_turns.items()
        self._last_turns = {place: turn for place, turn in last if turn > self._turns.get(place[0], 0)}
        ranks = {rank for rank, _ in self._last_turns}
        self._turns = {rank: turn for rank, turn in self._turns.items() if rank in ranks}

    def _get(self) -> K:
        self._taken += 1
        key = next(iter(self._by_age)) if self._taken % OLDEST_EVERY == 0 else self._first()
        del self._by_age[key]
        return key

    def _first(self) -> K:
        while True:
            rank, turn, number, key = heappop(self._by_rank)
            if self._by_age.get(key) == number:
                self._turns[rank] = turn
                return key


class WorkQueue(Generic[K]):
    """Keys waiting for a worker, without duplicates: those of the smallest `rank` first, and of the same rank one
    of each `flow` in turn, in the order in which they were first added; but one in `OLDEST_EVERY` by its age
    alone. So nobody's thousand keys keep another one's first key waiting.

    `rank` and `flow` are looked up when a key is added. `retries` is the delay of a key after failures in a row.
    `fields` gives what a key stands for in a log entry: {"pod": "team/a"}.
    """

    def __init__(
        self,
        retries: Backoff = RETRIES,
        *,
        fields: Callable[[K], Mapping[str, object]] = lambda key: {"key": key},
        rank: Callable[[K], int] = lambda _: 0,
        flow: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        self.fields = fields
        self._retries = retries
        self._ready: _Ready[K] = _Ready(rank, flow)
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self.retried = 0
        """How often any key was to be tried once more, since the start."""

    def add(self, key: K) -> None:
        """Have the key worked on now, or once more when its worker is done."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._ready.put_nowait(key)

    def add_after(self, key: K, delay: float) -> None:
        """Requeue the key after `delay` seconds. Of several delays of one key the one that ends first counts.

        A delay is never shorter than a clock's resolution: what is left of a time is computed in floating point,
        and a waiter that slept for less than the clock's resolution would find the same left again.
        """
        if delay <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        delay = max(delay, SHORTEST_DELAY)
        pending = self._delayed.get(key)
        if pending is not None:
            if pending.when() <= loop.time() + delay:
                return
            pending.cancel()
        self._delayed[key] = loop.call_later(delay, self._due, key)

    def retry(self, key: K) -> None:
        """Requeue the key after a backoff that doubles with each retry until `forget`."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        self.retried += 1
        self.add_after(key, self._retries.delay(failures))

    def forget(self, key: K) -> None:
        """The key succeeded, or is gone: its next retry starts with the shortest delay."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Retries of the key since it was last forgotten."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key, as soon as there is one. It is the caller's alone until `done`."""
        key = await self._ready.get()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on the key ended, well or not. It is ready again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def statistics(self) -> QueueStatistics:
        """What is in the queue now."""
        return QueueStatistics(self._ready.qsize(), len(self._processing), len(self._delayed), len(self._failures))

    def _due(self, key: K) -> None:
        self._delayed.pop(key, None)
        self.add(key)


async def run_workers(queue: WorkQueue[K], handler: Callable[[K], Awaitable[Requeue | None]], count: int) -> None:
    """Let `count` workers call the handler for each key, until cancelled.

    A handler that raises is logged and its key retried. Otherwise it returns when it wants the key again
    (`Requeue`), or None if only a change is to bring it; unless it asked for back-off, by that or by `retry`, the
    key's failures are forgotten. A lost lease is logged by the elector, once for all keys. What is no Exception
    (a cancellation, an interrupt) ends all workers.
    """
    async with asyncio.TaskGroup() as workers:
        for _ in range(count):
            workers.create_task(_work(queue, handler))


async def _work(queue: WorkQueue[K], handler: Callable[[K], Awaitable[Requeue | None]]) -> None:
    while True:
        key = await queue.get()
        before = queue.failures(key)
        try:
            requeue = await handler(key)
        except LeaseLost:
            queue.retry(key)  # the elector has logged it, and is about to end the work
        except Exception as error:
            queue.retry(key)
            # A server's refusal is everyday life and needs no trace; anything else is our own mistake.
            ours = not isinstance(error, ApiError | OutcomeUnknown)
            named = {**queue.fields(key), "failures": queue.failures(key)}
            log.warning("work failed", **named, error=str(error), exc_info=ours)
        else:
            if requeue is not None and requeue.after is None:
                queue.retry(key)
            elif queue.failures(key) == before:
                queue.forget(key)
            if requeue is not None and requeue.after is not None:
                queue.add_after(key, requeue.after)
        finally:
            queue.done(key)
        # A handler that was answered from memory never waits; without this it would keep others from running.
        await asyncio.sleep(0)
