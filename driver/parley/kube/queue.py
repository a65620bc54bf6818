"""A work queue: keys to reconcile, each by one worker at a time, requeued with back-off after a failure.

The queue holds keys, never events: a worker that takes a key reads the present state and does what is missing.
A key added while a worker has it is handed out again once that worker is done (client-go's dirty and
processing sets), so no change is missed and no two workers process the same key. Delays use the event loop's
clock. The handler decides what to do for a key, and what counts as a failure; nothing survives a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

import structlog

from parley.kube.backoff import LONGEST_ASKED, Backoff
from parley.kube.client import ApiError, OutcomeUnknown
from parley.kube.lease import LeaseLost

K = TypeVar("K", bound=Hashable)

RETRIES = Backoff(first=0.01, longest=60)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Numbers of keys in a queue: `ready` to be taken, `processing` now, `delayed` until later, and `failing`
    (retried since they last succeeded)."""

    ready: int
    processing: int
    delayed: int
    failing: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """A handler's result to requeue its key: after so many seconds, or with back-off (None)."""

    after: float | None = None


SHORTEST_DELAY = 0.001
"""The least delay of a key, in seconds."""


OLDEST_EVERY = 4
"""One in so many keys that are taken is the oldest, whatever its rank: so no key is starved by others."""


class _Ready(asyncio.Queue[K]):
    """The keys ready to be taken: the smallest rank first, then one of each flow in turn, then the oldest.

    This is start-time fair queueing: within a rank, a key's turn follows that of its flow's last key, or the
    present turn.
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
        """A heap. Keys that were taken by age are still in it."""
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
        """Forgets the turns of flows without ready keys, and of ranks without flows."""
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
    """Keys waiting for a worker, without duplicates: those of the smallest `rank` first, within a rank one of each
    `flow` in turn, in the order in which they were first added; but one in `OLDEST_EVERY` by its age alone. So a
    thousand keys of one flow don't delay the first key of another.

    `rank` and `flow` are called when a key is added. `retries` is the delay of a key after failures in a row.
    `fields` returns the fields of a log entry about a key: {"pod": "team/a"}.
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
        """The number of retries of all keys since the start."""

    def add(self, key: K) -> None:
        """Adds the key, to be processed now, or again after the worker that has it is done."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._processing:
            self._ready.put_nowait(key)

    def add_after(self, key: K, delay: float) -> None:
        """Requeues the key after `delay` seconds. Of several delays of one key the one that ends first counts.

        A delay is at least `SHORTEST_DELAY`: remaining times are computed in floating point, and a handler that is
        called again within the clock's resolution would find the same time remaining.
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

    def retry(self, key: K, asked: float | None = None) -> None:
        """Requeues the key after a back-off that doubles with each retry until `forget`; not before the `asked`
        seconds of a server's Retry-After, of which at most `LONGEST_ASKED` count."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        self.retried += 1
        self.add_after(key, max(self._retries.delay(failures), min(asked or 0.0, LONGEST_ASKED)))

    def forget(self, key: K) -> None:
        """Resets the back-off of a key that succeeded, or is gone."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """The number of retries of the key since `forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key, as soon as there is one. No other worker gets it until `done`."""
        key = await self._ready.get()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: K) -> None:
        """Ends the processing of the key, successful or not. It is ready again if it was added in the meantime."""
        self._processing.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def statistics(self) -> QueueStatistics:
        """The present numbers of keys."""
        return QueueStatistics(self._ready.qsize(), len(self._processing), len(self._delayed), len(self._failures))

    def _due(self, key: K) -> None:
        self._delayed.pop(key, None)
        self.add(key)


async def run_workers(queue: WorkQueue[K], handler: Callable[[K], Awaitable[Requeue | None]], count: int) -> None:
    """Runs `count` workers that call the handler for each key, until cancelled.

    If a handler raises, that is logged and its key is retried, as late as the server asked. Otherwise it returns
    when to requeue the key (`Requeue`), or None to wait for the next change; unless it asked for back-off, by
    `Requeue` or by `retry`, the key's failures are forgotten. A lost lease is logged by the elector, once for all
    keys. A BaseException that is no Exception (a cancellation, an interrupt) ends all workers.
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
            queue.retry(key)  # the elector has logged it, and is about to cancel the workers
        except Exception as error:
            queue.retry(key, error.retry_after if isinstance(error, ApiError) else None)
            # A server's refusal is normal and needs no stack trace; anything else is a bug of ours.
            is_bug = not isinstance(error, ApiError | OutcomeUnknown)
            fields = {**queue.fields(key), "failures": queue.failures(key)}
            log.warning("work failed", **fields, error=str(error), exc_info=is_bug)
        else:
            if requeue is not None and requeue.after is None:
                queue.retry(key)
            elif queue.failures(key) == before:
                queue.forget(key)
            if requeue is not None and requeue.after is not None:
                queue.add_after(key, requeue.after)
        finally:
            queue.done(key)
        # A handler that answers from memory never awaits; without this it would keep other tasks from running.
        await asyncio.sleep(0)
