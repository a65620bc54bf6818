"""Server-side apply: who owns which field, and what becomes of a field that nobody wants any more."""

from typing import Any

import pytest
from tests.integration.kube.objects import (
    CONFIG_MAPS,
    DRIVER,
    allocation,
    answer,
    builtin_claim,
    config_map,
    consumer,
    device,
    parley_allocation,
    parley_claim,
    pod,
    pod_scheduling,
)

from parley.api.names import API_VERSION
from parley.api.opaque import read
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, POD_SCHEDULINGS, PODS
from parley.kube.client import Client, Conflict, Invalid, NotFound

SCHEDULING = POD_SCHEDULINGS.untyped()
CLAIM = CLAIMS.untyped()


async def apply_map(client: Client, namespace: str, manager: str, *, force: bool = False, **data: str) -> Any:
    """The data of the config map `a` after the manager applied its own."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("a", data)}
    applied = await client.apply(CONFIG_MAPS, "a", body, namespace, field_manager=manager, force=force)
    return applied.get("data", {})


async def apply_answers(client: Client, namespace: str, manager: str, *answers: dict[str, Any]) -> Any:
    """The answers in the PodScheduling `web` after the manager applied its own."""
    body = pod_scheduling("web", status={"claims": list(answers)})
    applied = await client.apply(SCHEDULING, "web", body, namespace, field_manager=manager)
    return {entry["name"]: entry for entry in applied.get("status", {}).get("claims", ())}


async def test_applying_creates_and_then_changes(client: Client, namespace: str) -> None:
    assert await apply_map(client, namespace, "one", a="1") == {"a": "1"}
    made = await client.get(CONFIG_MAPS, "a", namespace)

    assert await apply_map(client, namespace, "one", a="2") == {"a": "2"}
    assert (await client.get(CONFIG_MAPS, "a", namespace))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_applying_the_same_again_is_no_write(client: Client, namespace: str) -> None:
    await apply_map(client, namespace, "one", a="1")
    before = await client.get(CONFIG_MAPS, "a", namespace)
    await apply_map(client, namespace, "one", a="1")

    after = await client.get(CONFIG_MAPS, "a", namespace)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_what_a_manager_applies_no_more_goes(client: Client, namespace: str) -> None:
    await apply_map(client, namespace, "one", a="1", b="1")
    await apply_map(client, namespace, "two", c="1")

    assert await apply_map(client, namespace, "one", b="1") == {"b": "1", "c": "1"}
    assert await apply_map(client, namespace, "one") == {"c": "1"}


async def test_a_conflict_names_the_other_manager_and_the_field(client: Client, namespace: str) -> None:
    await apply_map(client, namespace, "one", a="1")

    with pytest.raises(Conflict, match=r'Apply failed with 1 conflict: conflict with "one": \.data\.a'):
        await apply_map(client, namespace, "two", a="2", b="2")

    assert (await client.get(CONFIG_MAPS, "a", namespace))["data"] == {"a": "1"}


async def test_force_takes_fields_over(client: Client, namespace: str) -> None:
    await apply_map(client, namespace, "one", a="1", b="1")

    assert await apply_map(client, namespace, "two", force=True, a="2") == {"a": "2", "b": "1"}
    with pytest.raises(Conflict, match='conflict with "two"'):
        await apply_map(client, namespace, "one", a="1", b="1")
    assert await apply_map(client, namespace, "one", b="1") == {"a": "2", "b": "1"}


async def test_an_equal_value_has_two_owners(client: Client, namespace: str) -> None:
    await apply_map(client, namespace, "one", a="1")
    await apply_map(client, namespace, "two", a="1")

    assert await apply_map(client, namespace, "one") == {"a": "1"}
    assert await apply_map(client, namespace, "two") == {}


async def test_a_patch_owns_what_it_changes(client: Client, namespace: str) -> None:
    await apply_map(client, namespace, "one", a="1", b="1")
    await client.patch(CONFIG_MAPS, "a", {"data": {"a": "2"}}, namespace, field_manager="editor")

    with pytest.raises(Conflict, match=r'conflict with "editor" using v1.*: \.data\.a'):
        await apply_map(client, namespace, "one", a="1", b="1")
    assert await apply_map(client, namespace, "one", b="1") == {"a": "2", "b": "1"}


async def test_what_was_created_belongs_to_its_creator(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a", {"a": "1"}), namespace, field_manager="creator")

    with pytest.raises(Conflict, match='conflict with "creator" using v1'):
        await apply_map(client, namespace, "one", a="2")
    with pytest.raises(Conflict, match='conflict with "creator" using v1'):
        await apply_map(client, namespace, "creator", a="2")


async def test_an_applier_has_a_name(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid, match="fieldManager: Required value: is required for apply patch"):
        await apply_map(client, namespace, "", a="1")


async def test_each_driver_has_its_answers(client: Client, namespace: str) -> None:
    spec = {"candidateNodes": ["node-1", "node-2"], "round": 1}
    await client.create(SCHEDULING, pod_scheduling("web", spec=spec), namespace)

    await apply_answers(client, namespace, "gpus", answer("gpu", "node-1"), answer("spare", "node-2"))
    both = await apply_answers(client, namespace, "disks", answer("disk", "node-2", reason="full elsewhere"))
    assert {name: entry["viableNodes"] for name, entry in both.items()} == {
        "gpu": ["node-1"],
        "spare": ["node-2"],
        "disk": ["node-2"],
    }

    after = await apply_answers(client, namespace, "gpus", answer("gpu", "node-2"))

    assert {name: entry["viableNodes"] for name, entry in after.items()} == {
        "gpu": ["node-2"],
        "disk": ["node-2"],
    }
    whole = await client.get(SCHEDULING, "web", namespace)
    assert whole["spec"] == spec


async def test_an_answer_to_anothers_claim_is_a_conflict(client: Client, namespace: str) -> None:
    await apply_answers(client, namespace, "gpus", answer("gpu", "node-1"))

    with pytest.raises(Conflict, match=r'conflict with "gpus": \.status\.claims\[name="gpu"\]\.viableNodes'):
        await apply_answers(client, namespace, "disks", answer("gpu", "node-2"))


async def test_a_field_of_an_entry_goes_when_it_is_left_out(client: Client, namespace: str) -> None:
    await apply_answers(client, namespace, "gpus", answer("gpu", "node-1", reason="busy"))

    (entry,) = (await apply_answers(client, namespace, "gpus", answer("gpu", "node-1"))).values()

    assert "reason" not in entry


async def test_an_entry_stays_while_somebody_owns_a_part_of_it(client: Client, namespace: str) -> None:
    await apply_answers(client, namespace, "gpus", answer("gpu", "node-1"))
    whole = {"name": "gpu", "driverName": DRIVER, "round": 1, "reason": "note"}
    await apply_answers(client, namespace, "notes", whole)

    left = await apply_answers(client, namespace, "gpus")

    assert left == {"gpu": whole}


async def test_a_status_is_applied_apart_from_its_object(client: Client, namespace: str) -> None:
    await client.create(CLAIM, parley_claim("a"), namespace)
    named = {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": "a", "labels": {"app": "web"}},
    }
    allocated = {"driverName": DRIVER, "allocation": parley_allocation(shareable=True)}

    async def apply(manager: str, status: dict[str, Any]) -> dict[str, Any]:
        changed = await client.apply(
            CLAIM,
            "a",
            {**named, "status": status},
            namespace,
            subresource="status",
            field_manager=manager,
        )
        assert "labels" not in changed["metadata"]
        return dict(changed["status"])

    await apply("driver", allocated)
    await apply("one", {"reservedFor": [consumer("web", "uid-1")]})
    both = await apply("two", {"reservedFor": [consumer("db", "uid-2")]})
    left = await apply("one", {})

    assert [user["name"] for user in both["reservedFor"]] == ["web", "db"]
    assert left == {**allocated, "reservedFor": [consumer("db", "uid-2")]}
    with pytest.raises(Conflict, match='conflict with "driver" with subresource "status"'):
        await apply("two", {"driverName": "other.dev"})


async def test_no_status_of_what_is_not_there(client: Client, namespace: str) -> None:
    body = {"apiVersion": API_VERSION, "kind": "ResourceClaim", "metadata": {"name": "a"}, "status": {}}

    with pytest.raises(NotFound):
        await client.apply(
            CLAIM,
            "a",
            body,
            namespace,
            subresource="status",
            field_manager="driver",
        )


async def test_devices_of_a_built_in_claim_are_told_apart(client: Client, namespace: str) -> None:
    owner = await client.create(PODS, pod("a"), namespace)
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)
    status = {
        "allocation": allocation(device("gpu-0"), device("gpu-1")),
        "reservedFor": [consumer("a", owner.metadata.uid)],
    }
    await client.patch(BUILTIN_CLAIMS, "a", {"status": status}, namespace, subresource="status")

    async def report(manager: str, *names: str) -> list[str]:
        devices = [{"driver": DRIVER, "pool": "node-1", "device": name, "data": {"by": manager}} for name in names]
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "status": {"devices": devices}}
        changed = await client.apply(
            BUILTIN_CLAIMS,
            "a",
            {**body, "metadata": {"name": "a"}},
            namespace,
            subresource="status",
            field_manager=manager,
        )
        assert changed.status.allocation is not None
        return [f"{found.device} by {read(found.data)['by']}" for found in changed.status.devices]

    assert await report("one", "gpu-0") == ["gpu-0 by one"]
    assert await report("two", "gpu-1") == ["gpu-0 by one", "gpu-1 by two"]
    assert await report("one") == ["gpu-1 by two"]


async def test_applying_can_insist_on_the_state_it_was_made_for(client: Client, namespace: str) -> None:
    made = await client.create(SCHEDULING, pod_scheduling("web"), namespace)
    await client.patch(SCHEDULING, "web", {"spec": {"round": 1}}, namespace)
    body = pod_scheduling("web", spec={"selectedNode": "node-1"})
    body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]

    with pytest.raises(Conflict, match="the object has been modified"):
        await client.apply(SCHEDULING, "web", body, namespace, field_manager="one")
