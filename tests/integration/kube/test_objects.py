"""Creating, reading, listing and deleting."""

from typing import Any

import pytest
from tests.integration.kube.objects import (
    CONFIG_MAPS,
    DRIVER,
    claim_release,
    config_map,
    parley_claim,
    pod,
    pod_scheduling,
)

from parley.api.resources import CLAIM_RELEASES, CLAIMS, EVENTS, NODES, POD_SCHEDULINGS, PODS, Resource
from parley.kube.client import AlreadyExists, BadRequest, Client, Conflict, Invalid, NotFound

CLAIM = CLAIMS.untyped()
SCHEDULING = POD_SCHEDULINGS.untyped()


async def test_a_created_object_has_what_only_the_server_knows(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", {"key": "value"}, uid="mine"), namespace)

    assert made["data"] == {"key": "value"}
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == ("a", namespace)
    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")
    again = await client.get(CONFIG_MAPS, "a", namespace)
    assert again["metadata"]["uid"] == meta["uid"]


async def test_a_name_can_be_taken_once(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"), namespace)

    with pytest.raises(AlreadyExists, match=r'configmaps "a" already exists'):
        await client.create(CONFIG_MAPS, config_map("a"), namespace)


async def test_what_is_not_there_is_named(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound, match=r'configmaps "a" not found'):
        await client.get(CONFIG_MAPS, "a", namespace)
    with pytest.raises(NotFound, match=r'podschedulings\.parley\.dev "a" not found'):
        await client.get(SCHEDULING, "a", namespace)
    with pytest.raises(NotFound, match=r'configmaps "a" not found'):
        await client.patch(CONFIG_MAPS, "a", {"data": {}}, namespace)
    with pytest.raises(NotFound, match=r'configmaps "a" not found'):
        await client.delete(CONFIG_MAPS, "a", namespace)


async def test_generated_names_differ_and_begin_as_asked(client: Client, namespace: str) -> None:
    body = {"metadata": {"generateName": "pod-claim-"}}
    names = [(await client.create(CONFIG_MAPS, body, namespace))["metadata"]["name"] for _ in range(3)]

    assert len(set(names)) == 3
    assert all(name.startswith("pod-claim-") and len(name) == len("pod-claim-") + 5 for name in names)


async def test_an_object_without_any_name_is_refused(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name: Required value: name or generateName is required"):
        await client.create(CONFIG_MAPS, {"metadata": {}}, namespace)


BAD_METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "a name in capitals": (
        {"name": "GPU"},
        r'metadata\.name: Invalid value: "GPU": a lowercase RFC 1123 subdomain',
    ),
    "a name that is too long": ({"name": "x" * 254}, r"metadata\.name: Invalid value: .*"),
    "a prefix that ends in a dot": ({"generateName": "a."}, r'metadata\.generateName: Invalid value: "a\."'),
    "a label with a space": ({"labels": {"a b": "c"}}, r'metadata\.labels: Invalid value: "a b": name part must'),
    "a label's value with a space": ({"labels": {"a": "b c"}}, r'metadata\.labels: Invalid value: "b c": a valid'),
    "an annotation with a space": ({"annotations": {"a b": "c"}}, r'metadata\.annotations: Invalid value: "a b"'),
    "a finalizer with a space": ({"finalizers": ["a b"]}, r'metadata\.finalizers.*: Invalid value: "a b"'),
    "an owner without a UID": (
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]},
        r"metadata\.ownerReferences(\[0\]\.uid: Required value|\.uid: .*must not be empty)",
    ),
}


@pytest.mark.parametrize("case", BAD_METADATA)
@pytest.mark.parametrize("resource", [CONFIG_MAPS, SCHEDULING], ids=["built-in", "custom"])
async def test_metadata_is_checked(
    client: Client, namespace: str, resource: Resource[dict[str, Any]], case: str
) -> None:
    metadata, message = BAD_METADATA[case]
    given = metadata if "generateName" in metadata else {"name": "a", **metadata}

    with pytest.raises(Invalid, match=message):
        await client.create(resource, {"metadata": given}, namespace)


async def test_a_finalizer_of_a_built_in_kind_has_a_domain(client: Client, namespace: str) -> None:
    await client.create(SCHEDULING, {"metadata": {"name": "a", "finalizers": ["hold"]}}, namespace)

    with pytest.raises(
        Invalid, match=r'metadata\.finalizers\[0\]: Invalid value: "hold": name is neither a standard'
    ):
        await client.create(CONFIG_MAPS, config_map("a", finalizers=["hold"]), namespace)


async def test_a_body_of_another_kind_or_namespace_is_refused(client: Client, namespace: str) -> None:
    with pytest.raises(BadRequest):
        await client.create(
            CONFIG_MAPS, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}, namespace
        )
    with pytest.raises(BadRequest, match="does not match the namespace sent on the request"):
        await client.create(CONFIG_MAPS, config_map("a", namespace="elsewhere"), namespace)


async def test_resource_versions_rise_over_all_kinds(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    second = await client.create(CLAIM, parley_claim("a"), namespace)
    third = await client.patch(CONFIG_MAPS, "a", {"data": {"key": "value"}}, namespace)

    versions = [int(made["metadata"]["resourceVersion"]) for made in (first, second, third)]
    assert versions == sorted(set(versions))
    assert int((await client.list(CONFIG_MAPS, namespace)).resource_version) >= versions[-1]


async def test_nobody_shares_an_object_with_the_server(client: Client, namespace: str) -> None:
    body = config_map("a", {"key": "value"})
    made = await client.create(CONFIG_MAPS, body, namespace)

    body["data"]["key"] = "changed"
    made["data"]["key"] = "changed"

    assert (await client.get(CONFIG_MAPS, "a", namespace))["data"] == {"key": "value"}


async def test_objects_are_typed_as_the_kind_says(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("a"), namespace)

    assert isinstance(made, PODS.type)
    assert made.metadata.name == "a"
    claim = await client.create(CLAIMS, parley_claim("a"), namespace)
    assert claim.spec.resource_class_name == "gpu"


async def test_a_list_holds_the_namespaces_objects_by_name(client: Client, namespace: str) -> None:
    for name in ("web-2", "web-1", "web-3"):
        await client.create(SCHEDULING, pod_scheduling(name), namespace)

    listing = await client.list(SCHEDULING, namespace)

    assert [item["metadata"]["name"] for item in listing.items] == ["web-1", "web-2", "web-3"]
    assert {item["kind"] for item in listing.items} == {"PodScheduling"}
    everywhere = (await client.list(SCHEDULING)).items
    assert [item["metadata"]["uid"] for item in listing.items] == [
        item["metadata"]["uid"] for item in everywhere if item["metadata"]["namespace"] == namespace
    ]


SELECTED = {
    "app=web": {"web-1", "web-2"},
    "app==web,tier=front": {"web-1"},
    "app!=web": {"db-1", "bare"},
    "app in (web, db)": {"web-1", "web-2", "db-1"},
    "app notin (web),app": {"db-1"},
    "tier": {"web-1"},
    "!app": {"bare"},
    "app=none": set(),
}


@pytest.mark.parametrize("selector", SELECTED)
async def test_labels_select(client: Client, namespace: str, selector: str) -> None:
    labels = {"web-1": {"app": "web", "tier": "front"}, "web-2": {"app": "web"}, "db-1": {"app": "db"}, "bare": {}}
    for name, given in labels.items():
        await client.create(
            SCHEDULING, {**pod_scheduling(name), "metadata": {"name": name, "labels": given}}, namespace
        )

    listing = await client.list(SCHEDULING, namespace, label_selector=selector)

    assert {item["metadata"]["name"] for item in listing.items} == SELECTED[selector]


async def test_fields_select(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(PODS, pod(name), namespace)
    await client.patch(PODS, "b", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")

    async def names(selector: str) -> list[str]:
        listing = await client.list(PODS, namespace, field_selector=selector)
        return [item.metadata.name for item in listing.items]

    assert await names("metadata.name=a") == ["a"]
    assert await names(f"metadata.namespace={namespace},metadata.name!=a") == ["b"]
    assert await names("status.phase=Pending") == ["a"]
    assert await names("spec.nodeName=") == ["a", "b"]
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.hostname"):
        await names("spec.hostname=a")


async def test_a_node_selects_its_own_releases(client: Client) -> None:
    try:
        for name, node in (("a", "n1"), ("b", "n2")):
            await client.create(CLAIM_RELEASES, claim_release(name, node))

        listing = await client.list(CLAIM_RELEASES, field_selector="spec.nodeName=n1")

        assert [item.metadata.name for item in listing.items] == ["a"]
        with pytest.raises(BadRequest, match=r"field label not supported: spec\.driverName"):
            await client.list(CLAIM_RELEASES, field_selector=f"spec.driverName={DRIVER}")
    finally:
        for name in ("a", "b"):
            await client.delete(CLAIM_RELEASES, name)


async def test_events_are_selected_by_what_they_are_about(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        about = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
        event = {
            "metadata": {"name": name},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.com/test",
            "reportingInstance": "test",
            "action": "Testing",
            "reason": "Tested",
            "type": "Normal",
            "regarding": about,
        }
        await client.create(EVENTS, event, namespace)

    listing = await client.list(EVENTS, namespace, field_selector="regarding.uid=uid-of-b")

    assert [item.metadata.name for item in listing.items] == ["b"]


async def test_a_deletion_can_insist_on_the_object_it_means(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    meta = made["metadata"]

    with pytest.raises(Conflict, match=r"the UID in the precondition \(another\) does not match"):
        await client.delete(CONFIG_MAPS, "a", namespace, uid="another")
    with pytest.raises(Conflict, match=r"the ResourceVersion in the precondition \(1\) does not match"):
        await client.delete(CONFIG_MAPS, "a", namespace, resource_version="1")

    await client.delete(CONFIG_MAPS, "a", namespace, uid=meta["uid"], resource_version=meta["resourceVersion"])
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", namespace)


async def test_a_finalizer_holds_an_object_until_it_is_removed(client: Client, namespace: str) -> None:
    await client.create(
        SCHEDULING, {**pod_scheduling("a"), "metadata": {"name": "a", "finalizers": ["x.dev/hold"]}}, namespace
    )

    await client.delete(SCHEDULING, "a", namespace)
    await client.delete(SCHEDULING, "a", namespace)

    marked = (await client.get(SCHEDULING, "a", namespace))["metadata"]
    assert marked["deletionTimestamp"].endswith("Z")
    assert marked["generation"] == 2
    with pytest.raises(Invalid, match="no new finalizers can be added if the object is being deleted"):
        await client.patch(SCHEDULING, "a", {"metadata": {"finalizers": ["x.dev/hold", "x.dev/more"]}}, namespace)
    changed = await client.patch(SCHEDULING, "a", {"spec": {"selectedNode": "node-1"}}, namespace)
    assert changed["spec"]["selectedNode"] == "node-1"

    last = await client.patch(SCHEDULING, "a", {"metadata": {"finalizers": None}}, namespace)

    assert "finalizers" not in last["metadata"]
    with pytest.raises(NotFound):
        await client.get(SCHEDULING, "a", namespace)


async def test_a_name_that_is_free_again_makes_another_object(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    await client.delete(CONFIG_MAPS, "a", namespace)
    second = await client.create(CONFIG_MAPS, config_map("a"), namespace)

    assert first["metadata"]["uid"] != second["metadata"]["uid"]


@pytest.mark.parametrize(
    ("patch", "generation"),
    [
        ({"spec": {"selectedNode": "node-1"}}, 2),
        ({"status": {"waitingFor": "NoCandidates"}}, 2),
        ({"metadata": {"labels": {"app": "web"}}}, 1),
        ({"spec": {"round": 1}}, 1),
    ],
)
async def test_generation_counts_changes_but_those_of_metadata(
    client: Client, namespace: str, patch: dict[str, Any], generation: int
) -> None:
    made = await client.create(SCHEDULING, pod_scheduling("a", spec={"round": 1}), namespace)
    changed = await client.patch(SCHEDULING, "a", patch, namespace)

    assert made["metadata"]["generation"] == 1
    assert changed["metadata"]["generation"] == generation


async def test_generation_does_not_count_a_status_of_its_own(client: Client, namespace: str) -> None:
    await client.create(CLAIM, parley_claim("a"), namespace)
    changed = await client.patch(
        CLAIM, "a", {"status": {"driverName": "disks.example.com"}}, namespace, subresource="status"
    )

    assert changed["status"] == {"driverName": "disks.example.com"}
    assert changed["metadata"]["generation"] == 1


async def test_a_cluster_scoped_object_has_no_namespace(client: Client, namespace: str) -> None:
    node = f"node-{namespace}"
    made = await client.create(NODES.untyped(), {"metadata": {"name": node, "labels": {"disk": "fast"}}})

    assert "namespace" not in made["metadata"]
    assert (await client.get(NODES, node)).metadata.labels["disk"] == "fast"
    await client.delete(NODES, node)
