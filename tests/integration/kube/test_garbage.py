"""The garbage collector: what is owned goes after its owner."""

import asyncio

from tests.integration.kube.objects import CONFIG_MAPS, builtin_claim, config_map, owned_by, pod, pod_scheduling
from tests.integration.kube.waiting import until

from parley.api.resources import BUILTIN_CLAIMS, CLASSES, POD_SCHEDULINGS, PODS
from parley.kube.client import Client

SCHEDULING = POD_SCHEDULINGS.untyped()


async def test_what_a_pod_owns_goes_after_it(client: Client, namespace: str) -> None:
    owner = await client.create(PODS.untyped(), pod("web"), namespace)
    owned = {"name": "web", "ownerReferences": [{**owned_by(owner), "controller": True}]}
    await client.create(SCHEDULING, {**pod_scheduling("web"), "metadata": owned}, namespace)
    await client.create(BUILTIN_CLAIMS, {**builtin_claim("web"), "metadata": owned}, namespace)

    await client.delete(PODS, "web", namespace)

    async with asyncio.TaskGroup() as tasks:
        for kind in (SCHEDULING, BUILTIN_CLAIMS):
            tasks.create_task(until(client, kind, namespace, lambda objects: not objects))


async def test_what_has_another_owner_stays(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map("first"), namespace)
    second = await client.create(CONFIG_MAPS, config_map("second"), namespace)
    both = [owned_by(first), owned_by(second)]
    await client.create(CONFIG_MAPS, config_map("shared", ownerReferences=both), namespace)
    await client.create(CONFIG_MAPS, config_map("single", ownerReferences=both[:1]), namespace)

    await client.delete(CONFIG_MAPS, "first", namespace)
    left = await until(client, CONFIG_MAPS, namespace, lambda objects: "single" not in objects)
    assert "shared" in left

    await client.delete(CONFIG_MAPS, "second", namespace)
    await until(client, CONFIG_MAPS, namespace, lambda objects: "shared" not in objects)


async def test_what_is_owned_goes_through_all_generations(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("one"), namespace)
    for name in ("two", "three"):
        body = config_map(name, ownerReferences=[owned_by(owner)])
        owner = await client.create(CONFIG_MAPS, body, namespace)

    await client.delete(CONFIG_MAPS, "one", namespace)

    await until(client, CONFIG_MAPS, namespace, lambda objects: not objects.keys() & {"one", "two", "three"})


async def test_what_is_owned_by_one_that_is_gone_goes(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner"), namespace)
    await client.delete(CONFIG_MAPS, "owner", namespace)
    await client.create(CONFIG_MAPS, config_map("late", ownerReferences=[owned_by(owner)]), namespace)

    await until(client, CONFIG_MAPS, namespace, lambda objects: "late" not in objects)


async def test_one_that_is_gone_is_no_owner_beside_another(client: Client, namespace: str) -> None:
    gone, stays = [await client.create(CONFIG_MAPS, config_map(name), namespace) for name in ("gone", "stays")]
    await client.delete(CONFIG_MAPS, "gone", namespace)
    both = [owned_by(gone), owned_by(stays)]
    await client.create(CONFIG_MAPS, config_map("late", ownerReferences=both), namespace)

    await until(
        client,
        CONFIG_MAPS,
        namespace,
        lambda objects: [one["name"] for one in objects["late"]["metadata"]["ownerReferences"]] == ["stays"],
    )


async def test_an_owner_of_a_kind_that_is_not_served_keeps_what_it_owns(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner"), namespace)
    unknown = {**owned_by(owner), "apiVersion": "nobody.example.com/v1", "kind": "Unknown", "uid": "of-nobody"}
    await client.create(CONFIG_MAPS, config_map("kept", ownerReferences=[unknown]), namespace)
    await client.create(CONFIG_MAPS, config_map("late", ownerReferences=[owned_by(owner)]), namespace)

    await client.delete(CONFIG_MAPS, "owner", namespace)

    left = await until(client, CONFIG_MAPS, namespace, lambda objects: "late" not in objects)
    assert "kept" in left


async def test_an_owner_of_the_same_name_is_another(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner"), namespace)
    await client.create(CONFIG_MAPS, config_map("owned", ownerReferences=[owned_by(owner)]), namespace)

    await client.delete(CONFIG_MAPS, "owner", namespace)
    await client.create(CONFIG_MAPS, config_map("owner"), namespace)

    await until(client, CONFIG_MAPS, namespace, lambda objects: "owned" not in objects)


async def test_a_finalizer_holds_what_is_owned(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner"), namespace)
    body = config_map("owned", ownerReferences=[owned_by(owner)], finalizers=["x.dev/hold"])
    await client.create(CONFIG_MAPS, body, namespace)

    await client.delete(CONFIG_MAPS, "owner", namespace)

    held = await until(
        client, CONFIG_MAPS, namespace, lambda objects: "deletionTimestamp" in objects["owned"]["metadata"]
    )
    assert held["owned"]["metadata"]["finalizers"] == ["x.dev/hold"]
    await client.patch(CONFIG_MAPS, "owned", {"metadata": {"finalizers": None}}, namespace)


async def test_a_cluster_scoped_owner_has_owned_things_in_namespaces(client: Client, namespace: str) -> None:
    body = {"apiVersion": "parley.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": namespace}}
    owner = await client.create(CLASSES.untyped(), {**body, "driverName": "device.parley.dev"})
    await client.create(CONFIG_MAPS, config_map("owned", ownerReferences=[owned_by(owner)]), namespace)

    await client.delete(CLASSES, namespace)

    await until(client, CONFIG_MAPS, namespace, lambda objects: "owned" not in objects)


async def test_in_the_foreground_what_is_owned_goes_before_a_running_pod(client: Client, namespace: str) -> None:
    """Also what holds nobody up. The pod stays until its node says that it has ended, and its claims are gone."""
    owner = await client.create(PODS.untyped(), pod("web", nodeName="node-1"), namespace)
    for name, blocks in (("web", True), ("other", False)):
        owned = {"name": name, "ownerReferences": [{**owned_by(owner), "blockOwnerDeletion": blocks}]}
        held = ["x.dev/hold"] if blocks else []
        body = {**builtin_claim(name), "metadata": {**owned, "finalizers": held}}
        await client.create(BUILTIN_CLAIMS, body, namespace)

    await client.delete(PODS, "web", namespace, propagation_policy="Foreground")

    claims = await until(client, BUILTIN_CLAIMS, namespace, lambda objects: "other" not in objects)
    claims = await until(
        client, BUILTIN_CLAIMS, namespace, lambda objects: "deletionTimestamp" in objects["web"]["metadata"]
    )
    assert claims.keys() == {"web"}
    deleted = await client.get(PODS.untyped(), "web", namespace)
    assert deleted["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30

    await client.delete(PODS, "web", namespace, grace_period_seconds=0, propagation_policy="")
    kept = await client.get(PODS.untyped(), "web", namespace)
    assert kept["metadata"]["deletionGracePeriodSeconds"] == 0

    await client.patch(BUILTIN_CLAIMS, "web", {"metadata": {"finalizers": None}}, namespace)
    await until(client, PODS, namespace, lambda objects: "web" not in objects)


async def test_in_the_foreground_all_generations_go_the_youngest_first(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("one"), namespace)
    for name in ("two", "three"):
        references = [{**owned_by(owner), "blockOwnerDeletion": True}]
        held = ["x.dev/hold"] if name == "three" else []
        owner = await client.create(
            CONFIG_MAPS, config_map(name, ownerReferences=references, finalizers=held), namespace
        )

    await client.delete(CONFIG_MAPS, "one", namespace, propagation_policy="Foreground")

    left = await until(
        client, CONFIG_MAPS, namespace, lambda objects: "deletionTimestamp" in objects["three"]["metadata"]
    )
    assert [left[name]["metadata"]["finalizers"] for name in ("one", "two")] == [["foregroundDeletion"]] * 2
    await client.patch(CONFIG_MAPS, "three", {"metadata": {"finalizers": None}}, namespace)
    await until(client, CONFIG_MAPS, namespace, lambda objects: not objects.keys() & {"one", "two", "three"})


async def test_what_is_orphaned_stays_without_its_owner(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map("first"), namespace)
    second = await client.create(CONFIG_MAPS, config_map("second"), namespace)
    for name, owners in (("both", [first, second]), ("one", [first])):
        references = [owned_by(owner) for owner in owners]
        await client.create(CONFIG_MAPS, config_map(name, ownerReferences=references), namespace)

    await client.delete(CONFIG_MAPS, "first", namespace, propagation_policy="Orphan")

    left = await until(client, CONFIG_MAPS, namespace, lambda objects: "first" not in objects)
    assert "ownerReferences" not in left["one"]["metadata"]
    assert [owner["name"] for owner in left["both"]["metadata"]["ownerReferences"]] == ["second"]


async def test_a_later_deletion_decides_anew_what_becomes_of_the_owned(client: Client, namespace: str) -> None:
    owner = await client.create(CONFIG_MAPS, config_map("owner", finalizers=["x.dev/hold"]), namespace)
    references = [{**owned_by(owner), "blockOwnerDeletion": True}]
    body = config_map("owned", ownerReferences=references, finalizers=["x.dev/hold"])
    await client.create(CONFIG_MAPS, body, namespace)

    await client.delete(CONFIG_MAPS, "owner", namespace, propagation_policy="Foreground")
    await client.delete(CONFIG_MAPS, "owner", namespace, propagation_policy="Background")

    left = await client.get(CONFIG_MAPS, "owner", namespace)
    assert left["metadata"]["finalizers"] == ["x.dev/hold"]
    for name in ("owner", "owned"):
        await client.patch(CONFIG_MAPS, name, {"metadata": {"finalizers": None}}, namespace)
    await until(client, CONFIG_MAPS, namespace, lambda objects: not objects.keys() & {"owner", "owned"})
