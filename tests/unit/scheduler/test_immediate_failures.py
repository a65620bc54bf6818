"""Drivers fail to allocate claims with allocationMode Immediate, or the write of the allocation fails."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.immediate_claims import is_free, says, shelves
from tests.unit.scheduler.shelf import Behaviour, failing, no_trouble, slow

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES
from parley.kube.client import ApiError, Call, Forbidden, Invalid, OutcomeUnknown
from parley.sdk import PermanentError

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def test_a_node_where_the_driver_fails_is_left_for_another(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, scores={"a": 1.0}, trouble=failing(RuntimeError("stuck"), "a"))
        await shelves(world, behaviour)
        await world.add_claim("now", "shelf", mode="Immediate")
        await world.settle()
        assert behaviour.allocated == ["a", "b"]
        assert await says(world) == ("True", "Allocated", "allocated on node b")

    play(scenario)


def test_failures_everywhere_are_told_and_tried_again_after_growing_pauses(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, trouble=failing(RuntimeError("stuck")))
        await shelves(world, behaviour)
        await world.add_claim("now", "shelf", mode="Immediate")
        await asyncio.sleep(3600)
        assert 15 < len(behaviour.allocated) < 30
        status, code, words = await says(world)
        node = behaviour.allocated[-1]
        assert (status, code) == ("False", "AllocationFailed")
        assert words == f"driver shelf.example.com could not allocate on node {node}: stuck"
        behaviour.trouble = no_trouble
        await asyncio.sleep(301)
        assert (await says(world))[0] == "True"

    play(scenario)


def test_a_node_where_the_driver_never_will_is_excluded_until_the_class_changes(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, trouble=failing(PermanentError("no such shelf")))
        await shelves(world, behaviour, onPermanentError="FailPod")
        await world.add_claim("now", "shelf", mode="Immediate")
        await world.settle()
        await asyncio.sleep(3600)
        assert sorted(behaviour.allocated) == ["a", "b"]
        status, code, words = await says(world)
        assert (status, code) == ("False", "NothingViable")
        assert words.startswith(
            "0 of 2 nodes are available: node a: claim now: driver shelf.example.com could not allocate on node "
            "a: no "
        )
        behaviour.trouble = no_trouble
        await world.client.patch(CLASSES, "shelf", {"scoreWeight": 2})
        await world.settle()
        assert (await says(world))[0] == "True"

    play(scenario)


def test_a_driver_that_takes_too_long_is_cut_off(play: Any) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=9, trouble=slow(40))
        await shelves(world, behaviour)
        await world.add_claim("now", "shelf", mode="Immediate")
        await asyncio.sleep(31)
        status, code, words = await says(world)
        assert (status, code) == ("False", "AllocationFailed")
        assert words.endswith("no result within 30 s: a driver that takes longer has to set asynchronous = True")

    play(scenario)


@pytest.mark.parametrize("happened", [True, False])
def test_a_record_of_unknown_outcome_is_settled_and_nothing_is_handed_out_twice(play: Any, happened: bool) -> None:
    async def scenario(world: World) -> None:
        lost: list[Call] = []

        def lose(call: Call) -> None:
            status = call.body.get("status") if isinstance(call.body, dict) else None
            if call.resource is CLAIMS and status and status.get("allocation") and len(lost) < 3:
                lost.append(call)
                raise OutcomeUnknown("the connection broke")

        hooks = {"after" if happened else "before": lose}
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), **hooks))
        await world.add_claim("now", mode="Immediate")
        await world.add_pod("other", "one")
        await world.settle()
        assert len(lost) == (1 if happened else 3)
        await is_free(world)
        assert await world.node_of("other") == ""

    play(scenario)


def test_a_record_that_the_api_server_refuses_is_told_and_holds_nothing(play: Any) -> None:
    async def scenario(world: World) -> None:
        refusing, refused = [True], [0]

        def refuse(call: Call) -> None:
            status = call.body.get("status") if isinstance(call.body, dict) else None
            if call.resource is CLAIMS and status and status.get("allocation") and refusing:
                refused[0] += 1
                raise Invalid(422, "Invalid", "status.allocation: too long")

        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=refuse))
        await world.add_claim("now", mode="Immediate")
        await asyncio.sleep(3600)
        assert 10 < refused[0] < 30
        words = "the API server refused the allocation: status.allocation: too long"
        assert await says(world) == ("False", "AllocationFailed", words)
        await world.add_pod("other", "one")
        await world.settle(30)
        assert await world.node_of("other") == "a"
        await world.delete_pod("other")
        refusing.clear()
        await asyncio.sleep(400)
        assert (await says(world))[0] == "True"

    play(scenario)


@pytest.mark.parametrize(
    "refusal", [Forbidden(403, "Forbidden", "exceeded quota"), ApiError(500, "InternalError", "a webhook failed")]
)
def test_a_claim_whose_built_in_claim_cannot_be_made_again_does_not_hold_up_the_line(
    play: Any, refusal: ApiError
) -> None:
    async def scenario(world: World) -> None:
        refused: list[Call] = []

        def refuse(call: Call) -> None:
            about = (call.verb, call.resource, call.name)
            if refusing and about == ("create", BUILTIN_CLAIMS, "first"):
                refused.append(call)
                raise refusal

        refusing: list[bool] = []
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(FaultClient(world.server.client(), before=refuse))
        await world.add_pod("p", "one")
        await world.settle()
        for name in ("first", "second"):
            await world.add_claim(name, mode="Immediate")
            await world.settle()
        refusing.append(True)
        # an administrator removes the finalizer, so that the deletion is not seen to begin
        await world.client.patch(BUILTIN_CLAIMS, "first", {"metadata": {"finalizers": None}}, "default")
        await world.client.delete(BUILTIN_CLAIMS, "first", "default")
        await world.settle()
        await world.delete_pod("p")
        await world.settle()
        assert refused
        assert await says(world, "second") == ("True", "Allocated", "allocated on node a")

    play(scenario)
