"""Which candidate leads: the first one, then another one when the Lease is released, expires or is deleted."""

import asyncio
from datetime import timedelta

import pytest
from tests.unit.kube.lease.candidates import Process, Start, lease, now

from parley.api.resources import LEASES
from parley.kube.client import ServerError
from parley.kube.lease import LeaseLost
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime


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
