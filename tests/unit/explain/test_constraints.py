"""Where a pod's volumes are, and what DRA drivers allocate of its requests, counts as for the controller."""

from typing import Any

import pytest
from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.scheduler.conftest import World
from tests.unit.scheduler.test_volumes import tied_to_a_full_node
from tests.unit.web.refusing import Refusing, forbidden

from parley.api import reasons
from parley.api.resources import DEVICE_CLASSES
from parley.cli.explain import _Question
from parley.explain.explaining import explain
from parley.explain.model import Explanation
from parley.kube.client import Call

ELSEWHERE = "the volume of PersistentVolumeClaim data can't be used there"


def fits(told: Explanation) -> dict[str, str]:
    return {row.node: row.fit for row in told.nodes}


@pytest.mark.parametrize("name", ["p", ""], ids=["one pod", "all that wait"])
def test_a_pod_whose_volume_is_elsewhere(play: Play, name: str) -> None:
    async def scenario(world: World) -> None:
        await tied_to_a_full_node(world)

        (told,) = (await _Question("default", name, False, lambda _: True).ask(world.client)).explanations

        assert fits(told) == {"a": ELSEWHERE, "b": ""}
        assert helps(told)[0].startswith("node b is free when pod default/other ends")
        assert not any("would be viable now" in text for text in helps(told))

    play(scenario)


def test_who_may_not_read_volumes_gets_what_the_controller_recorded(play: Play) -> None:
    async def scenario(world: World) -> None:
        await tied_to_a_full_node(world)

        def refused(call: Call) -> Exception | None:
            return forbidden(call) if call.resource.plural == "persistentvolumes" else None

        told = await explain(Refusing(world.server.client(), refused), world.clock(), "default", "p")

        assert "persistentvolumes is forbidden at the cluster scope" in told.unread
        assert fits(told) == {"b": ""}
        assert helps(told) == []
        assert ELSEWHERE in told.message

    play(scenario)


def requesting(resource: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "none", "resources": {"requests": {resource: "1"}}}]}


@pytest.mark.parametrize("classes", [[], ["other/one"], ["example.com/fpga"]])
def test_an_extended_resource_that_no_node_has(play: Play, classes: list[str]) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        for name in classes:
            body = {"metadata": {"name": "fpga"}, "spec": {"extendedResourceName": name}}
            await world.create(DEVICE_CLASSES, body)
        await world.add_pod("p", "one", **requesting("example.com/fpga"))
        await world.settle()

        told = await explained(world, "p")

        scheduler = "" if "example.com/fpga" in classes else "too little example.com/fpga left"
        assert fits(told) == {"a": scheduler}
        assert (told.code == reasons.NO_CANDIDATES) is bool(scheduler)
        assert [text for text in helps(told) if "would be viable now" in text] == []

    play(scenario)
