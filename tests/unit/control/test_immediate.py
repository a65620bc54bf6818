"""Immediate claims are allocated at once and without a pod, or say in their condition what stands in the way."""

from collections.abc import Mapping

import pytest
from tests.support.faults import NumberedCall
from tests.unit.control.builders import NAMESPACE, TOKENS, Acting, World, a_class, played

from parley.api import reasons
from parley.api.conditions import ConditionUpdate
from parley.api.meta import Condition
from parley.api.models import ResourceClaim
from parley.api.resources import CLASSES
from parley.control.immediate import PAUSES
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.kube.cache import Key
from parley.kube.client import Invalid
from parley.sdk import Allocation, Held, PermanentError, Request

KEY: Key = (NAMESPACE, "c")


HELD = Held("uid-held", "node-1", (), {"pool": "licence", "node": "node-1", "count": 1})


class Faulty(TokensDriver):
    """Fails on the nodes that it is told of."""

    name = TOKENS

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        super().__init__()
        self.failures = dict(failures)
        self.tried: list[str] = []

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        self.tried.append(node)
        if failure := self.failures.get(node):
            raise failure
        return await super().allocate(request, node)


async def reconcile(world: World, acting: Acting) -> ResourceClaim:
    """Look at the claim, as `claims` does, with what the cache has; returns it as it is then."""
    await world.seen()
    claim = world.cluster.claim(KEY)
    assert claim is not None
    await acting.immediate.sync(claim, world.cluster.class_("licence"))
    await world.seen()
    return await world.the_claim()


def allocated(claim: ResourceClaim) -> Condition:
    return next(c for c in claim.status.conditions if c.type == reasons.ALLOCATED)


async def cluster(world: World, *nodes: str) -> Acting:
    """Nodes, a class of tokens, and an immediate claim of one."""
    await world.class_(parameters={"pool": 1, "scope": "Node"})
    for node in nodes:
        await world.node(node)
    claim = await world.claim(mode="Immediate")
    await world.records.claims.set_conditions(
        claim, ConditionUpdate(reasons.ACCEPTED, True, reasons.ACCEPTED, "all is known")
    )
    await world.seen()
    return Acting(world)


def test_the_claim_shows_its_allocation_and_where_it_is() -> None:
    async def story(world: World) -> None:
        claim = await reconcile(world, await cluster(world, "node-1"))
        assert claim.status.allocation is not None
        assert claim.status.driver_name == TOKENS
        assert (allocated(claim).status, allocated(claim).message) == ("True", "allocated on node node-1")
        (holding,) = world.ledger
        assert (holding.immediate, holding.node, holding.pods) == (True, "node-1", {})

    played(story)


def test_an_allocated_claim_is_left_alone() -> None:
    async def story(world: World) -> None:
        acting = await cluster(world, "node-1")
        await reconcile(world, acting)
        before = world.server.resource_version
        await reconcile(world, acting)
        assert world.server.resource_version == before

    played(story)


def test_what_is_allocated_and_not_recorded_is_recorded_at_the_next_look() -> None:
    async def story(world: World) -> None:
        acting = await cluster(world, "node-1")

        def refuse(call: NumberedCall) -> None:
            if call.writes:
                raise ConnectionError("cut off")

        world.before = refuse
        with pytest.raises(ConnectionError):
            await reconcile(world, acting)
        assert len(world.ledger) == 1
        world.before = lambda call: None
        assert (await reconcile(world, acting)).status.allocation is not None
        assert len(world.ledger) == 1

    played(story)


def test_where_no_node_will_do_the_condition_says_why_and_a_change_that_may_help_wakes_it() -> None:
    async def story(world: World) -> None:
        world.state.drivers[TOKENS].restore(HELD)
        acting = await cluster(world, "node-1")
        condition = allocated(await reconcile(world, acting))
        assert (condition.status, condition.reason) == ("False", reasons.NOTHING_VIABLE)
        assert condition.message == (
            "0 of 1 node is available: node node-1: claim c: 0 of 1 token of class licence free, 1 wanted. "
            "Remedy: free resources, request less, or add nodes that have what is requested"
        )
        acting.immediate.wake(("class", "other"))
        acting.immediate.wake(("driver", TOKENS), {"node-1"})
        assert acting.queued == 0
        await world.state.drivers[TOKENS].deallocate("uid-held")
        acting.immediate.wake(("driver", TOKENS), {"node-1"})
        assert acting.queued == 1

    played(story)


def test_a_full_limit_of_the_class_holds_it_back() -> None:
    async def story(world: World) -> None:
        acting = await cluster(world, "node-1")
        await world.admin.patch(CLASSES, "licence", {"limits": [{"claims": 0}]})
        condition = allocated(await reconcile(world, acting))
        assert condition.reason == reasons.LIMIT_REACHED
        acting.immediate.wake(("limit", "licence", NAMESPACE))
        assert acting.queued == 1

    played(story)


def test_what_failed_is_tried_again_after_a_growing_pause_elsewhere_first() -> None:
    driver = Faulty({"node-1": RuntimeError("out of order"), "node-2": RuntimeError("out of order")})

    async def story(world: World) -> None:
        acting = await cluster(world, "node-1", "node-2")
        claim = world.cluster.claim(KEY)
        class_ = world.cluster.class_("licence")
        assert claim is not None
        await acting.immediate.sync(claim, class_)
        await acting.immediate.sync(claim, class_)
        assert len(driver.tried) == 1, "it waits for the pause"
        assert acting.queue.statistics().delayed == 1
        condition = allocated(await world.the_claim())
        assert condition.reason == reasons.ALLOCATION_FAILED
        assert condition.message == (f"driver {TOKENS} could not allocate on node {driver.tried[0]}: out of order")
        await reconcile(world, acting)
        assert set(driver.tried) == {"node-1", "node-2"}
        assert PAUSES.delay(1) < PAUSES.delay(2)

    played(story, driver)


def test_a_node_where_the_driver_never_will_is_tried_once() -> None:
    driver = Faulty({"node-1": PermanentError("broken for good")})

    async def story(world: World) -> None:
        acting = await cluster(world, "node-1")
        assert allocated(await reconcile(world, acting)).reason == reasons.ALLOCATION_FAILED
        condition = allocated(await reconcile(world, acting))
        assert condition.reason == reasons.NOTHING_VIABLE
        assert f"driver {TOKENS} could not allocate on node node-1: broken for good" in condition.message
        assert driver.tried == ["node-1"]

    played(story, driver)


def test_a_change_of_the_class_voids_what_failed_before() -> None:
    driver = Faulty({"node-1": PermanentError("broken for good")})

    async def story(world: World) -> None:
        acting = await cluster(world, "node-1")
        await reconcile(world, acting)
        driver.failures.clear()
        await world.admin.patch(CLASSES, "licence", {"parameters": {"pool": 2}})
        assert (await reconcile(world, acting)).status.allocation is not None

    played(story, driver)


def test_an_allocation_that_the_api_server_refuses_is_given_back() -> None:
    async def story(world: World) -> None:
        acting, refused = await cluster(world, "node-1"), list[int]()

        def refuse_once(call: NumberedCall) -> None:
            if call.writes and not refused:
                refused.append(1)
                raise Invalid(422, "Invalid", "handles: too long")

        world.before = refuse_once
        condition = allocated(await reconcile(world, acting))
        assert condition.message == "the API server refused the allocation: handles: too long"
        assert len(world.ledger) == 0
        assert ("driver", TOKENS) in world.woken

    played(story)


@pytest.mark.parametrize("driver", ["outside.example.com", None])
def test_claims_of_drivers_outside_and_those_not_ready_are_left_alone(driver: str | None) -> None:
    async def story(world: World) -> None:
        await world.node("node-1")
        claim = await world.claim(mode="Immediate")
        await Acting(world).immediate.sync(claim, a_class(driver=driver) if driver else None)
        assert world.writes == []
        assert len(world.ledger) == 0

    played(story)
