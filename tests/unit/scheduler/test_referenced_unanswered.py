"""Objects with parameters about which the API server does not answer, or of which a tenant names too many."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.scheduler.conftest import Scenario, World
from tests.unit.scheduler.references import (
    GRANTED,
    Refusing,
    put_claim,
    put_class,
    put_size,
    put_template,
)

from parley.api.resources import CLAIMS, CONFIG_MAPS, TEMPLATES
from parley.drivers.tokens import TokensDriver
from parley.kube.client import OutcomeUnknown

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Scenario], None]


def test_a_server_that_does_not_answer_about_one_object_stops_nobody_else(play: Play) -> None:
    async def scenario(world: World) -> None:
        class Hanging(Refusing):
            async def request(self, call: Any) -> bytes:
                if call.resource.plural == "configmaps" and call.name == "size":
                    await asyncio.Event().wait()
                return await super().request(call)

        client = Hanging(world)
        client.closed = False
        world.start_parley(client, drivers=[TokensDriver()])
        await world.add_node("node-1")
        await put_class(world)
        await put_template(world)
        await put_size(world, "count: 2")
        await put_size(world, "count: 1", "other", "else")
        await world.create(
            TEMPLATES,
            {"metadata": {"name": "inline"}, "spec": {"spec": {"resourceClassName": "licence"}}},
        )
        await world.add_pod("p", "one")
        await asyncio.sleep(1)
        await world.add_pod("q", "inline")
        await asyncio.sleep(10)
        assert await world.node_of("q") == "node-1"
        assert await world.node_of("p") == ""

    play(scenario)


def test_pods_get_in_after_a_time_in_which_the_server_answers_about_no_such_object(play: Play) -> None:
    """They wait for reads, one after the other, each of which takes its time to fail."""

    async def scenario(world: World) -> None:
        class Silent(Refusing):
            async def request(self, call: Any) -> bytes:
                if call.resource.plural == "configmaps" and self.closed:
                    await asyncio.sleep(10)
                    raise OutcomeUnknown("no answer")
                return await super().request(call)

        client = Silent(world)
        world.start_parley(client, drivers=[TokensDriver()])
        await world.add_node("node-1")
        await put_class(world, parameters={"pool": 100})
        for number in range(20):
            await put_size(world, "count: 1", f"size-{number}")
            await put_template(world, f"one-{number}", {**GRANTED, "name": f"size-{number}"})
            await world.add_pod(f"p-{number}", f"one-{number}")
        await asyncio.sleep(150)
        client.closed = False
        await asyncio.sleep(300)
        assert [number for number in range(20) if await world.node_of(f"p-{number}") == ""] == []

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_a_tenant_who_names_hundreds_of_missing_objects_is_kept_to_its_share(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = Refusing(world)
        client.closed = False
        world.start_parley(client, drivers=[TokensDriver()])
        await world.add_node("node-1")
        await put_class(world)
        for number in range(400):
            await put_claim(world, f"c{number}", parametersRef={**GRANTED, "name": f"none-{number}"})
        await asyncio.sleep(300)
        before = len(client.reads)
        other = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "size"},
            "data": {"parameters": "{}"},
        }
        await world.client.create(CONFIG_MAPS, other, "honest")
        spec = {"resourceClassName": "licence", "parametersRef": GRANTED, "allocationMode": "Immediate"}
        body = {
            "apiVersion": CLAIMS.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": "mine"},
            "spec": spec,
        }
        await world.client.create(CLAIMS, body, "honest")
        await asyncio.sleep(1)
        assert (await world.client.get(CLAIMS, "mine", "honest")).status.allocation is not None
        await asyncio.sleep(299)
        assert len(client.reads) - before < 300 * 5
        assert world.controller is not None
        assert len(world.controller.references) <= 257

    play(scenario)
