"""A cluster for the page to show: pods that run and wait, embedded drivers and one outside, few nodes.

It is played in virtual time, so that it is the same each time, and can then be shown at any moment of it.
"""

from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.drivers import built_in

TRAINER = "trainer-3"
"""The pod that has most to tell."""


async def furnish(world: World) -> None:
    """Nodes and classes."""
    for name, devices, disk in (
        ("rack-1-a", 2, "ssd"),
        ("rack-1-b", 2, "ssd"),
        ("rack-2-a", 4, "hdd"),
        ("rack-2-b", 1, "hdd"),
        ("rack-3-a", 0, "hdd"),
        ("rack-3-b", 0, "hdd"),
    ):
        await world.add_node(name, devices, {"disk": disk})
    await world.add_class("gpu")
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    await world.add_class("fast-gpu", suitableNodes={"nodeSelectorTerms": [{"matchExpressions": [ssd]}]})
    await world.add_class("licence", driverName="tokens.parley.dev", parameters={"pool": 3})
    await add_shelf_class(world)
    await world.add_template("one-gpu")
    await world.add_template("two-gpus", count=2)
    await world.add_template("one-fast-gpu", "fast-gpu")
    await world.add_template("two-licences", "licence", count=2)


async def play(world: World) -> None:
    """What happened in the last minutes."""
    world.start_parley(drivers=built_in())
    world.start_driver(ShelfDriver(Behaviour(places={"rack-3-a": 2, "rack-3-b": 2})))
    await furnish(world)
    for name, templates in (
        ("trainer-1", ("two-gpus", "two-licences")),
        ("trainer-2", ("two-gpus",)),
        ("renderer-1", ("one-fast-gpu",)),
        ("renderer-2", ("one-fast-gpu",)),
        ("notebook-ada", ("one-gpu",)),
        (TRAINER, ("two-gpus", "two-licences")),
        ("renderer-3", ("one-fast-gpu",)),
        ("archive", ("one-gpu", "shelf")),
    ):
        await world.add_pod(name, *templates)
        await world.settle()
    await world.taint("rack-2-b", "maintenance", "NoSchedule")
    await world.settle()
