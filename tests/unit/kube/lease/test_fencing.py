"""Without a Lease that is certain to be held, nothing is written."""

import asyncio

import pytest
import structlog.testing
from tests.support.faults import FaultClient
from tests.unit.kube.lease.candidates import POD, Process, Start, now

from parley.api.resources import PODS
from parley.kube.client import Call, Client, Conflict, OutcomeUnknown
from parley.kube.fencing import LeasedClient
from parley.kube.lease import LeaseLost
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime


async def test_a_process_that_was_stopped_does_not_write_when_it_wakes(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    leader = start(a)
    await asyncio.sleep(5)
    await a.writer.create(PODS, POD, "default")
    # Stopped for 11 s: its monotonic clock went on, none of its code did.
    a.asleep = 11
    version = server.resource_version

    for write in (
        a.writer.create(PODS, POD, "default"),
        a.writer.patch(PODS, "a", {"metadata": {"labels": {"a": "b"}}}, "default"),
        a.writer.delete(PODS, "a", "default"),
        a.writer.create_subresource(PODS, "a", "binding", {"target": {"name": "n1"}}, "default"),
    ):
        with pytest.raises(
            LeaseLost, match=r"^lease parley/controller: a did not renew it for 12\.0 s of at most"
        ):
            await write
    assert server.resource_version == version
    assert (await a.writer.get(PODS, "a", "default")).metadata.name == "a"
    assert len((await a.writer.list(PODS)).items) == 1
    with pytest.raises(LeaseLost):
        await leader


async def test_a_lease_that_the_work_finds_lost_first_is_lost_alike(server: MemoryServer) -> None:
    # As after a machine slept: timers go on as if nothing had been.
    a = Process(server, "a")

    async def writes() -> None:
        while True:
            await asyncio.sleep(0.1)
            await a.writer.create(PODS, {**POD, "metadata": {"generateName": "a-"}}, "default")

    async def lead() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writes())

    leader = asyncio.ensure_future(a.elector.run(lead))
    await asyncio.sleep(5)
    a.asleep = 3600
    with pytest.raises(LeaseLost, match=r"did not renew it for 360\d\.\d s of at most 10 s$"):
        await leader


async def test_who_may_not_write_learns_so_without_writing(server: MemoryServer, start: Start) -> None:
    """Also through clients that wrap the one with the lease."""
    a = Process(server, "a")
    leader, outer = start(a), Client(a.writer)
    await asyncio.sleep(1)
    outer.check_lease()
    a.asleep = 11
    with pytest.raises(LeaseLost):
        outer.check_lease()
    Client(server.client()).check_lease()
    with pytest.raises(LeaseLost):
        await leader


async def test_that_nothing_is_written_any_more_is_told_once(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    leader = start(a)
    await asyncio.sleep(1)
    a.asleep = 11
    with structlog.testing.capture_logs() as entries:
        for name in ("a", "b", "c"):
            with pytest.raises(LeaseLost):
                await a.writer.delete(PODS, name, "default")
        with pytest.raises(LeaseLost):
            await leader

    why = "lease parley/controller: a did not renew it for 12.0 s of at most 10 s"
    assert entries == [{"event": "not the leader: nothing is written", "log_level": "info", "reason": why}]


async def test_without_a_lease_nothing_is_written(server: MemoryServer) -> None:
    a = Process(server, "a")
    with pytest.raises(LeaseLost, match=r"^lease parley/controller: held by nobody, not by a$"):
        await a.writer.create(PODS, POD, "default")
    assert a.client.calls == []


async def test_a_write_ends_before_anybody_else_may_lead(server: MemoryServer, start: Start) -> None:
    class Slow(FaultClient):
        async def request(self, call: Call) -> bytes:
            await asyncio.sleep(60)
            return b""

    a = Process(server, "a")
    start(a)
    await asyncio.sleep(1)
    writer: Client = LeasedClient(Slow(server.client()), a.elector)
    began = now()
    with pytest.raises(OutcomeUnknown, match=r"^no answer within the 4 s that the lease leaves for a write$"):
        await writer.create(PODS, POD, "default")
    assert now() - began == a.elector.times.write_seconds == 4


async def test_refusals_and_watches_pass_through(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    start(a)
    await asyncio.sleep(1)
    pod = await a.writer.create(PODS, POD, "default")
    stream = a.writer.watch(PODS, resource_version=str(int(pod.metadata.resource_version) - 1))
    assert (await anext(aiter(stream))).object == pod
    with pytest.raises(Conflict):
        await a.writer.patch(PODS, "a", {"metadata": {"resourceVersion": "1"}}, "default")
