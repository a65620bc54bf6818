"""The leader renews its Lease, through short outages too, and releases it when its work has ended."""

import asyncio

import pytest
from tests.support.faults import FaultClient, kill_at
from tests.unit.kube.lease.candidates import Process, Start, lease, now

from parley.api.resources import LEASES
from parley.kube.client import Call, Client, OutcomeUnknown
from parley.kube.lease import LeaseClock, LeaseElector, LeaseLost, LeaseTimes
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime


async def test_renewing_costs_one_write_every_two_seconds_and_no_read(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")
    start(a)
    await asyncio.sleep(99)

    verbs = [call.verb for call in a.client.calls]
    assert verbs[:2] == ["get", "create"]
    assert verbs[2:] == ["patch"] * 49


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


async def test_a_renewal_counts_from_when_it_was_sent(server: MemoryServer, start: Start) -> None:
    a = Process(server, "a")

    def falls_asleep_while_sending(call: Call) -> None:
        if call.verb == "patch":
            a.asleep = 11

    a.trouble = falls_asleep_while_sending
    leader = start(a)
    with pytest.raises(LeaseLost, match="did not renew it for 11"):
        await leader


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
