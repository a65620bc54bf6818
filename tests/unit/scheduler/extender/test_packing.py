"""What a second scheduler is answered about pods whose class prefers nodes by what is left there."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.test_packing import Play, begin

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


@pytest.mark.parametrize(("prefer", "scores"), [("Pack", (10, 5, 3)), ("Spread", (3, 5, 10))])
def test_a_scheduler_that_may_choose_is_sent_scores(play: Play, prefer: str, scores: tuple[int, int, int]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 2, "c": 4}, prefer=prefer)
        preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        await world.add_pod("p", "one", schedulerName="parley-away", affinity=affinity)
        await world.settle(2)
        question = await world.question("p", *"abc")
        assert sorted((await world.ask("filter", question))["NodeNames"]) == ["a", "b", "c"]
        sent = {one["Host"]: one["Score"] for one in await world.ask("prioritize", question)}
        assert sent == dict(zip("abc", scores, strict=True))

    play(scenario)


def test_a_packed_pod_is_given_one_node_which_the_next_one_is_not_promised(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 2, "c": 4})
        answers = []
        for name in ("p", "q", "r", "s"):
            await world.add_pod(name, "one", schedulerName="parley-away")
        await world.settle(2)
        for name in ("p", "q", "r", "s"):
            answers.append((await world.ask("filter", await world.question(name, *"abc")))["NodeNames"])
        assert answers == [["a"], ["b"], ["b"], ["c"]]

    play(scenario)


def test_a_packed_pod_that_is_not_bound_to_its_node_is_given_each_other_one(play: Play) -> None:
    """Another extender, which the scheduler asks after Parley, may reject it."""

    async def scenario(world: World) -> None:
        await begin(world, {"a": 1, "b": 2, "c": 4})
        await world.add_pod("p", "one", schedulerName="parley-away")
        await world.settle(2)
        question, answers = await world.question("p", *"abc"), []
        for _ in range(5):
            answers += (await world.ask("filter", question))["NodeNames"]
            await world.settle(2)
        assert answers == ["a", "b", "c", "a", "b"]

    play(scenario)
