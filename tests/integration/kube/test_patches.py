"""Changing objects by merge patches, and what of an object each may change."""

from typing import Any

import pytest
from tests.integration.kube.objects import (
    CONFIG_MAPS,
    builtin_claim,
    config_map,
    parley_claim,
    pod,
    pod_scheduling,
)

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES, POD_SCHEDULINGS, PODS, Resource
from parley.kube.client import BadRequest, Client, Conflict, Invalid, NotFound

SCHEDULING = POD_SCHEDULINGS.untyped()


async def test_a_merge_patch_sets_and_removes_fields(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a", {"kept": "1", "gone": "2", "changed": "3"}), namespace)

    patch = {"data": {"gone": None, "changed": "4", "added": "5", "never": None}}
    changed = await client.patch(CONFIG_MAPS, "a", patch, namespace)

    assert changed["data"] == {"kept": "1", "changed": "4", "added": "5"}
    assert (await client.get(CONFIG_MAPS, "a", namespace)) == changed


async def test_a_merge_patch_replaces_lists(client: Client, namespace: str) -> None:
    await client.create(SCHEDULING, pod_scheduling("a", spec={"candidateNodes": ["node-1", "node-2"]}), namespace)

    changed = await client.patch(SCHEDULING, "a", {"spec": {"candidateNodes": ["node-3"]}}, namespace)

    assert changed["spec"]["candidateNodes"] == ["node-3"]


async def test_a_patch_can_insist_on_the_state_it_was_made_for(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    version = made["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"key": "1"}}
    await client.patch(CONFIG_MAPS, "a", patch, namespace)

    with pytest.raises(Conflict, match="the object has been modified; please apply your changes to the latest"):
        await client.patch(CONFIG_MAPS, "a", patch, namespace)
    with pytest.raises(Invalid, match=r'metadata\.uid: Invalid value: "another": field is immutable'):
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"uid": "another"}, "data": {"key": "2"}}, namespace)


async def test_a_dry_run_shows_what_would_be_and_stores_nothing(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", {"kept": "1"}), namespace)

    shown = await client.patch(CONFIG_MAPS, "a", {"data": {"added": "2"}}, namespace, dry_run=True)

    assert shown["data"] == {"kept": "1", "added": "2"}
    assert (await client.get(CONFIG_MAPS, "a", namespace)) == made


async def test_a_patch_that_changes_nothing_is_no_write(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", {"key": "1"}), namespace)

    same = await client.patch(CONFIG_MAPS, "a", {"data": {"key": "1"}}, namespace)

    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_what_the_server_wrote_stays(client: Client, namespace: str) -> None:
    made = (await client.create(SCHEDULING, pod_scheduling("a"), namespace))["metadata"]

    patch = {"metadata": {"generation": 7, "creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"a": "b"}}}
    changed = (await client.patch(SCHEDULING, "a", patch, namespace))["metadata"]

    assert changed["labels"] == {"a": "b"}
    kept = ("uid", "generation", "creationTimestamp", "name", "namespace")
    assert [changed[field] for field in kept] == [made[field] for field in kept]


async def test_an_object_keeps_its_name(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"), namespace)

    with pytest.raises(BadRequest, match=r"the name of the object \(b\) does not match the name on the URL \(a\)"):
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"name": "b"}}, namespace)


WITH_STATUS: list[tuple[Resource[Any], dict[str, Any], dict[str, Any]]] = [
    (PODS, pod("a"), {"message": "hello"}),
    (CLAIMS, parley_claim("a"), {"driverName": "disks.example.com"}),
    (BUILTIN_CLAIMS, builtin_claim("a"), {"reservedFor": [{"resource": "pods", "name": "b", "uid": "u"}]}),
]


@pytest.mark.parametrize(("resource", "body", "status"), WITH_STATUS, ids=lambda value: getattr(value, "kind", ""))
async def test_a_status_is_not_created_with_its_object(
    client: Client, namespace: str, resource: Resource[Any], body: dict[str, Any], status: dict[str, Any]
) -> None:
    made = await client.create(resource.untyped(), {**body, "status": status}, namespace)

    assert not made.get("status", {}).keys() & status.keys()


async def test_a_status_and_the_rest_are_written_separately(client: Client, namespace: str) -> None:
    claims = CLAIMS.untyped()
    await client.create(claims, parley_claim("a"), namespace)
    patch = {"metadata": {"labels": {"app": "web"}}, "status": {"driverName": "disks.example.com"}}

    through_main = await client.patch(claims, "a", patch, namespace)
    through_status = await client.patch(
        claims, "a", {**patch, "metadata": {"labels": {"app": "db"}}}, namespace, subresource="status"
    )

    assert through_main["metadata"]["labels"] == {"app": "web"}
    assert "status" not in through_main
    assert through_status["metadata"]["labels"] == {"app": "web"}
    assert through_status["status"] == {"driverName": "disks.example.com"}


async def test_a_status_patch_leaves_the_spec_alone(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)

    patch = {"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}
    changed = await client.patch(PODS, "a", patch, namespace, subresource="status")

    assert changed.status.phase == "Running"
    assert changed.spec.node_name == ""


async def test_a_status_patch_labels_pods_and_nodes_only(client: Client, namespace: str) -> None:
    node = f"node-{namespace}"
    await client.create(PODS, pod("a"), namespace)
    await client.create(NODES, {"metadata": {"name": node}})
    await client.create(BUILTIN_CLAIMS, builtin_claim("a"), namespace)
    patch = {"metadata": {"labels": {"app": "web"}}}

    labelled = await client.patch(PODS, "a", patch, namespace, subresource="status")
    assert labelled.metadata.labels["app"] == "web"
    node_labelled = await client.patch(NODES, node, patch, subresource="status")
    assert node_labelled.metadata.labels["app"] == "web"
    claim = await client.patch(BUILTIN_CLAIMS, "a", patch, namespace, subresource="status")
    assert claim.metadata.labels == {}
    await client.delete(NODES, node)


async def test_a_status_patch_has_preconditions_too(client: Client, namespace: str) -> None:
    made = await client.create(CLAIMS, parley_claim("a"), namespace)
    await client.patch(CLAIMS, "a", {"metadata": {"labels": {"app": "web"}}}, namespace)

    stale = {
        "metadata": {"resourceVersion": made.metadata.resource_version},
        "status": {"driverName": "disks.example.com"},
    }
    with pytest.raises(Conflict, match="the object has been modified"):
        await client.patch(CLAIMS, "a", stale, namespace, subresource="status")


async def test_the_uid_protects_no_status_of_a_custom_resource(client: Client, namespace: str) -> None:
    await client.create(CLAIMS, parley_claim("a"), namespace)

    merged = {"metadata": {"uid": "another"}, "status": {"driverName": "disks.example.com"}}
    changed = await client.patch(CLAIMS, "a", merged, namespace, subresource="status")

    assert changed.status.driver_name == "disks.example.com"


async def test_the_uid_protects_the_status_of_a_built_in_kind(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)

    patch = {"metadata": {"uid": "another"}, "status": {"phase": "Running"}}
    with pytest.raises(Invalid, match=r'metadata\.uid: Invalid value: "another": field is immutable'):
        await client.patch(PODS, "a", patch, namespace, subresource="status")


async def test_a_kind_without_a_status_of_its_own_takes_it_with_the_rest(client: Client, namespace: str) -> None:
    made = await client.create(SCHEDULING, pod_scheduling("a", status={"viable": 1}), namespace)
    changed = await client.patch(SCHEDULING, "a", {"spec": {"round": 1}, "status": {"viable": 2}}, namespace)

    assert made["status"] == {"viable": 1}
    assert (changed["spec"], changed["status"]) == ({"round": 1}, {"viable": 2})
    with pytest.raises(NotFound):
        await client.patch(SCHEDULING, "a", {"status": {"viable": 3}}, namespace, subresource="status")


async def test_a_node_is_created_with_its_status(client: Client, namespace: str) -> None:
    node = f"node-{namespace}"
    body = {"metadata": {"name": node}, "status": {"allocatable": {"cpu": "8"}}}

    made = await client.create(NODES, body)
    through_main = await client.patch(NODES, node, {"status": {"allocatable": {"cpu": "4"}}})
    through_status = await client.patch(
        NODES,
        node,
        {"spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "4"}}},
        subresource="status",
    )

    assert [seen.status.allocatable["cpu"] for seen in (made, through_main, through_status)] == ["8", "8", "4"]
    assert not through_status.spec.unschedulable
    await client.delete(NODES, node)
