"""A controller leads where the scheduler does; several hosts in virtual time on one API server in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.faults import FaultClient
from tests.unit.kube.tasks import beside_the_test

from parley.api.builtin import Lease
from parley.api.resources import LEASES
from parley.kube.client import AlreadyExists, Call, ServerError
from parley.kube.followed_lease import FollowedLease, held_on
from parley.kube.lease import LeaseClock, LeaseElector, LeaseLost
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime

SCHEDULER = "parley-scheduler"


def now() -> float:
    return asyncio.get_running_loop().time()


class Host:
    """A pod: its controller, and the name by which its scheduler is known. `led`: when it began and ceased."""

    def __init__(self, server: MemoryServer, name: str) -> None:
        self.name = name
        self.led: list[tuple[str, float]] = []
        self.trouble: Callable[[Call], None] = lambda _: None
        self.client = FaultClient(server.client(), before=lambda call: self.trouble(call))
        self.elector = LeaseElector(
            self.client,
            "parley",
            "controller",
            f"{name}_controller",
            clock=LeaseClock(monotonic=now, jitter=lambda: 0),
        )
        self._following = FollowedLease(self.client, "parley", SCHEDULER, name)

    async def run(self) -> None:
        await self._following.run(self.elector, self.lead)

    async def lead(self) -> None:
        self.led.append(("began", now()))
        try:
            await asyncio.sleep(1e9)
        finally:
            self.led.append(("ceased", now()))


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


Start = Callable[[Host], asyncio.Task[None]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts controllers, until the end of the test."""
    async with beside_the_test() as begin:
        yield lambda host: begin(host.run())


async def scheduler_leads_on(server: MemoryServer, host: str) -> None:
    """The scheduler's Lease shows a holder on that host; "" for none."""
    spec = {"holderIdentity": f"{host}_5ab5" if host else ""}
    body = {"metadata": {"name": SCHEDULER}, "spec": spec}
    try:
        await server.client().create(LEASES, body, "parley")
    except AlreadyExists:
        await server.client().patch(LEASES, SCHEDULER, {"spec": spec}, "parley")


async def lease(server: MemoryServer) -> Lease:
    return await server.client().get(LEASES, "controller", "parley")


@pytest.mark.parametrize(
    ("holder", "host", "held"),
    [
        ("a_5ab5", "a", True),
        ("a-b_5ab5", "a", False),
        ("a", "a", False),
        ("", "a", False),
        ("ba_5ab5", "a", False),
    ],
)
def test_who_holds_a_lease_on_a_host(holder: str, host: str, held: bool) -> None:
    assert held_on(holder, host) is held


async def test_without_a_scheduler_that_leads_nobody_does(server: MemoryServer, start: Start) -> None:
    a = Host(server, "a")
    start(a)
    await asyncio.sleep(100)
    await scheduler_leads_on(server, "")
    await asyncio.sleep(100)

    assert a.led == []
    assert {call.verb for call in a.client.calls} <= {"list", "watch"}


async def test_the_controller_beside_the_scheduler_that_leads_does_too_at_once(
    server: MemoryServer, start: Start
) -> None:
    a, b = Host(server, "a"), Host(server, "b")
    start(a)
    start(b)
    await asyncio.sleep(50)

    await scheduler_leads_on(server, "b")
    await asyncio.sleep(50)

    assert (a.led, b.led) == ([], [("began", 50)])
    assert b.elector.held()


async def test_following_costs_no_request_while_nothing_changes(server: MemoryServer, start: Start) -> None:
    await scheduler_leads_on(server, "b")
    a = Host(server, "a")
    start(a)
    await asyncio.sleep(250)

    assert [call.verb for call in a.client.calls].count("list") == 1
    assert not {"get", "create", "patch"} & {call.verb for call in a.client.calls}


async def test_when_the_scheduler_leads_elsewhere_its_controller_follows_within_a_look(
    server: MemoryServer, start: Start
) -> None:
    await scheduler_leads_on(server, "a")
    a, b = Host(server, "a"), Host(server, "b")
    first = start(a)
    start(b)
    await asyncio.sleep(100)

    await scheduler_leads_on(server, "b")
    with pytest.raises(
        LeaseLost, match=r"^followed lease parley/parley-scheduler: held by b_5ab5, not on host a$"
    ):
        await first
    assert not a.elector.held()
    await asyncio.sleep(5)

    assert a.led == [("began", 0), ("ceased", 100)]
    ((_, began),) = b.led
    assert 100 <= began <= 102
    assert (await lease(server)).spec.holder_identity == "b_controller"


async def test_a_scheduler_that_begins_anew_on_the_same_host_moves_nobody(
    server: MemoryServer, start: Start
) -> None:
    await scheduler_leads_on(server, "a")
    a = Host(server, "a")
    start(a)
    await asyncio.sleep(50)
    await server.client().patch(LEASES, SCHEDULER, {"spec": {"holderIdentity": "a_later"}}, "parley")
    await asyncio.sleep(50)

    assert a.led == [("began", 0)]


@pytest.mark.parametrize("gone", [True, False])
async def test_a_leader_goes_on_while_no_scheduler_holds_the_lease(
    gone: bool, server: MemoryServer, start: Start
) -> None:
    await scheduler_leads_on(server, "a")
    a = Host(server, "a")
    start(a)
    await asyncio.sleep(50)
    if gone:
        await server.client().delete(LEASES, SCHEDULER, "parley")
    else:
        await scheduler_leads_on(server, "")
    await asyncio.sleep(50)

    assert a.led == [("began", 0)]


async def test_a_candidate_that_waits_for_its_own_lease_stops_when_the_scheduler_moves(
    server: MemoryServer, start: Start
) -> None:
    held = {"metadata": {"name": "controller"}, "spec": {"holderIdentity": "killed", "leaseDurationSeconds": 15}}
    await server.client().create(LEASES, held, "parley")
    await scheduler_leads_on(server, "a")
    a, b = Host(server, "a"), Host(server, "b")
    task = start(a)
    start(b)
    await asyncio.sleep(10)

    await scheduler_leads_on(server, "b")
    await asyncio.sleep(30)
    assert a.led == []
    assert not task.done()
    assert [what for what, _ in b.led] == ["began"]

    b.trouble = no_server
    await scheduler_leads_on(server, "a")
    await asyncio.sleep(60)
    assert [what for what, _ in a.led] == ["began"]


def no_server(_: Call) -> None:
    raise ServerError(503, "ServiceUnavailable", "etcd is starting")


async def test_a_leader_whose_watch_breaks_goes_on_as_long_as_its_own_lease_holds(
    server: MemoryServer, start: Start
) -> None:
    await scheduler_leads_on(server, "a")
    a = Host(server, "a")
    leader = start(a)
    await asyncio.sleep(50)
    a.trouble = no_server

    with pytest.raises(LeaseLost, match=r"^lease parley/controller: a_controller did not renew it"):
        await leader


async def test_a_process_that_is_asked_to_end_hands_over(server: MemoryServer, start: Start) -> None:
    await scheduler_leads_on(server, "a")
    a = Host(server, "a")
    leader = start(a)
    await asyncio.sleep(51)

    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader

    assert a.led == [("began", 0), ("ceased", 51)]
    assert (await lease(server)).spec.holder_identity == ""


async def test_the_works_own_failure_is_raised(server: MemoryServer) -> None:
    await scheduler_leads_on(server, "a")
    a = Host(server, "a")

    async def fail() -> None:
        raise ValueError("a sum went below zero")

    with pytest.raises(ValueError, match="below zero"):
        await FollowedLease(a.client, "parley", SCHEDULER, "a").run(a.elector, fail)
    assert (await lease(server)).spec.holder_identity == ""
