"""Who leads, and when nobody may write; several processes in virtual time on one API server in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
import structlog.testing
from tests.support.faults import FaultClient, kill_at
from tests.unit.kube.tasks import beside_the_test

from parley.api.builtin import Lease
from parley.api.resources import LEASES, PODS
from parley.kube.client import Call, Client, Conflict, OutcomeUnknown, ServerError
from parley.kube.fencing import LeasedClient
from parley.kube.lease import LeaseClock, LeaseElector, LeaseLost, LeaseTimes
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime

T = TypeVar("T")

POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
NO_ROUTE = OutcomeUnknown("no route to host")


def now() -> float:
    return asyncio.get_running_loop().time()


class Process:
    """One candidate with its own network and clocks. `led` are the times at which it began and ceased to lead."""

    def __init__(
        self, server: MemoryServer, identity: str, client: FaultClient | None = None, replaced: str = ""
    ) -> None:
        self.asleep = 0.0
        self.wall_error = timedelta()
        self.trouble: Callable[[Call], None] = lambda _: None
        self.led: list[tuple[str, float]] = []
        self.client = client or FaultClient(server.client(), before=lambda call: self.trouble(call))
        self.elector = LeaseElector(
            self.client,
            "parley",
            "controller",
            identity,
            clock=LeaseClock(
                wall=lambda: datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=now()) + self.wall_error,
                monotonic=lambda: now() + self.asleep,
                jitter=lambda: 0,
            ),
            replaced=replaced,
        )
        self.writer = LeasedClient(self.client, self.elector)

    async def lead(self) -> None:
        self.led.append(("began", now()))
        try:
            await asyncio.sleep(1e9)
        finally:
            self.led.append(("ceased", now()))

    def cut_off(self, error: Exception = NO_ROUTE) -> None:
        """From now on no request arrives."""

        def fail(_: Call) -> None:
            raise error

        self.trouble = fail


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


Start = Callable[[Process], asyncio.Task[None]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts processes, until the end of the test."""
    async with beside_the_test() as begin:
        yield lambda process: begin(process.elector.run(process.lead))


async def lease(server: MemoryServer) -> Lease:
    return await server.client().get(LEASES, "controller", "parley")


async def test_the_first_candidate_leads_and_renews(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    start(a)
    await asyncio.sleep(101)

    assert a.led == [("began", 0)]
    assert a.elector.held()
    spec = (await lease(server)).spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("a", 15, 0)
    assert spec.acquire_time == "2026-11-21T00:00:00.000000Z"
    assert spec.renew_time == "2026-11-21T00:01:40.000000Z"


async def test_the_second_candidate_waits_as_long_as_the_first_renews(server: MemoryServer, start: Start) -> None:
    a, b = Process(server, "a"), Process(server, "b")
    start(a)
    await asyncio.sleep(0.5)
    start(b)
    await asyncio.sleep(1000)

    assert b.led == []
    assert not b.elector.held()


async def test_renewing_costs_one_write_every_two_seconds_and_no_read(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    start(a)
    await asyncio.sleep(99)

    verbs = [call.verb for call in a.client.calls]
    assert verbs[:2] == ["get", "create"]
    assert verbs[2:] == ["patch"] * 49


async def test_a_leader_that_is_stopped_properly_hands_over_at_once(server: MemoryServer, start: Start) -> None:
    a, b = Process(server, "a"), Process(server, "b")
    leader = start(a)
    await asyncio.sleep(0.5)
    start(b)
    await asyncio.sleep(100)
    stopped = now()
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader

    assert a.led == [("began", 0), ("ceased", stopped)]
    assert not a.elector.held()
    await asyncio.sleep(3)
    assert b.led == [("began", stopped + 2)]
    assert (await lease(server)).spec.lease_transitions == 1


async def test_the_lease_is_released_only_after_the_work_has_ended(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    held: list[str] = []

    async def lead() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(3)
            held.append((await lease(server)).spec.holder_identity)

    task = asyncio.ensure_future(a.elector.run(lead))
    await asyncio.sleep(10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held == ["a"]
    assert (await lease(server)).spec.holder_identity == ""


async def test_a_leader_without_api_server_ceases_before_another_one_begins(
    server: MemoryServer, start: Start
) -> None:
    a, b = Process(server, "a"), Process(server, "b")
    leader = start(a)
    await asyncio.sleep(0.5)
    start(b)
    await asyncio.sleep(20)
    a.cut_off()
    with pytest.raises(
        LeaseLost, match=r"^lease parley/controller: a did not renew it for 10\.0 s of at most 10 s$"
    ):
        await leader
    await asyncio.sleep(60)

    (_, ceased), (_, began) = a.led[1], b.led[0]
    assert ceased + a.elector.times.write_seconds < began
    assert b.elector.held()


async def test_a_short_outage_costs_nothing(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    start(a)
    await asyncio.sleep(19)
    a.cut_off()
    await asyncio.sleep(6)
    a.trouble = lambda _: None
    await asyncio.sleep(60)

    assert a.led == [("began", 0)]


async def test_a_renewal_that_hangs_is_given_up_and_tried_again(server: MemoryServer, start: Start) -> None:
    class Hanging(FaultClient):
        hangs = False

        async def request(self, call: Call) -> bytes:
            if self.hangs and call.verb == "patch":
                self.hangs = False
                await asyncio.sleep(1e6)
            return await super().request(call)

    client = Hanging(server.client())
    a = Process(server, "a", client)
    start(a)
    await asyncio.sleep(20)
    client.hangs = True
    await asyncio.sleep(60)
    assert a.led == [("began", 0)]
    assert not client.hangs


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
    """Also through other clients around the one with the lease."""
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


async def test_a_renewal_counts_from_when_it_was_sent(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")

    def falls_asleep_while_sending(call: Call) -> None:
        if call.verb == "patch":
            a.asleep = 11

    a.trouble = falls_asleep_while_sending
    leader = start(a)
    with pytest.raises(LeaseLost, match="did not renew it for 11"):
        await leader


@pytest.mark.parametrize("hours", [-5, 5])
async def test_a_wrong_wall_clock_does_not_matter(hours: int, server: MemoryServer, start: Start) -> None:
    a, b = Process(server, "a"), Process(server, "b")
    a.wall_error = timedelta(hours=hours)
    start(a)
    await asyncio.sleep(0.5)
    start(b)
    await asyncio.sleep(100)
    b.wall_error = timedelta(hours=-hours)
    await asyncio.sleep(100)

    assert (a.led, b.led) == ([("began", 0)], [])


async def test_a_lease_that_is_touched_but_not_renewed_is_taken(server: MemoryServer, start: Start) -> None:
    a, b = Process(server, "a"), Process(server, "b")
    leader = start(a)
    await asyncio.sleep(0.5)
    start(b)
    a.cut_off()
    with pytest.raises(LeaseLost):
        await leader
    for number in range(20):
        await asyncio.sleep(2)
        labels = {"metadata": {"labels": {"n": str(number)}}}
        await server.client().patch(LEASES, "controller", labels, "parley")

    assert b.led[0][0] == "began"


async def test_a_holder_with_a_longer_lease_is_given_its_time(server: MemoryServer, start: Start) -> None:
    spec = {"holderIdentity": "old release", "leaseDurationSeconds": 60}
    await server.client().create(LEASES, {"metadata": {"name": "controller"}, "spec": spec}, "parley")
    a = Process(server, "a")
    start(a)
    await asyncio.sleep(120)

    ((_, began),) = a.led
    assert 60 <= began <= 62


@pytest.mark.parametrize(
    ("killed", "replaced", "begins"),
    [("pod-1_a", "pod-1_", 4), ("pod-1_a", "", 16), ("pod-2_a", "pod-1_", 16)],
    ids=["of the same container", "of who knows what", "of another pod"],
)
async def test_a_process_that_replaces_the_holder_waits_for_its_last_write_only(
    server: MemoryServer, start: Start, killed: str, replaced: str, begins: float
) -> None:
    a = Process(server, killed)
    holding = start(a)
    await asyncio.sleep(1)
    a.cut_off()
    holding.cancel()
    b = Process(server, "pod-1_b", replaced=replaced)
    began = now()
    start(b)
    await asyncio.sleep(30)
    assert b.led == [("began", began + begins)]
    assert b.elector.times.write_seconds <= 4


async def test_a_longer_lease_of_the_replaced_process_gave_its_writes_more_time(
    server: MemoryServer, start: Start
) -> None:
    spec = {"holderIdentity": "pod-1_a", "leaseDurationSeconds": 60}
    await server.client().create(LEASES, {"metadata": {"name": "controller"}, "spec": spec}, "parley")
    b = Process(server, "pod-1_b", replaced="pod-1_")
    start(b)
    await asyncio.sleep(61)
    assert b.led == [("began", 16)]


async def test_a_lease_that_somebody_deletes_stays_with_its_holder(server: MemoryServer, start: Start) -> None:
    a, b = Process(server, "a"), Process(server, "b")
    start(a)
    await asyncio.sleep(1)
    start(b)
    await asyncio.sleep(19.5)
    await server.client().delete(LEASES, "controller", "parley")
    await asyncio.sleep(40)

    assert a.led == [("began", 0)]
    assert b.led == []
    assert (await lease(server)).spec.holder_identity == "a"


async def test_whoever_held_a_lease_that_was_deleted_is_given_his_time(server: MemoryServer, start: Start) -> None:
    a, b = Process(server, "a"), Process(server, "b")
    leader = start(a)
    await asyncio.sleep(1)
    start(b)
    await asyncio.sleep(19.5)
    a.cut_off()
    await server.client().delete(LEASES, "controller", "parley")
    with pytest.raises(LeaseLost):
        await leader
    ceased = now()
    assert b.led == []

    await asyncio.sleep(40)
    [(_, began)] = b.led
    assert began > ceased + a.elector.times.write_seconds
    assert began <= 20 + 15 + 2 + 2
    assert (await lease(server)).spec.holder_identity == "b"


async def test_a_lease_taken_by_another_is_lost_at_once(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    leader = start(a)
    await asyncio.sleep(5)
    await server.client().patch(LEASES, "controller", {"spec": {"holderIdentity": "b"}}, "parley")

    with pytest.raises(LeaseLost, match=r"^lease parley/controller: held by b, not by a$"):
        await leader
    assert now() < 5 + 2 * a.elector.times.retry_seconds + 1
    assert (await lease(server)).spec.holder_identity == "b"


async def test_a_renewal_of_unknown_outcome_is_read_back(server: MemoryServer, start: Start) -> None:
    unheard = kill_at(3, OutcomeUnknown("connection reset"))
    a = Process(server, "a", FaultClient(server.client(), after=unheard))
    start(a)
    await asyncio.sleep(60)

    assert a.led == [("began", 0)]
    verbs = [call.verb for call in a.client.calls]
    assert verbs[:7] == ["get", "create", "patch", "patch", "get", "patch", "patch"]


async def test_two_who_see_a_free_lease_do_not_both_get_it(server: MemoryServer, start: Start) -> None:
    candidates = [Process(server, name) for name in ("a", "b", "c")]
    for candidate in candidates:
        start(candidate)
    await asyncio.sleep(30)
    assert sorted(len(candidate.led) for candidate in candidates) == [0, 0, 1]


async def test_candidates_wait_for_an_api_server_that_is_down(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    a.cut_off(ServerError(503, "ServiceUnavailable", "etcd is starting"))
    start(a)
    await asyncio.sleep(9)
    a.trouble = lambda _: None
    await asyncio.sleep(2)
    assert a.led == [("began", 10)]


async def test_the_works_own_end_releases_the_lease(server: MemoryServer) -> None:
    a = Process(server, "a")

    async def lead() -> None:
        await asyncio.sleep(3)

    await a.elector.run(lead)
    assert now() == 3
    assert (await lease(server)).spec.holder_identity == ""


async def test_the_works_own_failure_is_raised_and_releases_the_lease(server: MemoryServer) -> None:
    a = Process(server, "a")

    async def lead() -> None:
        raise ValueError("a sum went below zero")

    with pytest.raises(ValueError, match="below zero"):
        await a.elector.run(lead)
    assert (await lease(server)).spec.holder_identity == ""


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


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ((10, 10, 2), "retry_seconds 2 must be below renew_deadline 10, and that below lease_seconds 10"),
        ((15, 10, 10), "retry_seconds 10 must be below renew_deadline 10, and that below lease_seconds 15"),
        ((15, 10, 0), "retry_seconds 0 must be below renew_deadline 10, and that below lease_seconds 15"),
    ],
)
def test_times_that_leave_no_room_are_refused(times: tuple[float, float, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LeaseTimes(*times)


def test_times_are_in_proportion_to_how_long_the_lease_lasts() -> None:
    assert LeaseTimes.lasting(15) == LeaseTimes()
    assert LeaseTimes.lasting(6) == LeaseTimes(6, 4, 0.8)


class Late(Client):
    """Answers writes a second after they happened."""

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        await asyncio.sleep(1 if call.writes else 0)
        return answer


async def test_the_lease_is_released_also_when_the_end_falls_into_a_renewal(server: MemoryServer) -> None:
    clock = LeaseClock(monotonic=now, jitter=lambda: 0)
    elector = LeaseElector(Late(server.client()), "parley", "controller", "a", clock=clock)
    leading = asyncio.ensure_future(elector.run(lambda: asyncio.sleep(1e9)))
    await asyncio.sleep(1 + elector.times.retry_seconds + 0.5)
    renewed = (await lease(server)).spec.renew_time

    leading.cancel()
    await asyncio.wait((leading,))

    assert renewed is not None
    assert (await lease(server)).spec.holder_identity == ""
    assert not elector.held()
