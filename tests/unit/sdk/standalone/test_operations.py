"""Operations: one at a time about a claim, stopped on request, tried again after a pause that grows."""

import asyncio

import pytest

from parley.kube.backoff import Backoff
from parley.sdk.standalone.operations import ClaimRef, Operation, Operations, Retry, cancel, wait_stopped
from parley.simulate.virtual_time import run

A, B = ClaimRef(("team", "a"), "uid-a"), ClaimRef(("team", "b"), "uid-b")


async def until_stopped(operation: Operation) -> None:
    await operation.stop.wait()


async def fail(operation: Operation) -> None:
    raise Retry("not today")


async def succeed(operation: Operation) -> None:
    await asyncio.sleep(1)


def test_its_claims_are_not_free_until_it_ended() -> None:
    async def scenario() -> None:
        ended: list[Operation] = []
        async with asyncio.TaskGroup() as tasks:
            operations = Operations(ended.append)
            operations.begin(tasks)
            operation = Operation([A, B])
            operations.start(operation, succeed)
            assert operations.of("uid-a") is operations.of("uid-b") is operation
            assert not operations.free("uid-c", "uid-b")
            await asyncio.sleep(2)
            assert operations.free("uid-a", "uid-b")
        assert ended == [operation]

    run(scenario())


def test_a_second_one_about_a_claim_is_a_mistake() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            operations = Operations(lambda _: None)
            operations.begin(tasks)
            operations.start(Operation([A]), succeed)
            with pytest.raises(AssertionError, match="operation about one of the claims"):
                operations.start(Operation([B, A]), succeed)

    run(scenario())


def test_stopping_reaches_the_one_about_the_claim_alone() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            operations = Operations(lambda _: None)
            operations.begin(tasks)
            for ref in (A, B):
                operations.start(Operation([ref]), until_stopped)
            operations.stop("uid-a")
            operations.stop("uid-of-no-operation")
            await asyncio.sleep(1)
            assert operations.free("uid-a")
            assert not operations.free("uid-b")
            operations.stop("uid-b")

    run(scenario())


def test_after_a_failure_its_claims_are_left_alone_for_a_pause_that_grows() -> None:
    async def scenario() -> None:
        ended = list[float]()
        now = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as tasks:
            operations = Operations(lambda _: ended.append(now()), Backoff(first=1, longest=60))
            operations.begin(tasks)
            pauses = list[float]()
            for work in (fail, fail, succeed, fail):
                begun = now()
                operations.start(Operation([A]), work)
                await asyncio.sleep(10)
                pauses.append(ended[-1] - begun)
            assert pauses == [1, 2, 1, 1]

    run(scenario())


def test_the_failures_of_a_claim_that_is_gone_are_forgotten() -> None:
    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as tasks:
            operations = Operations(lambda _: None, Backoff(first=1, longest=60))
            operations.begin(tasks)
            operations.start(Operation([A]), fail)
            await asyncio.sleep(2)
            operations.forget("uid-a")
            begun = now()
            operations.start(Operation([A]), fail)
            await asyncio.sleep(1.5)
            assert operations.free("uid-a"), f"still paused after {now() - begun} s"

    run(scenario())


def test_waiting_for_a_stop_ends_after_that_time_or_at_once() -> None:
    async def scenario() -> None:
        now, operation = asyncio.get_running_loop().time, Operation([A])
        begun = now()
        await wait_stopped(operation, 5)
        assert now() - begun == 5
        operation.stop.set()
        await wait_stopped(operation, 5)
        assert now() - begun == 5

    run(scenario())


def test_what_is_cancelled_has_ended_whatever_it_raised() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            raise RuntimeError("in its last moment")

    async def scenario() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(1)
        await cancel(task)
        assert task.done()

    run(scenario())
