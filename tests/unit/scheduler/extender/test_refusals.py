"""What this path does not serve: such pods are refused with words that name the way that does, and never bound."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.resources import BUILTIN_CLAIMS, DEVICE_CLASSES, NODES, POD_SCHEDULINGS
from parley.drivers.device import DeviceDriver

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

REMEDY = "leave schedulerName out"
GROUP: Mapping[str, Any] = {"schedulingGroup": {"podGroupName": "gang"}}
EXTENDED: Mapping[str, Any] = {
    "containers": [
        {"name": "main", "image": "none", "resources": {"limits": {"example.com/fpga": "1"}}},
    ]
}


async def begin(world: World) -> None:
    await world.add_node("a", devices=2)
    await world.add_class()
    await world.add_template()
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "nics"}}]}}
    await world.create(BUILTIN_CLAIMS, {"metadata": {"name": "nic", "namespace": "default"}, "spec": spec})
    world.start_parley()


def condition(pod: Any) -> tuple[str, str]:
    return next((c.reason, c.message) for c in pod.status.conditions if c.type == "PodScheduled")


@pytest.mark.parametrize(
    ("templates", "claims", "spec", "named"),
    [
        (("one",), (), GROUP, "schedulingGroup"),
        (("one",), ("nic",), {}, "nic"),
        ((), ("nic",), {}, "nic"),
        (("one",), (), EXTENDED, "example.com/fpga"),
        ((), (), EXTENDED, "example.com/fpga"),
    ],
    ids=["gang", "mixed", "other driver", "extended resource", "plain extended resource"],
)
def test_what_this_path_does_not_serve_is_refused_and_told_where_to_go(
    play: Any, templates: tuple[str, ...], claims: tuple[str, ...], spec: Mapping[str, Any], named: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        fpga = {"metadata": {"name": "fpga"}, "spec": {"extendedResourceName": "example.com/fpga"}}
        await world.create(DEVICE_CLASSES, fpga)
        await world.settle()
        await world.add_pod("p", *templates, claims=claims, **spec)
        if spec == EXTENDED:
            # The model's in-tree filters count extended resources by the nodes' own: they refuse the pod already.
            answer = await world.ask("filter", await world.question("p", "a"))
            assert not answer["NodeNames"]
            (message,) = {*answer["FailedNodes"].values(), *answer["FailedAndUnresolvableNodes"].values()}
        else:
            await world.settle()
            reason, message = condition(await world.pod("p"))
            assert reason == "Unschedulable"
        assert named in message
        assert REMEDY in message
        await world.settle()
        assert await world.node_of("p") == ""
        assert world.calls.count["bind"] == 0
        calls = world.calls.count["filter"]
        await world.settle(600)
        assert world.calls.count["filter"] == calls

    play(scenario)


def test_an_extended_resource_that_nodes_have_themselves_is_served(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        fpga = {"metadata": {"name": "fpga"}, "spec": {"extendedResourceName": "example.com/fpga"}}
        await world.create(DEVICE_CLASSES, fpga)
        await world.add_node("b")
        allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", "example.com/fpga": "1"}
        await world.client.patch(NODES, "b", {"status": {"allocatable": allocatable}}, subresource="status")
        await world.settle()
        await world.add_pod("p", **EXTENDED)
        await world.settle()
        assert await world.node_of("p") == "b"

    play(scenario)


def test_a_pod_that_was_refused_is_served_by_the_other_path_under_another_scheduler(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("gang", "one", **GROUP)
        await world.settle()
        await world.add_pod("one", "one", schedulerName="default-scheduler", **GROUP)
        await world.settle()
        assert await world.node_of("gang") == ""
        assert await world.node_of("one") == "a"

    play(scenario)


def test_what_is_told_is_told_once(play: Any) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_pod("p", "one", claims=["nic"])
        await world.settle()
        for i in range(5):
            await world.add_node(f"n{i}")
            await world.settle()
        assert len(await world.events_on("p")) == 1
        assert DeviceDriver.name not in str(await world.events_on("p"))

    play(scenario)


@pytest.mark.parametrize(
    ("claim", "where"), [("nope", "Parley: ClaimNotFound, see the pod's events"), ("full", "podscheduling")]
)
def test_the_scheduler_names_what_is_there_to_be_seen(play: Any, claim: str, where: str) -> None:
    """A pod that only names claims which do not exist has no PodScheduling."""

    async def scenario(world: World) -> None:
        await begin(world)
        await world.add_claim("full", count=9)
        await world.add_pod("p", claims=[claim])
        await world.settle()
        _, message = condition(await world.pod("p"))
        assert where in message
        shown = (await world.client.list(POD_SCHEDULINGS, "default")).items
        assert bool(shown) == ("podscheduling" in message)

    play(scenario)
