"""A cluster with one running pod, and events about pods."""

from typing import Any

from tests.unit.scheduler.conftest import World

from parley.api.resources import EVENTS

NOW = "2026-01-01T12:00:00Z"


async def one_runs(world: World) -> None:
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template("one")
    await world.add_pod("runs", "one")
    await world.settle()


async def event(world: World, pod: str, reason: str, note: str, **more: Any) -> None:
    uid = (await world.pod(pod)).metadata.uid
    regarding = {"kind": "Pod", "namespace": "default", "name": pod, "uid": uid}
    body = {"metadata": {"generateName": "e-"}, "reason": reason, "note": note, "type": "Warning", **more}
    await world.client.create(EVENTS, {**body, "regarding": regarding}, "default")
