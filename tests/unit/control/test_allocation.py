"""Embedded drivers allocate for a pod all or nothing, the ledger has it before anything is written."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from tests.unit.control.builders import (
    NAMESPACE,
    TOKENS,
    World,
    a_class,
    a_holding,
    a_pod,
    pending,
    played,
    unreserving,
    user,
)

from parley.control.allocation import Aborted, AllocationFailed, Allocator, Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.demand import demand_of
from parley.control.holding import Written
from parley.control.limited_driver import CALL_SECONDS, LimitedDriver
from parley.control.objects.mirror import MAX_USERS
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.sdk import Allocation, Held, PermanentError, Request

POD = a_pod()
OTHER = a_class("other", "second.example.com")


class Second(TokensDriver):
    """A second driver, which does as it is told: it fails, or takes its time."""

    name = "second.example.com"

    def __init__(self, failure: Exception | None = None, seconds: float = 0) -> None:
        super().__init__()
        self._failure = failure
        self._seconds = seconds

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        allocations = await super().allocate(request, node)
        await asyncio.sleep(self._seconds)
        if self._failure is not None:
            for claim in request.claims:
                await self.deallocate(claim.uid)
            raise self._failure
        return allocations


async def allocate(world: World, allocator: Allocator, *claims: PodClaim, node: str = "node-1") -> None:
    demand = demand_of(world.state.drivers, user("p"), claims)
    await allocator.allocate(POD, claims, demand, node, offered=False)


def free(world: World, driver: str = TOKENS, class_name: str = "licence") -> int:
    """How many of the pool's four tokens nobody holds."""
    for count in range(4, 0, -1):
        claim = pending("asks", a_class(class_name, driver), count=count)
        request = demand_of(world.state.drivers, user("asks"), [claim]).requests[driver]
        if world.state.drivers[driver].viable(request, ["node-1"])["asks"].viable:
            return count
    return 0


def test_the_ledger_has_what_the_drivers_allocated_and_for_whom() -> None:
    async def story(world: World) -> None:
        claims = (pending("a", count=2), pending("b", OTHER))
        await allocate(world, Allocator(world.state), *claims)
        first, second = (world.ledger.get(claim.uid) for claim in claims)
        assert first is not None
        assert second is not None
        assert (first.driver, first.node, first.units, first.class_name) == (TOKENS, "node-1", 2, "licence")
        assert (second.driver, second.units) == (Second.name, 1)
        assert list(first.pods.values()) == [user("p")]
        assert (first.named, first.written, first.offered) == (True, Written.NO, False)
        assert first.allocation.data["count"] == 2
        assert world.writes == []

    played(story, TokensDriver(), Second())


def test_if_one_driver_fails_nothing_is_held_by_any() -> None:
    async def story(world: World) -> None:
        limited = a_class(limits=[{"claims": 1}])
        claims, woken = (pending("a", limited), pending("b", OTHER)), []
        allocator = Allocator(world.state, lambda topic, _: woken.append(topic))
        with pytest.raises(AllocationFailed) as raised:
            await allocate(world, allocator, *claims)
        assert woken == [("driver", TOKENS), ("driver", Second.name)]
        assert str(raised.value) == f"driver {Second.name} could not allocate on node node-1: broken for good"
        assert isinstance(raised.value.__cause__, PermanentError)
        assert len(world.ledger) == 0
        assert (free(world), free(world, Second.name, "other")) == (4, 4)
        assert world.ledger.limits.excess(limited, NAMESPACE, {"uid-new": 1}) == ""

    played(story, TokensDriver(), Second(PermanentError("broken for good")))


def test_a_claim_is_allocated_for_one_pod_at_a_time() -> None:
    async def story(world: World) -> None:
        allocator, claim = Allocator(world.state), pending("b", OTHER)
        first = asyncio.create_task(allocate(world, allocator, claim))
        await asyncio.sleep(1)
        assert claim.uid in world.ledger.allocating
        with pytest.raises(Busy):
            await allocate(world, allocator, claim)
        await first
        assert claim.uid not in world.ledger.allocating
        assert world.ledger.get(claim.uid) is not None

    played(story, Second(seconds=5))


def test_what_is_being_allocated_counts_towards_the_limits() -> None:
    async def story(world: World) -> None:
        limited = a_class("other", Second.name, limits=[{"units": 3}])
        allocator = Allocator(world.state)
        allocating = asyncio.create_task(allocate(world, allocator, pending("a", limited, count=3)))
        await asyncio.sleep(1)
        assert len(world.ledger) == 0
        assert world.ledger.limits.excess(limited, NAMESPACE, {"uid-new": 1})
        await allocating

    played(story, Second(seconds=5))


def test_a_driver_that_takes_too_long_is_told_to_be_asynchronous_and_holds_nothing() -> None:
    async def story(world: World) -> None:
        with pytest.raises(AllocationFailed) as raised:
            await allocate(world, Allocator(world.state), pending("a", OTHER))
        assert str(raised.value).endswith(
            "no result within 30 s: a driver that takes longer has to set asynchronous = True"
        )
        assert asyncio.get_running_loop().time() == pytest.approx(CALL_SECONDS, abs=1)
        assert free(world, Second.name, "other") == 4

    played(story, Second(seconds=CALL_SECONDS + 1))


class Hanging(Second):
    """What is behind it does not answer when something is released."""

    async def deallocate(self, uid: str) -> None:
        await asyncio.sleep(10 * CALL_SECONDS)


def test_giving_back_takes_no_longer_for_many_claims_than_for_one_if_a_driver_hangs() -> None:
    """What other drivers allocated for the same pod is given back after it."""

    async def story(_: World) -> None:
        await LimitedDriver(Hanging()).undo([f"uid-{number}" for number in range(4)])
        assert asyncio.get_running_loop().time() == pytest.approx(CALL_SECONDS, abs=1)

    played(story)


def test_what_a_driver_allocates_for_a_pod_that_ended_is_given_back() -> None:
    async def story(world: World) -> None:
        allocator = Allocator(world.state)
        allocating = asyncio.create_task(allocate(world, allocator, pending("a"), pending("b", OTHER)))
        await asyncio.sleep(1)
        allocator.abort(user("p").uid)
        with pytest.raises(Aborted):
            await allocating
        assert (free(world), free(world, Second.name, "other"), len(world.ledger)) == (4, 4, 0)

    played(story, TokensDriver(), Second(seconds=20))


def test_what_a_standalone_driver_recorded_meanwhile_counts() -> None:
    """The class was that driver's before; others may use the claim by now."""

    async def story(world: World) -> None:
        limited = a_class("other", Second.name, limits=[{"claims": 1}])
        allocator, claim = Allocator(world.state), pending("a", limited)
        allocating = asyncio.create_task(allocate(world, allocator, claim))
        await asyncio.sleep(1)
        recorded = a_holding(claim.name, uid=claim.uid, standalone=True, class_name="other")
        world.ledger.add(recorded)
        with pytest.raises(Busy):
            await allocating
        assert world.ledger.get(claim.uid) is recorded
        assert free(world, Second.name, "other") == 4
        assert world.ledger.limits.excess(limited, NAMESPACE, {"uid-new": 1})

    played(story, Second(seconds=5))


def test_a_timeout_of_the_drivers_own_is_a_failure_like_others() -> None:
    async def story(world: World) -> None:
        with pytest.raises(AllocationFailed, match="could not allocate on node node-1: the provider's"):
            await allocate(world, Allocator(world.state), pending("a", OTHER))

    played(story, Second(TimeoutError("the provider's")))


@pytest.mark.parametrize("failure", [None, RuntimeError("out of order")], ids=["allocated", "failed"])
def test_an_immediate_claim_is_allocated_for_nobody(failure: Exception | None) -> None:
    async def story(world: World) -> None:
        allocator, one = Allocator(world.state), pending("a", OTHER, count=2)
        assert one.claim is not None
        demand = demand_of(world.state.drivers, user("p"), [one])
        if failure is None:
            holding = await allocator.allocate_without_pod(one.claim, OTHER, demand, "node-1")
            assert (holding.pods, holding.immediate, holding.units) == ({}, True, 2)
            assert world.ledger.get(one.uid) is holding
        else:
            with pytest.raises(AllocationFailed):
                await allocator.allocate_without_pod(one.claim, OTHER, demand, "node-1")
            limited = a_class("other", limits=[{"claims": 1}])
            assert world.ledger.limits.excess(limited, NAMESPACE, {"uid-new": 1}) == ""

    played(story, Second(failure))


def test_a_pod_joins_all_of_what_is_allocated_or_nothing() -> None:
    async def story(world: World) -> None:
        allocator = Allocator(world.state)
        good, going = a_holding("good", "q"), a_holding("going", "q")
        for holding in (good, going):
            world.ledger.add(holding)
        both = [PodClaim(h.claim, h.claim, holding=h) for h in (good, going)]
        unreserving(going)
        with pytest.raises(Busy):
            allocator.join(POD, both)
        assert world.ledger.of_pod(user("p")) == []
        allocator.join(POD, both[:1])
        assert world.ledger.of_pod(user("p")) == [good]

    played(story)


def test_no_more_pods_join_than_kubernetes_allows() -> None:
    async def story(world: World) -> None:
        allocator = Allocator(world.state)
        full = a_holding("full", *(f"q{number}" for number in range(MAX_USERS)))
        with pytest.raises(Busy):
            allocator.join(POD, [PodClaim("full", "full", holding=full)])
        allocator.join(a_pod("q0"), [PodClaim("full", "full", holding=full)])

    played(story)


class Using(TokensDriver):
    """What it allocates uses the claim with the UID uid-used."""

    def uses(self, held: Held) -> Sequence[str]:
        return ["uid-used"]


@pytest.mark.parametrize("written", [Written.NO, Written.YES])
def test_what_is_gone_and_was_never_recorded_can_not_be_used(written: Written) -> None:
    """A new leader would not know of it. If its mirror shows it, pods may run with it."""

    async def story(world: World) -> None:
        world.ledger.add(a_holding("used", "other", written=written))
        allocator = Allocator(world.state)
        if written is Written.YES:
            await allocate(world, allocator, pending("a"))
            assert free(world) == 3
        else:
            with pytest.raises(AllocationFailed, match="which is gone"):
                await allocate(world, allocator, pending("a"))
            assert free(world) == 4

    played(story, Using())
