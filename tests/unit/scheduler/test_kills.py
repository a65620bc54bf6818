"""The controller is killed at every write of a scenario, before and after the API server did it, and restarted.

Whatever it had in memory is lost. Always every pod that can run ends up bound once, every claim allocated
once, no device held twice at any moment, and nothing left over when the pods are gone.
"""

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.endings import nothing_is_left
from tests.unit.scheduler.killed import Play, Watch, killed_at_every_write

from parley.api.resources import CLAIMS


async def story(world: World) -> None:
    """Two claims for one pod, a named claim, the exact way, a pod that waits for another's devices."""
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=2)
    await world.add_node("c", devices=1)
    await world.add_class()
    await world.add_class("exact", placement="Exact")
    await world.add_template()
    await world.add_template("offered", "exact")
    await world.add_claim("disk")
    await world.add_pod("two", "one", "one")
    await world.settle()
    await world.add_pod("named", claims=["disk"])
    await world.settle()
    await world.add_pod("exact", "offered")
    await world.settle()
    await world.add_pod("later", "one", "one")
    await world.settle()
    assert await world.node_of("later") == ""
    await world.delete_pod("two")
    await world.settle()


async def check(world: World) -> None:
    assert {name: bool(await world.node_of(name)) for name in ("named", "exact", "later")} == {
        "named": True,
        "exact": True,
        "later": True,
    }
    assert all(count == 1 for count in (await world.devices()).values())
    assert sum((await world.devices()).values()) == 4
    for name in ("named", "exact", "later"):
        assert (await world.scheduling(name)).spec.selected_node == await world.node_of(name)
        await world.delete_pod(name)
    await world.settle()
    await world.client.delete(CLAIMS, "disk", "default")
    await world.settle()
    await nothing_is_left(world)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Play, watcher: Watch, after: bool) -> None:
    killed_at_every_write(play, watcher, story, check, after=after, at_least=21)
