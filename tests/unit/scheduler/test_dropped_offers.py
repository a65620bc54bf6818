"""An API server that drops what makes an allocation an offer: its gate DRADeviceBindingConditions is off."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.killed import Play

from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.kube.client import BadRequest, Call, Client


class Dropping(FaultClient):
    """Answers late, so that schedulers have time to act on what was written. `dry_runs`: whether there are any."""

    dry_runs = True

    async def request(self, call: Call) -> bytes:
        if "dryRun" in call.query and not self.dry_runs:
            raise BadRequest(400, "BadRequest", "admission webhook does not support dry run")
        answer = await super().request(replace(call, body=_without_conditions(call.body)))
        if call.resource == BUILTIN_CLAIMS and call.writes and self.dry_runs:
            await asyncio.sleep(0.5)
        return answer


def _without_conditions(body: Any) -> Any:
    allocation = body.get("status", {}).get("allocation") if isinstance(body, dict) else None
    if not allocation:
        return body
    results = [
        {name: value for name, value in result.items() if not name.startswith("binding")}
        for result in allocation["devices"]["results"]
    ]
    kept = {**allocation, "devices": {**allocation["devices"], "results": results}}
    return {**body, "status": {**body["status"], "allocation": kept}}


async def begin(world: World, client: Client, **class_: Any) -> None:
    for node in ("a", "b", "c"):
        await world.add_node(node, devices=1)
    await world.add_class(**class_)
    await world.add_template()
    world.start_parley(client)
    await world.settle()


@pytest.mark.parametrize("dry_runs", [True, False])
def test_a_class_that_lets_the_scheduler_choose_is_served_without_offers(play: Play, *, dry_runs: bool) -> None:
    async def scenario(world: World) -> None:
        client = Dropping(world.server.client())
        client.dry_runs = dry_runs
        await begin(world, client, placement="Exact")
        for name in ("p", "q"):
            await world.add_pod(name, "one")
            await world.settle()

            assert (await world.pod(name)).status.phase == "Running"
            assert (await world.node_of(name), "gpu-0") in await world.devices()
        assert len([call for call in client.calls if "dryRun" in call.query]) == dry_runs

    play(scenario)


def test_where_the_scheduler_refuses_a_node_the_next_one_is_tried(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, Dropping(world.server.client()))
        labels = {"app": "grump"}
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        for node in ("a", "b"):
            spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
            await world.create(
                PODS, {"metadata": {"name": node, "namespace": "default", "labels": labels}, "spec": spec}
            )
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await world.add_pod("p", "one", affinity=affinity)
        await asyncio.sleep(120)

        assert await world.node_of("p") == "c"
        assert await world.devices() == {("c", "gpu-0"): 1}

    play(scenario)
