"""Two nodes with devices, in the namespace of these tests."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


NAMESPACE = "default"


async def two_nodes(world: World) -> None:
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=2)
    await world.add_class()
    await world.add_template()
    world.start_parley()
