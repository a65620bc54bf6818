"""A named claim goes, and another one takes its name, while a driver allocates the former."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.disks import Disks, prepare
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, PODS, TEMPLATES
from parley.kube.client import Call, Client, OutcomeUnknown

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


@pytest.mark.scheduling_paths("native", "extender")
def test_what_comes_of_that_is_given_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        behaviour = Behaviour(other=1, trouble=slow(10))
        driver = ShelfDriver(behaviour)
        for node in ("a", "b"):
            await world.add_node(node)
        await add_shelf_class(world)
        world.start_parley(drivers=[driver])
        await world.add_claim("disk", "shelf")
        await world.settle()
        await world.add_pod("p", claims=["disk"])
        await asyncio.sleep(5)
        await world.client.delete(CLAIMS, "disk", "default")
        await asyncio.sleep(1)
        await world.add_claim("disk", "shelf")
        await world.settle()
        claim = await world.claim("disk")
        assert await world.node_of("p")
        assert [holding.uid for holding in world.ledger] == list(driver.held) == [claim.metadata.uid]
        assert [user.name for user in claim.status.reserved_for] == ["p"]

    play(scenario)


class ForcedAwayAtBinding(Client):
    """Bindings, and reads of pods, get no answer for some seconds. When that begins, an administrator forces the
    claim away, and makes it again."""

    def __init__(self, client: Client, again: Callable[[], Awaitable[None]]) -> None:
        super().__init__(client)
        self._again = again
        self._until: float | None = None

    async def request(self, call: Call) -> bytes:
        now = asyncio.get_running_loop().time()
        if call.subresource == "binding" and self._until is None:
            self._until = now + 5
            await self._again()
        is_of_pod = call.subresource == "binding" or (call.verb == "get" and call.resource.plural == PODS.plural)
        if is_of_pod and self._until is not None and now < self._until:
            raise OutcomeUnknown("no answer")
        return await super().request(call)


@pytest.mark.scheduling_paths("extender")
def test_a_pod_that_was_not_bound_does_not_keep_what_a_claim_had_that_was_forced_away(play: Play) -> None:
    """Its built-in claim is not gone before that is released, and the new claim of the name waits for that."""

    async def scenario(world: World) -> None:
        async def again() -> None:
            await world.client.delete(CLAIMS, "disk", "default")
            await world.client.patch(CLAIMS, "disk", {"metadata": {"finalizers": None}}, "default")
            await world.add_claim("disk", "shelf")
            await asyncio.sleep(1)

        await world.add_node("a")
        await add_shelf_class(world)
        client = ForcedAwayAtBinding(world.server.client(), again)
        world.start_parley(client, drivers=[ShelfDriver(Behaviour(other=2))])
        await world.add_claim("disk", "shelf")
        await world.add_pod("p", claims=["disk"])
        await world.settle()
        claim = await world.claim("disk")
        assert await world.node_of("p") == "a"
        assert [holding.uid for holding in world.ledger] == [claim.metadata.uid]

    play(scenario)


class SlowReads(Client):
    """Reads of single pods take some seconds."""

    async def request(self, call: Call) -> bytes:
        if call.verb == "get" and call.resource.plural == PODS.plural:
            await asyncio.sleep(3)
        return await super().request(call)


def test_a_pod_that_loses_a_claim_that_was_forced_away_does_not_take_up_the_room_that_it_needs(play: Play) -> None:
    """Its scheduler has yet to bind it, and the node has room for it once. The time to bind it begins again."""

    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world)
        behaviour = Behaviour(other=1)
        world.start_parley(SlowReads(world.server.client()), drivers=[ShelfDriver(behaviour)])
        await world.add_claim("disk", "shelf")
        await world.add_pod("p", claims=["disk"], containers=requesting(cpu="5"), schedulerName="nobody")
        await asyncio.sleep(200)
        await world.force_away("disk")
        await world.add_claim("disk", "shelf")
        await asyncio.sleep(250)
        claim = await world.claim("disk")
        assert [holding.uid for holding in world.ledger] == [claim.metadata.uid]
        assert [user.name for user in claim.status.reserved_for] == ["p"]
        assert behaviour.calls["allocate"] == 2

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True], ids=["same leader", "new leader"])
def test_a_device_stays_a_running_pods_although_a_standalone_driver_allocated_the_next_claim_of_the_name(
    play: Play, restarted: bool
) -> None:
    """The pod's own claim was forced away, and its built-in claim is the only record of that. The next claim is an
    immediate one, which its driver allocates unasked."""

    async def scenario(world: World) -> None:
        await prepare(world, Disks("a"), nodes="a")
        await world.add_claim("mine")
        await world.add_pod("old", claims=["mine"])
        await world.settle()
        await world.client.delete(CLAIMS, "mine", "default")
        await world.client.patch(CLAIMS, "mine", {"metadata": {"finalizers": None}}, "default")
        await world.add_claim("mine", "disk", mode="Immediate")
        await world.settle()
        assert (await world.claim("mine")).status.allocation is not None
        if restarted:
            await world.crash()
            world.start_parley()
        await world.add_pod("new", "one")
        await world.settle()
        assert await world.node_of("new") == ""
        await world.delete_pod("old")
        await world.add_pod("next", claims=["mine"])
        await world.settle()
        assert await world.node_of("new") == await world.node_of("next") == "a"
        assert len(world.ledger) == 2

    play(scenario)


@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_what_is_left_of_a_claim_that_was_deleted_without_its_dependents_takes_no_name(
    play: Play, used: bool
) -> None:
    """`kubectl delete --cascade=orphan`: the garbage collector takes the owner out, and deletes nothing."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley()
        await world.add_claim("disk")
        await world.settle()
        if used:
            await world.add_pod("first", claims=["disk"])
            await world.settle()
        orphaned = {"metadata": {"ownerReferences": None}}
        await world.client.patch(BUILTIN_CLAIMS, "disk", orphaned, "default")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.settle()
        if used:
            await world.finish_pod("first")
            await world.settle()
        assert await world.mirror("disk") is None
        await world.add_claim("disk")
        await world.add_pod("second", claims=["disk"])
        await world.settle()
        assert (await world.pod("second")).status.phase == "Running"

    play(scenario)


def test_nor_is_it_in_the_way_of_a_claim_that_is_there_at_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        world.start_parley()
        await world.add_claim("disk")
        await world.settle()
        await world.crash()
        orphaned = {"metadata": {"ownerReferences": None}}
        await world.client.patch(BUILTIN_CLAIMS, "disk", orphaned, "default")
        await world.client.delete(BUILTIN_CLAIMS, "disk", "default")
        await world.client.patch(CLAIMS, "disk", {"metadata": {"finalizers": None}}, "default")
        await world.client.delete(CLAIMS, "disk", "default")
        await world.add_claim("disk")
        world.start_parley()
        await world.add_pod("second", claims=["disk"])
        await world.settle()
        assert (await world.pod("second")).status.phase == "Running"

    play(scenario)


async def _orphaned(world: World) -> None:
    """`kubectl delete prtemplate one --cascade=orphan`."""
    orphaned = {"metadata": {"ownerReferences": None}}
    await world.client.patch(BUILTIN_TEMPLATES, "one", orphaned, "default")
    await world.client.delete(TEMPLATES, "one", "default")


@pytest.mark.parametrize("led", [True, False], ids=["led", "unled"])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "later"])
def test_what_is_left_of_a_template_that_was_deleted_without_its_dependents_takes_no_name(
    play: Play, at_once: bool, led: bool
) -> None:
    """Pods of the new template get what that says, not what the former one did."""

    async def scenario(world: World) -> None:
        await world.add_node("a", devices=2)
        await world.add_class()
        await world.add_template("one", count=1)
        world.start_parley()
        await world.settle()
        if not led:
            await world.crash()
        await _orphaned(world)
        if not at_once:
            if not led:
                world.start_parley()
            await world.settle()
            assert not (await world.client.list(BUILTIN_TEMPLATES, "default")).items
        await world.add_template("one", count=2)
        if at_once and not led:
            world.start_parley()
        await world.settle()
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "a"
        assert len(await world.devices()) == 2

    play(scenario)


@pytest.mark.scheduling_paths("native", "extender")
def test_a_pod_is_told_that_its_template_is_gone_also_while_the_built_in_one_goes(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        await world.add_node("a", devices=1)
        await world.add_template("one")
        world.start_parley()
        await world.settle()
        await world.stop_claim_controller()
        finalizers = {"metadata": {"finalizers": ["example.com/slow"]}}
        await world.client.patch(BUILTIN_TEMPLATES, "one", finalizers, "default")
        await world.client.delete(TEMPLATES, "one", "default")
        await world.add_pod("p", "one")
        await world.settle()
        await world.client.patch(BUILTIN_TEMPLATES, "one", {"metadata": {"finalizers": None}}, "default")
        await world.settle()
        told = [note for reason, note in await world.events_on("p") if reason == "ClaimNotFound"]
        (why,) = [note.partition(":")[0] for note in told]
        assert why == "template default/one of claim 'gpu-0' does not exist"
        await world.add_template("one")
        world.start_claim_controller()
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)
