"""An exclusive named claim goes from pod to pod in the order in which they came, whatever is looked at when."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.trouble import Rates, TroubleClient
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, NODES, PODS
from parley.kube.client import Call, Client, NotFound
from parley.kube.informer import Informer

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


class Served:
    """Whom the claim was reserved for, one after the other."""

    def __init__(self, world: World, claim: str = "mine") -> None:
        self.pods: list[str] = []
        self._claim = claim
        self.task = asyncio.create_task(Informer(world.client, BUILTIN_CLAIMS, on_change=self._changed).run())

    def _changed(self, _: BuiltinClaim | None, now: BuiltinClaim | None) -> None:
        for user in now.status.reserved_for if now is not None and now.metadata.name == self._claim else ():
            if user.name not in self.pods:
                self.pods.append(user.name)


async def begin(world: World, behaviour: Behaviour, trouble: TroubleClient | None = None) -> Served:
    await world.add_node("a")
    await add_shelf_class(world)
    await world.add_claim("mine", "shelf")
    world.start_parley(trouble, drivers=[ShelfDriver(behaviour)])
    await world.settle(5)
    return Served(world)


async def end(world: World, name: str, how: str) -> None:
    try:
        await (world.finish_pod(name) if how == "finishes" else world.delete_pod(name))
    except NotFound:
        pass  # the test ended it before


async def disturb(world: World, chance: random.Random, pods: int) -> None:
    """Something that makes the controller look at pods that have no turn."""
    match chance.randrange(3):
        case 0:
            await world.client.patch(NODES, "a", {"metadata": {"labels": {"turn": str(chance.random())}}})
        case 1:
            await world.client.patch(
                BUILTIN_CLAIMS, "mine", {"metadata": {"labels": {"x": str(chance.random())}}}, "default"
            )
        case _:
            try:
                status = {"status": {"nominatedNodeName": f"n{chance.randrange(99)}"}}
                name = f"p{chance.randrange(pods)}"
                await world.client.patch(PODS, name, status, "default", subresource="status")
            except NotFound:
                pass  # it has yet to come, or is gone


@example(8, 1)
@example(8, 7)
@given(st.integers(2, 9), st.integers(0, 2**16))
@settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pods_are_served_in_the_order_in_which_they_came(play: Play, pods: int, seed: int) -> None:
    chance = random.Random(seed)

    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=1, trouble=lambda _: asyncio.sleep(chance.choice((0, 0, 0.3))))
        rates = Rates(slow=0.4, late=0.3, slow_seconds=0.5)
        served = await begin(world, behaviour, TroubleClient(world.server.client(), chance, rates))
        came = 0
        for _ in range(1000):
            if len(served.pods) == pods:
                break
            if came < pods and chance.random() < 0.5:
                await world.add_pod(f"p{came}", claims=["mine"])
                came += 1
            if served.pods and chance.random() < 0.4:
                await end(world, served.pods[-1], chance.choice(("finishes", "is deleted")))
            if chance.random() < 0.5:
                await disturb(world, chance, pods)
            await asyncio.sleep(chance.choice((0.001, 0.01, 0.1, 1)))
        assert served.pods == [f"p{i}" for i in range(pods)]

    play(scenario)


def test_a_pod_that_can_not_be_served_keeps_nobody_out(play: Play) -> None:
    async def scenario(world: World) -> None:
        served = await begin(world, Behaviour(other=1))
        await world.add_pod("first", claims=["mine"])
        await world.settle()
        await world.add_pod("nowhere", claims=["mine"], nodeSelector={"no": "node"})
        await world.add_pod("last", claims=["mine"])
        await world.settle()
        await world.delete_pod("first")
        await world.settle()
        assert served.pods == ["first", "last"]

    play(scenario)


@pytest.mark.parametrize("trouble", ["fails", "is aborted"])
def test_who_waits_while_a_driver_allocates_is_next_when_nothing_comes_of_it(play: Play, trouble: str) -> None:
    async def scenario(world: World) -> None:
        jams = None if trouble == "is aborted" else RuntimeError("jammed")
        behaviour = Behaviour(other=1, trouble=slow(5, jams))
        served = await begin(world, behaviour)
        for name in ("first", "second", "third"):
            await world.add_pod(name, claims=["mine"])
            await asyncio.sleep(1)
        assert behaviour.calls["allocate"] == 1
        behaviour.trouble = slow(0)
        if trouble == "is aborted":
            await world.delete_pod("first")
        await world.settle()
        assert served.pods == ["second"]

    play(scenario)


class SlowEvents(Client):
    """Writes events slowly."""

    async def request(self, call: Call) -> bytes:
        if call.resource.plural == "events":
            await asyncio.sleep(2)
        return await super().request(call)


def test_a_pod_that_is_kept_out_by_another_claim_from_now_on_lets_the_next_one_have_its_turn(play: Play) -> None:
    """It is looked at late, when the claim that both name is there and the other pod has waited for it."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world)
        world.start_parley(SlowEvents(world.server.client()), drivers=[ShelfDriver(Behaviour(other=1))])
        await world.settle(5)
        await world.add_pod("first", claims=["mine", "missing"])
        await asyncio.sleep(1)
        await world.add_claim("mine", "shelf")
        await asyncio.sleep(0.5)
        await world.add_pod("last", claims=["mine"])
        await world.settle()
        assert await world.node_of("last") == "a"

    play(scenario)
