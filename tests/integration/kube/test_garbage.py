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
