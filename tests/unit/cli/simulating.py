"""A dump of a cluster, and the command that simulates it."""

from pathlib import Path
from typing import Any

import orjson
from tests.unit.cli.serving import KINDS
from tests.unit.scheduler.conftest import World
from typer.testing import CliRunner, Result

from parley.cli.main import app

Objects = list[dict[str, Any]]


async def stopped(world: World) -> Objects:
    """What there is of the kinds that a dump has."""
    await world.stop()
    return [stored.body for kind in KINDS for stored in world.server.store.collection(kind).objects.values()]


async def keeping(pod: str) -> World:
    """A node with one device, which a claim has that is kept without users, and the pod that uses it."""
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class(whenUnused={"keepSeconds": 3600})
    await world.add_template("one")
    await world.add_claim("disk")
    await world.add_pod(pod, claims=["disk"])
    await world.settle()
    return world


def as_dump(path: Path, objects: Objects) -> None:
    """As kubectl lists them."""
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


async def a_cluster() -> Objects:
    """Two nodes with a device each in use, a claim of its own that outlives its pod, and a pod that waits."""
    world = World()
    world.start_kubernetes()
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_node("b", 2)
    await world.add_class()
    await world.add_template("one")
    await world.add_claim("mine")
    await world.add_claim("kept", mode="Immediate")
    await world.settle()
    await world.add_pod("first", "one")
    await world.add_pod("named", claims=["mine"])
    await world.settle()
    await world.add_pod("done", "one")
    await world.settle()
    await world.finish_pod("done")
    await world.add_pod("waits", "one")
    await world.settle()
    return await stopped(world)


def simulate(*arguments: object, command: Any = app) -> Result:
    return CliRunner().invoke(command, ["simulate", *map(str, arguments)])


def outcome(*arguments: object) -> dict[str, tuple[str | None, list[str]]]:
    result = simulate("-o", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    pods = orjson.loads(result.stdout)["items"]
    return {pod["name"]: (pod["node"], [d for claim in pod["claims"] for d in claim["devices"]]) for pod in pods}


def bound(objects: Objects) -> dict[str, str]:
    pods = [body for body in objects if body["kind"] == "Pod" and body.get("status", {}).get("phase") == "Running"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
