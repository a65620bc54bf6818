"""What is explained about pods that run and wait, word by word: a whole day in one cluster."""

import asyncio
from pathlib import Path

from tests.support.kubectl_table import kubectl_table
from tests.unit.explain.conftest import Play, explained, text_of
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.resources import NODES, POD_SCHEDULINGS
from parley.drivers import built_in

GOLDEN = Path(__file__).parent / "explanations.txt"


async def a_day(world: World) -> dict[str, str]:
    world.start_parley(drivers=built_in())
    told: dict[str, str] = {}

    async def ask(title: str, pod: str, width: int | None = None) -> None:
        await world.settle()
        told[title] = text_of(await explained(world, pod), width)

    await world.add_node("a", 2)
    await world.add_node("b", 1, {"disk": "ssd"})
    await world.add_node("c")
    await world.add_class()
    await world.add_template("one")
    await world.add_template("two", count=2)
    await world.add_template("four", count=4)
    await world.add_class("licences", driverName="tokens.parley.dev", parameters={"pool": 3})
    await world.add_template("licence", "licences", count=2)
    await world.add_claim("shared")
    await add_shelf_class(world)

    await world.add_pod("runs", "two", "licence")
    await ask("a pod that runs", "runs")
    await world.add_pod("other", claims=["shared"])
    await world.settle()
    await world.add_pod("next", "one")
    await ask("everything is in use", "next")
    await world.add_pod("after", "two")
    await ask("somebody waits longer, on a narrow terminal", "after", 60)
    await world.add_pod("huge", "four")
    await ask("nothing would help", "huge")
    await world.add_pod("same", claims=["shared"])
    await ask("the claim is in use", "same")
    await world.add_pod("picky", "one", nodeSelector={"disk": "hdd"})
    await ask("no node comes into question", "picky")
    await world.add_pod("licensed", "licence")
    await ask("a pool is empty", "licensed")
    await world.add_pod("silent", "shelf")
    await asyncio.sleep(100)
    await ask("a driver does not answer", "silent")
    told["kubectl get podschedulings"] = await table(world)
    world.start_driver(ShelfDriver(Behaviour(alternatives=("c",))))
    await world.add_pod("mixed", "one", "shelf")
    await ask("a standalone driver has other ideas", "mixed")
    await world.client.patch(NODES, "b", {"spec": {"unschedulable": True}})
    await world.delete_pod("other")
    await ask("a node is cordoned", "next")
    return told


async def table(world: World) -> str:
    """By name, as the API server lists them."""
    bodies = (await world.client.list(POD_SCHEDULINGS.untyped())).items
    return kubectl_table(POD_SCHEDULINGS, sorted(bodies, key=lambda body: body["metadata"]["name"]), world.clock())


def test_a_day(play: Play) -> None:
    """To accept a change: remove explanations.txt, run this test twice."""

    async def scenario(world: World) -> None:
        told = await a_day(world)
        text = "\n".join(f"### {title}\n{words}" for title, words in told.items())
        if not GOLDEN.exists():
            GOLDEN.write_text(text)
        assert text == GOLDEN.read_text()

    play(scenario)
