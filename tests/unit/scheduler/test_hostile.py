"""What a user of one namespace changes about claims, where no admission policy keeps it from that: no device that
a pod may use is handed to another, and nothing is allocated where its class excludes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.scheduler.disks import Disks

from parley.api.builtin import BuiltinClaim
from parley.api.names import DEVICE_CLASS, GENERATED_LABEL, driver_annotation, driver_finalizer
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, PODS, TEMPLATES

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
        await asyncio.sleep(60)  # its scheduler is refused the claim, and tries again and again
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


def test_what_has_the_stand_ins_name_is_none(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_class("array", driverName="array.example.com")
        await world.add_class("free", driverName="array.example.com")
        await world.add_node("a")
        await world.add_template(class_name="array")
        world.start_parley()
        await world.add_pod("p", "one", schedulingGates=[{"name": "later"}])
        await world.settle()
        (mirror,) = await world.mirrors()
        owner = mirror.metadata.owner_references[0]
        forged = {
            "name": mirror.metadata.name,
            "labels": {GENERATED_LABEL: "gpu-0"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner.uid, "controller": True}
            ],
        }
        await world.create(CLAIMS, {"metadata": forged, "spec": {"resourceClassName": "free"}})
        await world.client.patch(PODS, "p", {"spec": {"schedulingGates": None}}, "default")
        await world.settle()
        found = (await world.scheduling("p")).status
        assert (found.waiting_for, found.message) == (
            "NameTaken",
            f"a parley.dev ResourceClaim default/{mirror.metadata.name} exists that Parley did not create, and "
            "Parley needs the name for what the driver allocates: delete it",
        )

    play(scenario)


def test_claims_of_other_namespaces_that_name_a_pods_uid_are_not_its_own(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        await world.add_pod("p", "one", schedulingGates=[{"name": "later"}])
        await world.settle()
        (mirror,) = await world.mirrors()
        owner = mirror.metadata.owner_references[0]
        whole = await world.client.get(BUILTIN_CLAIMS.untyped(), mirror.metadata.name, "default")
        meta = {"name": "forged", "namespace": "elsewhere", "annotations": mirror.metadata.annotations}
        owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner.uid, "controller": True}]
        body = {"metadata": {**meta, "ownerReferences": owners}, "spec": whole["spec"]}
        await world.client.create(BUILTIN_CLAIMS, body, "elsewhere")
        await world.client.patch(
            PODS, "p", {"status": {"resourceClaimStatuses": None}}, "default", subresource="status"
        )
        await world.client.patch(PODS, "p", {"spec": {"schedulingGates": None}}, "default")
        await world.settle()
        assert (await world.pod("p")).status.phase == "Running"
        kept = await world.mirror(mirror.metadata.name)
        assert kept is not None
        assert kept.status.allocation is not None

    play(scenario)


@pytest.mark.parametrize(("admin", "node"), [(True, "a"), (False, "")], ids=["beside its user", "its user"])
def test_access_of_an_administrator_takes_no_device(play: Play, admin: bool, node: str) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        request = {"name": "x", "exactly": {"deviceClassName": "gpus.example.org", "adminAccess": admin}}
        await world.create(
            BUILTIN_CLAIMS, {"metadata": {"name": "looks"}, "spec": {"devices": {"requests": [request]}}}
        )
        result = {
            "request": "x",
            "driver": "device.parley.dev",
            "pool": "a",
            "device": "gpu-0",
            "adminAccess": admin,
        }
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await world.client.patch(BUILTIN_CLAIMS, "looks", status, "default", subresource="status")
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == node

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


def test_a_claim_of_any_name_keeps_no_device_from_being_released(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_device(world)
        claim = (await running(world, "old")).metadata
        await world.add_claim(claim.name)
        await world.force_delete("old")
        await world.add_pod("new", "one")
        await world.settle()
        assert (await world.pod("new")).status.phase == "Running"

    play(scenario)


@pytest.mark.parametrize("forged", [False, True])
def test_a_forged_mark_leads_to_no_node_that_the_class_excludes(play: Play, forged: bool) -> None:
    """A claim has the finalizer and the annotation that a standalone driver sets, when the driver starts."""

    async def scenario(world: World) -> None:
        for node, pool in (("open", "open"), ("reserved", "ours")):
            await world.add_node(node, labels={"pool": pool})
        field = {"key": "pool", "operator": "In", "values": ["open"]}
        suitable = {"nodeSelectorTerms": [{"matchExpressions": [field]}]}
        await world.add_class("disk", driverName=Disks.name, nodePart="None", suitableNodes=suitable)
        world.start_parley()
        marks = {
            "finalizers": [driver_finalizer(Disks.name)],
            "annotations": {driver_annotation(Disks.name): "reserved"},
        }
        meta = {"name": "forged", "namespace": "default", **(marks if forged else {})}
        spec = {"resourceClassName": "disk", "allocationMode": "Immediate"}
        await world.create(CLAIMS, {"metadata": meta, "spec": spec})
        driver = Disks(["open", "reserved"])
        world.start_driver(driver)
        await world.settle()

        assert driver.tried == ["open"]
        assert (await world.claim("forged")).status.allocation is not None

    play(scenario)
