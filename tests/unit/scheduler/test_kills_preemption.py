"""The controller is killed at every write of a preemption, before and after the API server did it, and restarted.

Always the lowest pods that are needed are evicted and nobody else, and the pods that they were evicted for run.
"""

import pytest
from tests.support.containers import requesting
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play, Watch, killed_at_every_write

from parley.api.resources import PODS

pytestmark = pytest.mark.scheduling_paths("native", "extender")


async def story(world: World) -> None:
    """Three of four holders go, for one pod that asks for two devices and one that asks for one; they take their
    time."""
    await world.add_node("a", devices=2)
    await world.add_node("b", devices=2)
    await world.add_class(preemption="LowerPriority")
    await world.add_template("one")
    await world.add_template("two", count=2)
    for name, node, priority in (("low", "a", 1), ("lower", "a", 0), ("other", "b", 2), ("high", "b", 20)):
        await world.add_pod(name, "one", priority=priority, nodeSelector={"kubernetes.io/hostname": node})
    await world.settle()
    world.kubelets.stop("a")
    await world.add_pod("urgent", "two", priority=10)
    await world.settle(70)
    await world.add_pod("also", "one", priority=10)
    await world.settle(70)
    world.kubelets.start("a")
    await world.settle(70)


async def check(world: World) -> None:
    assert {pod.metadata.name: pod.spec.node_name for pod in (await world.client.list(PODS)).items} == {
        "urgent": "a",
        "also": "b",
        "high": "b",
    }
    assert all(count == 1 for count in (await world.devices()).values())
    assert sum((await world.devices()).values()) == 4


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing_in_the_end(play: Play, watcher: Watch, after: bool) -> None:
    killed_at_every_write(play, watcher, story, check, after=after, at_least=20)


async def crowded_story(world: World) -> None:
    """For one pod Parley evicts who has the device, and the scheduler who has the CPUs."""

    await world.add_node("a", devices=1)
    await world.add_class(preemption="LowerPriority")
    await world.add_template("one")
    await world.add_pod("low", "one", priority=1, containers=requesting(cpu="2"))
    await world.add_pod("ordinary", priority=2, containers=requesting(cpu="3"))
    await world.settle()
    world.kubelets.stop("a")
    await world.add_pod("urgent", "one", priority=10, containers=requesting(cpu="7"))
    await world.settle(70)
    world.kubelets.start("a")
    await world.settle(70)


async def check_crowded(world: World) -> None:
    (pod,) = (await world.client.list(PODS)).items
    assert (pod.metadata.name, pod.spec.node_name) == ("urgent", "a")
    assert await world.devices() == {("a", "gpu-0"): 1}


@pytest.mark.scheduling_paths("native")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_nor_does_one_where_the_scheduler_evicts_ordinary_pods_too(
    play: Play, watcher: Watch, after: bool
) -> None:
    killed_at_every_write(play, watcher, crowded_story, check_crowded, after=after, at_least=10)
