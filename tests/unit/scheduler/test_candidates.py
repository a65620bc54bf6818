"""How many nodes are asked about: few where any will do, more where a driver prefers some."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parley.drivers.device import DeviceDriver
from parley.negotiation.rounds import DEFAULT_CANDIDATES, FIRST_CANDIDATES
from parley.sdk import Driver, Request

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

NODES = [f"node-{number}" for number in range(FIRST_CANDIDATES + 4)]


class PrefersOne(DeviceDriver):
    """Devices are best on the last node."""

    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        return {node: 1.0 for node in nodes if node == NODES[-1]}


async def alike_nodes(world: World, driver: Driver[Any, Any]) -> None:
    for node in NODES:
        await world.add_node(node, devices=2)
    await world.add_class()
    await world.add_template()
    world.start_parley(drivers=[driver])


def test_few_nodes_are_asked_about_when_all_are_equally_good(play: Any) -> None:
    async def scenario(world: World) -> None:
        await alike_nodes(world, DeviceDriver())
        await world.add_pod("p", "one")
        await world.settle()
        scheduling = await world.scheduling("p")
        assert len(scheduling.spec.candidate_nodes) == FIRST_CANDIDATES
        assert scheduling.spec.selected_node == scheduling.spec.candidate_nodes[0]

    play(scenario)


def test_a_driver_that_prefers_a_node_is_asked_about_more(play: Any) -> None:
    async def scenario(world: World) -> None:
        await alike_nodes(world, PrefersOne())
        for pod in ("p", "q"):
            await world.add_pod(pod, "one")
        await world.settle()
        assert [await world.node_of(pod) for pod in ("p", "q")] == [NODES[-1]] * 2
        scheduling = await world.scheduling("p")
        assert len(scheduling.spec.candidate_nodes) == len(NODES) <= DEFAULT_CANDIDATES

    play(scenario)
