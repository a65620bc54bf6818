"""A node with two small devices, which pods use."""

from tests.unit.scheduler.conftest import World

from parley.drivers import built_in


async def two_small_ones_on(world: World, node: str) -> None:
    """A node with two devices, each held by a pod of its own."""
    world.start_parley(drivers=built_in())
    await world.add_node(node, 2)
    await world.add_class()
    await world.add_template("one")
    await world.add_template("two", count=2)
    await world.add_pod("left", "one")
    await world.add_pod("right", "one")
    await world.settle()
