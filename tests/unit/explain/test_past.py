"""What was reported while a pod waited, once it is bound: it is over, and reads so."""

import pytest
from tests.unit.explain.conftest import Play, explained, said
from tests.unit.explain.waiting_pods import event
from tests.unit.scheduler.conftest import World

REFUSED = (
    "Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim c: "
    'resourceclaims.resource.k8s.io "c" is forbidden: User "system:node:a" cannot get resource "resourceclaims" '
    'in API group "resource.k8s.io" in the namespace "default": node: no relationship found between node \'a\' '
    "and this object"
)


async def one_runs(world: World) -> None:
    """After it has waited for another pod."""
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_claim("c")
    await world.add_pod("first", claims=["c"])
    await world.settle()
    await world.add_pod("second", claims=["c"])
    await world.settle()
    await world.delete_pod("first")
    await world.settle()


def test_why_a_pod_waited_is_no_reason_of_one_that_runs(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        told = await explained(world, "second")

        assert (told.state, told.code) == ("bound", "")
        (waited,) = said(told, "controller")
        assert waited.startswith("(earlier) claim default/c is not shareable and pod default/first uses it")

    play(scenario)


def test_nor_is_what_its_scheduler_said_and_the_usual_message_says_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        by = {"reportingController": "default-scheduler"}
        usual = (
            "0/1 nodes are available: request exclusive: device class being-negotiated.parley.dev does not exist"
        )
        await event(world, "second", "FailedScheduling", usual, **by)
        await event(world, "second", "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.", **by)

        told = await explained(world, "second")

        assert said(told, "scheduler") == ["(earlier) 0/1 nodes are available: 1 Insufficient cpu."]

    play(scenario)


@pytest.mark.parametrize(
    "words",
    [
        "DRA driver device.parley.dev is not registered",
        'desc = "transport: Error while dialing: dial unix /var/lib/kubelet/plugins/device.parley.dev/dra.sock: '
        'connect: connection refused"',
    ],
)
def test_where_the_kubelet_finds_no_node_plugin_that_is_to_be_looked_at(play: Play, words: str) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await event(world, "second", "FailedPrepareDynamicResources", words, reportingController="kubelet")

        told = await explained(world, "second")

        assert said(told, "node plugin") == [
            f"{words} (the driver's node plugin does not run on that node, or has just started: see its pod "
            "there, kubectl -n parley-system get pods -o wide; the kubelet tries again by itself, within 90 s)"
        ]

    play(scenario)


def test_a_kubelet_that_was_quicker_than_the_node_authorizer_tries_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await event(world, "second", "FailedPrepareDynamicResources", REFUSED, reportingController="kubelet")

        told = await explained(world, "second")

        assert said(told, "node plugin") == [
            f"{REFUSED} (the kubelet asked before the API server's node authorizer had seen the binding: the "
            "kubelet tries again by itself, within 90 s)"
        ]

    play(scenario)
