"""The controller is killed at every write while claims fail or start over, before and after the server did it.

In the end each has failed, or is on another node, with its pod, and what it had on the lost one is removed when
that is back; no device is held twice at any moment.
"""

import asyncio

import pytest
from tests.unit.kills import Death, Executioner, at_every_write
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play, Watch
from tests.unit.scheduler.removing import Removals
from tests.unit.scheduler.test_stranded import condition, cordon, uncordon, untaint
from tests.unit.scheduler.test_stranded_ways import AFTER, FAIL, KEEP, RECREATE, Settling, out_of_service

from parley.api.resources import CLAIM_RELEASES
from parley.kube.client import Client
from parley.sdk import Stranded


class Leaving(Settling):
    """Leaves something on nodes, as workspaces do."""

    leaves_data = True


async def story(world: World, lose: str) -> str:
    """A claim is kept on a node that is then lost for long, while a pod waits for it. Returns that node."""
    for node in ("a", "b"):
        await world.add_node(node, devices=1)
    await world.add_class(whenUnused={"keepSeconds": KEEP})
    await world.add_claim("disk")
    await world.add_pod("first", claims=["disk"])
    await world.settle()
    first = await world.node_of("first")
    await world.delete_pod("first")
    await world.settle()
    await (cordon if lose == "cordoned" else out_of_service_and_down)(world, first)
    await world.add_pod("next", claims=["disk"])
    await asyncio.sleep(2 * AFTER)
    await world.settle()
    await (uncordon if lose == "cordoned" else come_back)(world, first)
    await world.settle()
    return first


async def out_of_service_and_down(world: World, node: str) -> None:
    await out_of_service(world, node)
    world.kubelets.stop(node)


async def come_back(world: World, node: str) -> None:
    await untaint(world, node)
    world.kubelets.start(node)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("way", "lose"), [(FAIL, "cordoned"), (RECREATE, "lost")], ids=["fails", "starts over"])
def test_a_kill_at_any_write_changes_nothing(
    play: Play, watcher: Watch, way: Stranded, lose: str, after: bool
) -> None:
    def start(world: World, client: Client | None) -> asyncio.Task[None]:
        return world.start_parley(client, drivers=[Leaving(way)])

    async def life(world: World, death: Death) -> int:
        watching = watcher(world)
        async with Executioner(world, lambda client: start(world, client), death) as executioner:
            removals = Removals(world)
            first = await story(world, lose)
        watching.stop()
        assert watching.faults == []
        claim, node = await world.claim("disk"), await world.node_of("next")
        assert (condition(claim, "Failed") is not None) is (way == FAIL)
        assert node == ("" if way == FAIL else ({"a", "b"} - {first}).pop())
        held = {where for where, _ in await world.devices()}
        assert held == (set() if way == FAIL else {node}), "what is kept without users shows in the claim alone"
        assert claim.status.allocation is not None
        assert removals.done == ([] if way == FAIL else [("disk", first)]), "once, when the node is back"
        assert (await world.client.list(CLAIM_RELEASES)).items == ()
        return executioner.writes

    at_every_write(play, life, after=after, at_least=10)
