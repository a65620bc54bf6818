"""What the work queue promises about keys, workers and delays; in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import structlog.testing
from hypothesis import given
from hypothesis import strategies as st

from parley.kube.backoff import Backoff
from parley.kube.client import ServerError, TooManyRequests
from parley.kube.lease import LeaseLost
from parley.kube.queue import QueueStatistics, Requeue, WorkQueue, run_workers

pytestmark = pytest.mark.looptime

Handler = Callable[[str], Awaitable[Requeue | None]]


def now() -> float:
    return asyncio.get_running_loop().time()


async def work(queue: WorkQueue[str], handler: Handler, seconds: float, count: int = 1) -> None:
    """Let the workers run for a while."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(run_workers(queue, handler, count), seconds)


async def test_a_key_added_twice_is_worked_on_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    seen: list[str] = []

    async def handle(key: str) -> None:
        seen.append(key)

    for key in ("a", "b", "a"):
        queue.add(key)
    await work(queue, handle, 1)

    assert seen == ["a", "b"]


async def test_a_key_added_while_being_worked_on_comes_again_and_never_in_parallel() -> None:
    queue: WorkQueue[str] = WorkQueue()
    spans: list[tuple[float, float]] = []

    async def handle(key: str) -> None:
        started = now()
        if not spans:
            queue.add(key)
            queue.add(key)
        await asyncio.sleep(2)
        spans.append((started, now()))

    queue.add("pod")
    await work(queue, handle, 60, count=4)

    assert spans == [(0, 2), (2, 4)]


async def test_different_keys_are_worked_on_in_parallel_by_as_many_workers_as_there_are() -> None:
    queue: WorkQueue[str] = WorkQueue()
    ends: list[float] = []

    async def handle(_: str) -> None:
        await asyncio.sleep(1)
        ends.append(now())

    for number in range(5):
        queue.add(f"pod-{number}")
    await work(queue, handle, 60, count=2)

    assert ends == [1, 1, 2, 2, 3]


async def test_a_failing_key_is_retried_with_doubling_delays_up_to_the_longest() -> None:
    queue: WorkQueue[str] = WorkQueue(Backoff(first=1, longest=4))
    attempts: list[float] = []

    async def handle(_: str) -> None:
        attempts.append(now())
        raise RuntimeError("the server is down")

    queue.add("pod")
    await work(queue, handle, 16)

    assert attempts == [0, 1, 3, 7, 11, 15]


@pytest.mark.parametrize(("asked", "waited"), [(20, 20), (0.001, 1), (1e300, 60), (None, 1)])
async def test_a_server_that_asks_to_slow_down_is_obeyed(asked: float | None, waited: float) -> None:
    queue: WorkQueue[str] = WorkQueue(Backoff(first=1, longest=8))
    queue.add("pod")
    times: list[float] = []

    async def handle(_: str) -> None:
        times.append(now())
        if len(times) == 1:
            raise TooManyRequests(429, "TooManyRequests", "the server is busy", retry_after=asked)

    await work(queue, handle, seconds=100)
    assert times == [0, waited]


async def test_success_makes_the_next_failure_start_with_the_shortest_delay() -> None:
    queue: WorkQueue[str] = WorkQueue(Backoff(first=1, longest=60))
    outcomes = iter([False, False, True, False, True])
    attempts: list[float] = []

    async def handle(_: str) -> None:
        attempts.append(now())
        if not next(outcomes):
            raise RuntimeError("conflict")

    queue.add("pod")
    asyncio.get_running_loop().call_later(10, queue.add, "pod")
    await work(queue, handle, 60)

    assert attempts == [0, 1, 3, 10, 11]


async def test_a_handler_that_asks_for_a_retry_keeps_its_growing_delay() -> None:
    queue: WorkQueue[str] = WorkQueue(Backoff(first=1, longest=60))
    attempts: list[float] = []

    async def handle(key: str) -> None:
        attempts.append(now())
        queue.retry(key)

    queue.add("pod")
    await work(queue, handle, 10)

    assert attempts == [0, 1, 3, 7]


async def test_an_addition_does_not_wait_for_the_delay_of_a_retry() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("pod", 30)
    queue.add("pod")

    assert await queue.get() == "pod"
    assert now() == 0


@pytest.mark.parametrize(("first", "second"), [(5, 20), (20, 5)])
async def test_of_two_delays_the_one_that_ends_first_counts(first: float, second: float) -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("pod", first)
    queue.add_after("pod", second)

    assert await queue.get() == "pod"
    assert now() == 5
    queue.done("pod")
    await asyncio.sleep(60)
    assert queue.statistics() == QueueStatistics(ready=0, processing=0, delayed=0, failing=0)


async def test_no_delay_means_now() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("pod", 0)
    assert queue.statistics().ready == 1


async def test_what_is_no_exception_ends_all_workers() -> None:
    class Killed(BaseException):
        pass

    queue: WorkQueue[str] = WorkQueue()

    async def handle(_: str) -> None:
        raise Killed

    queue.add("pod")
    with pytest.raises(BaseExceptionGroup) as caught:
        await run_workers(queue, handle, 3)
    assert caught.group_contains(Killed)


async def test_a_handler_says_when_it_wants_its_key_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    worked: list[float] = []

    async def handle(key: str) -> Requeue | None:
        worked.append(now())
        return Requeue(5.0) if len(worked) < 3 else None

    queue.add("pod")
    await work(queue, handle, 60)

    assert [round(later - earlier) for earlier, later in pairwise(worked)] == [5, 5]
    assert queue.statistics().delayed == 0


async def test_a_handler_asks_for_growing_pauses_until_it_asks_for_none() -> None:
    queue: WorkQueue[str] = WorkQueue(Backoff(first=1.0, longest=60.0))
    worked: list[float] = []

    async def handle(key: str) -> Requeue | None:
        worked.append(now())
        return Requeue() if len(worked) < 4 else None

    queue.add("pod")
    await work(queue, handle, 60)

    pauses = [later - earlier for earlier, later in pairwise(worked)]
    assert len(pauses) == 3
    assert pauses == sorted(pauses)
    assert pauses[2] > 2 * pauses[0]
    assert queue.failures("pod") == 0


async def test_a_handler_that_never_waits_leaves_room_for_others() -> None:
    queue: WorkQueue[str] = WorkQueue()
    others_ran = asyncio.Event()

    async def handle(key: str) -> None:
        if not others_ran.is_set():
            queue.add(key)

    asyncio.get_running_loop().call_soon(others_ran.set)
    queue.add("pod")
    await work(queue, handle, 1)

    assert others_ran.is_set()


async def test_statistics_tell_where_each_key_is() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("worked on")
    await queue.get()
    queue.add("ready")
    queue.add("ready too")
    queue.retry("failed")

    assert queue.statistics() == QueueStatistics(ready=2, processing=1, delayed=1, failing=1)


async def test_what_is_tried_again_counts_for_good() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.retry("pod")
    queue.retry("pod")
    queue.forget("pod")

    assert (queue.failures("pod"), queue.retried) == (0, 2)


async def test_a_failure_is_logged_with_what_the_key_stands_for() -> None:
    queue: WorkQueue[str] = WorkQueue(fields=lambda name: {"pod": f"team/{name}"})

    async def fail(_: str) -> None:
        raise ServerError(500, "InternalError", "out of order")

    queue.add("a")
    with structlog.testing.capture_logs() as entries:
        await work(queue, fail, 0.005)

    assert [(entry["event"], entry["pod"], entry["error"]) for entry in entries] == [
        ("work failed", "team/a", "500 InternalError: out of order")
    ]


async def test_a_lost_lease_is_not_told_for_each_key_which_are_kept() -> None:
    queue: WorkQueue[str] = WorkQueue(Backoff(first=0.1, longest=0.1, jitter=0))
    done: list[str] = []

    async def write(key: str) -> None:
        if now() < 1:
            raise LeaseLost("held by another")
        done.append(key)

    for key in ("a", "b", "c"):
        queue.add(key)
    with structlog.testing.capture_logs() as entries:
        await work(queue, write, 2, count=2)

    assert (entries, sorted(done)) == ([], ["a", "b", "c"])


@given(failures=st.integers(1, 10_000), random=st.floats(0, 1, exclude_max=True))
def test_a_backoff_stays_between_its_limits(failures: int, random: float) -> None:
    backoff = Backoff(first=0.5, longest=30, jitter=0.4, random=lambda: random)
    assert 0.5 * 0.6 <= backoff.delay(failures) <= 30


async def test_the_smallest_rank_is_taken_first_and_every_fourth_key_by_its_age() -> None:
    queue: WorkQueue[str] = WorkQueue(rank=lambda key: -int(key[1:]))
    for key in ("a0", "b0", "c9", "d9", "e9", "f9", "g5"):
        queue.add(key)
    assert [await queue.get() for _ in range(7)] == ["c9", "d9", "e9", "a0", "f9", "g5", "b0"]


async def test_flows_take_turns_within_a_rank() -> None:
    queue: WorkQueue[str] = WorkQueue(rank=lambda key: 0 if key[0] == "u" else 1, flow=lambda key: key[1])
    for key in ("-a1", "-a2", "-a3", "-a4", "-b1", "-b2", "ua5"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["ua5", "-a1", "-b1"]
    queue.add("-c1")
    assert [await queue.get() for _ in range(5)] == ["-a2", "-b2", "-c1", "-a3", "-a4"]


async def test_a_flow_that_comes_late_does_not_make_up_for_turns_that_it_left_out() -> None:
    queue: WorkQueue[str] = WorkQueue(flow=lambda key: key[0])
    for number in range(50):
        queue.add(f"a{number}")
    for _ in range(30):
        await queue.get()
    for number in range(10):
        queue.add(f"b{number}")
    taken = [await queue.get() for _ in range(12)]
    assert 4 <= sum(key[0] == "a" for key in taken) <= 8


async def test_nothing_is_kept_of_flows_that_are_gone() -> None:
    queue: WorkQueue[str] = WorkQueue(flow=lambda key: key)
    for number in range(1000):
        queue.add(str(number))
        queue.done(await queue.get())
    assert len(queue._ready._last_turns) < 50


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), max_size=60))
async def test_whatever_the_ranks_no_key_is_lost_or_kept_from_its_turn(steps: list[tuple[str, int]]) -> None:
    """Keys of a small rank are added again and again; the others are taken nevertheless."""
    queue: WorkQueue[str] = WorkQueue(rank=lambda key: 0 if key == "a" else 1)
    added: set[str] = set()
    for key, takes in steps:
        queue.add(key)
        added.add(key)
        for _ in range(min(takes, len(added))):
            taken = await queue.get()
            assert taken in added
            added.discard(taken)
            queue.done(taken)
    assert queue.statistics().ready == len(added)
    for _ in range(4 * len(added)):
        queue.add("a")
        added.discard(taken := await queue.get())
        queue.done(taken)
    assert added <= {"a"}
