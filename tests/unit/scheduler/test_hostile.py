"""What a user of one namespace changes about claims, where no admission policy keeps it from that: no device that
a pod may use is handed to another."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from parley.api.builtin import BuiltinClaim
from parley.api.names import DEVICE_CLASS
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, TEMPLATES

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Awaitable[None]]], None]


async def one_device(world: World) -> None:
    world.start_parley()
    await world.add_node("a", devices=1)
    await world.add_class()
    await world.add_template()


async def running(world: World, name: str) -> BuiltinClaim:
    """The claim of a pod that runs with the only device."""
    await world.add_pod(name, "one")
    await world.settle()
    assert (await world.pod(name)).status.phase == "Running"
    return next(m for m in await world.mirrors() if m.metadata.name.startswith(f"{name}-"))


async def restart(world: World) -> None:
    await world.crash()
    world.start_parley()
    await world.settle()


async def owners(world: World, kind: str) -> list[dict[str, Any]] | None:
    """What a user puts in the place of a claim's owner; what never was the garbage collector takes for gone."""
    if kind == "nobody":
        return None
    if kind == "another pod":
        await world.add_pod("other", schedulingGates=[{"name": "later"}])
        uid = (await world.pod("other")).metadata.uid
        return [{"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": uid, "controller": True}]
    template = await world.client.get(TEMPLATES, "one", "default")
    uid, version = template.metadata.uid, TEMPLATES.api_version
    return [{"apiVersion": version, "kind": TEMPLATES.kind, "name": "one", "uid": uid, "controller": True}]


@pytest.mark.parametrize("kind", ["nobody", "another pod", "a template"])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_claim_that_lost_its_owner_holds_its_device_as_long_as_its_pod_is_there(
    play: Play, kind: str, restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        claim = (await running(world, "old")).metadata
        changed = {"metadata": {"ownerReferences": await owners(world, kind)}}
        await world.client.patch(BUILTIN_CLAIMS, claim.name, changed, claim.namespace)
        if restarted:
            await restart(world)
        await world.add_pod("new", "one")
        await world.settle()
        assert await world.node_of("new") == ""
        await world.delete_pod("old")
        await world.settle()
        assert (await world.pod("new")).status.phase == "Running"
        assert set((await world.devices()).values()) == {1}

    play(scenario)


def test_a_claim_whose_owner_and_pod_are_gone_is_free_once_its_node_has_said_so(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        claim = (await running(world, "old")).metadata
        await world.client.patch(
            BUILTIN_CLAIMS, claim.name, {"metadata": {"ownerReferences": None}}, claim.namespace
        )
        await world.crash()
        world.kubelets.stop("a")
        await world.force_delete("old")
        await world.settle()
        world.start_parley()
        await world.add_pod("new", "one")
        await world.settle()
        assert await world.node_of("new") == ""
        world.kubelets.start("a")
        await world.settle()
        assert (await world.pod("new")).status.phase == "Running"
        assert set((await world.devices()).values()) == {1}
        assert not (await world.client.list(CLAIMS, "default")).items

    play(scenario)


@pytest.mark.parametrize("request_name", ["x", "shareable"])
def test_a_pod_that_names_another_pods_claim_keeps_its_device_from_others(play: Play, request_name: str) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_class("all", shareable=True)
        await forged_template(world, request_name)
        claim = (await running(world, "first")).metadata
        await world.add_pod("second", claims=[claim.name])
        await world.settle()
        # An admission policy prevents this; here the second pod is let in by force.
        await world.client.patch(
            BUILTIN_CLAIMS,
            claim.name,
            {"status": {"reservedFor": [await consumer(world, "first"), await consumer(world, "second")]}},
            claim.namespace,
            subresource="status",
        )
        await world.settle()
        await world.add_pod("victim", "one")
        await world.finish_pod("first")
        await world.settle()
        assert await world.node_of("victim") == ""
        await world.delete_pod("second")
        await world.settle()
        assert (await world.pod("victim")).status.phase == "Running"

    play(scenario)


async def consumer(world: World, name: str) -> dict[str, str]:
    return {"resource": "pods", "name": name, "uid": (await world.pod(name)).metadata.uid}


async def forged_template(world: World, request_name: str, class_name: str = "all") -> None:
    """A template of the name "one", made by hand in the place of Parley's."""
    await world.settle()
    opaque = {"driver": "parley.dev", "parameters": {"resourceClassName": class_name}}
    devices = {
        "requests": [{"name": request_name, "exactly": {"deviceClassName": DEVICE_CLASS}}],
        "config": [{"opaque": opaque}],
    }
    await world.client.delete(TEMPLATES, "one", "default")
    await world.settle()
    body = {"metadata": {"name": "one", "namespace": "default"}, "spec": {"spec": {"devices": devices}}}
    await world.create(BUILTIN_TEMPLATES, body)
