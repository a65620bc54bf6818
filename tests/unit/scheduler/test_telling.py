"""What an operator sees of pods on their way: figures, and lines in the log."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing

from parley.api.resources import BUILTIN_TEMPLATES, CLAIMS, POD_SCHEDULINGS, PODS

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import NAMESPACE, World
else:
    World, NAMESPACE = Any, "default"

pytestmark = pytest.mark.scheduling_paths("native", "extender")


def value(world: World, name: str, **labels: str) -> float | None:
    assert world.controller is not None
    return world.controller.metrics.registry.get_sample_value(name, labels)


async def one_device(world: World) -> None:
    await world.add_node("a", devices=1)
    await world.add_class()
    await world.add_template()
    world.start_parley()


def test_each_phase_of_a_pod_is_one_line(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        with structlog.testing.capture_logs() as entries:
            await world.add_pod("p", "one")
            await world.settle()
            (claim,) = await world.mirrors()
            await world.delete_pod("p")
            await world.settle()

        phases = [entry for entry in entries if entry["log_level"] == "info" and "node" in entry]
        assert [(entry["event"], entry.get("pod"), entry["node"]) for entry in phases] == [
            ("allocated", "default/p", "a"),
            ("bound", "default/p", "a"),
            ("released", None, "a"),
        ]
        assert (phases[1]["rounds"], phases[2]["claim"]) == (1, f"default/{claim.metadata.name}")

    play(scenario)


IDLE = [{"name": "main", "image": "none"}]


def test_a_pod_with_a_claim_that_no_container_uses_has_an_event_once(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await add_idle_pod(world, "p")
        await world.settle(1000)
        await add_idle_pod(world, "waits")
        await world.settle(1000)

        for name in ("p", "waits"):
            (note,) = [note for reason, note in await world.events_on(name) if reason == "ClaimUnused"]
            assert note == (
                "no container uses claim gpu-0, so no container gets what it holds: recreate the pod with it in"
                " resources.claims of a container"
            )
        assert await world.node_of("p") == "a"

    play(scenario)


async def add_idle_pod(world: World, name: str) -> None:
    entry = {"name": "gpu-0", "resourceClaimTemplateName": "one"}
    scheduler = {"schedulerName": "parley"} if world.scheduling_path == "extender" else {}
    spec = {"resourceClaims": [entry], "containers": IDLE, **scheduler}
    await world.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


def test_a_pod_that_waits_is_a_figure_until_it_is_bound(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("first", "one")
        await world.settle()
        await world.add_pod("second", "one")
        await world.settle()
        assert value(world, "parley_pods_waiting", reason="NothingViable") == 1
        assert value(world, "parley_holdings", driver="device.parley.dev") == 1

        await world.delete_pod("first")
        await world.settle()

        assert value(world, "parley_pods_waiting", reason="NothingViable") is None
        assert value(world, "parley_pods_waiting", reason="Binding") is None
        assert value(world, "parley_pods_total", outcome="bound") == 1
        assert value(world, "parley_pods_total", outcome="bound_after_waiting") == 1
        assert value(world, "parley_events_total", reason="NothingViable") == 1

    play(scenario)


def test_a_pod_that_is_deleted_while_it_waits_is_gone(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("p", "one", "one")
        await world.settle()
        await world.delete_pod("p")
        await world.settle()

        assert value(world, "parley_pods_waiting", reason="NothingViable") is None
        assert value(world, "parley_pods_total", outcome="gone") == 1

    play(scenario)


def test_a_pod_that_ends_while_it_waits_does_not_wait_any_more(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("p", "one", "one")
        await world.settle()
        await world.finish_pod("p")
        await world.settle()

        assert value(world, "parley_pods_waiting", reason="NothingViable") is None
        assert value(world, "parley_pods_total", outcome="gone") == 1

    play(scenario)


def test_a_pod_that_turns_out_to_be_of_others_is_not_on_its_way(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("p", "theirs")
        await world.settle()
        assert value(world, "parley_pods_waiting", reason="ClaimNotFound") == 1

        requests = [{"name": "r", "exactly": {"deviceClassName": "theirs.example.com"}}]
        body = {"metadata": {"name": "theirs"}, "spec": {"spec": {"devices": {"requests": requests}}}}
        await world.create(BUILTIN_TEMPLATES, body)
        await world.settle()

        assert value(world, "parley_pods_waiting", reason="ClaimNotFound") is None

    play(scenario)


def test_a_pod_seen_after_it_was_bound_does_not_count_again(play: Any) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("p", "one")
        await world.settle()
        world.start_parley()
        await world.settle()

        assert value(world, "parley_pods_total", outcome="bound") is None
        assert value(world, "parley_holdings", driver="device.parley.dev") == 1

    play(scenario)


@pytest.mark.scheduling_paths("native")  # the extender path knows what its scheduler refuses before
def test_a_node_that_the_scheduler_refuses_is_a_line(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("without-devices")
        await one_device(world)
        await world.add_pod("there", nodeName="a")
        term = {"labelSelector": {"matchLabels": {"app": "test"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        with structlog.testing.capture_logs() as entries:
            await world.add_pod("p", "one", affinity=affinity)
            await asyncio.sleep(60)

        refused = [(entry["pod"], entry["node"]) for entry in entries if entry["event"] == "refused"]
        assert refused == [("default/p", "a")]
        assert [entry["reason"] for entry in entries if entry["event"] == "needs attention"] == [
            "SchedulerRefused"
        ]

    play(scenario)


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_a_podscheduling_says_so_when_the_claim_that_its_pod_waits_for_is_gone(play: Any, restarted: bool) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_claim("disk")
        await world.add_pod("user", claims=["disk"])
        await world.settle()
        await world.add_pod("waits", claims=["disk"])
        await world.settle()
        await world.client.delete(CLAIMS, "disk", NAMESPACE)
        await world.settle()
        assert (await world.scheduling("waits")).status.waiting_for == "ClaimBeingDeleted"
        await world.finish_pod("user")
        await world.settle()
        if restarted:
            before = {"status": {"waitingFor": "ClaimBeingDeleted", "message": "of an earlier leader"}}
            await world.crash()
            await world.client.patch(POD_SCHEDULINGS, "waits", before, NAMESPACE)
            world.start_parley()
            await world.settle()
        status = (await world.scheduling("waits")).status
        assert status.waiting_for == "ClaimNotFound"
        assert status.message.startswith("claim default/disk does not exist: create a ResourceClaim")
        await world.add_claim("disk")
        await world.settle()
        assert await world.node_of("waits") == "a"
        assert (await world.scheduling("waits")).status.waiting_for == ""

    play(scenario)
