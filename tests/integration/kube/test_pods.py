"""Pods: binding, what of a spec may change, and how they end."""

from typing import Any

import pytest
from tests.integration.kube.objects import binding, pod

from parley.api.resources import PODS
from parley.kube.client import Client, Conflict, Invalid, NotFound

POD = PODS.untyped()
RUNNING = {"status": {"phase": "Running"}}


async def test_a_new_pod_is_pending_with_defaults(client: Client, namespace: str) -> None:
    container = {
        "name": "main",
        "image": "x",
        "resources": {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}},
    }
    made = await client.create(POD, pod("a", containers=[container]), namespace)

    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert made["metadata"]["generation"] == 1


async def test_a_pod_without_a_scheduler_gets_the_default_one(client: Client, namespace: str) -> None:
    body = pod("a", schedulingGates=[{"name": "x.dev/wait"}])
    del body["spec"]["schedulerName"]

    assert (await client.create(PODS, body, namespace)).spec.scheduler_name == "default-scheduler"


async def test_a_binding_sets_the_node_and_merges_annotations(client: Client, namespace: str) -> None:
    annotations = {"x.dev/kept": "1", "x.dev/changed": "1"}
    made = await client.create(PODS, pod("a", metadata={"annotations": annotations}), namespace)

    post = binding("a", "node-1", uid=made.metadata.uid, annotations={"x.dev/changed": "2", "x.dev/added": "3"})
    answer = await client.create_subresource(PODS, "a", "binding", post, namespace)

    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    bound = await client.get(PODS, "a", namespace)
    assert bound.spec.node_name == "node-1"
    assert bound.metadata.annotations == {"x.dev/kept": "1", "x.dev/changed": "2", "x.dev/added": "3"}
    assert bound.metadata.generation == made.metadata.generation
    assert [(c.type, c.status) for c in bound.status.conditions] == [("PodScheduled", "True")]


async def test_a_pod_is_bound_once(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)
    await client.create_subresource(PODS, "a", "binding", binding("a", "node-1"), namespace)

    with pytest.raises(Conflict, match='pod a is already assigned to node "node-1"'):
        await client.create_subresource(PODS, "a", "binding", binding("a", "node-2"), namespace)


async def test_a_binding_can_insist_on_the_pod_it_means(client: Client, namespace: str) -> None:
    made = (await client.create(PODS, pod("a"), namespace)).metadata
    await client.patch(PODS, "a", {"metadata": {"labels": {"app": "web"}}}, namespace)

    with pytest.raises(Conflict, match="UID in precondition: another, UID in object meta: " + made.uid):
        await client.create_subresource(PODS, "a", "binding", binding("a", "node-1", uid="another"), namespace)
    stale = binding("a", "node-1", uid=made.uid, resourceVersion=made.resource_version)
    with pytest.raises(Conflict, match="ResourceVersion in precondition: " + made.resource_version):
        await client.create_subresource(PODS, "a", "binding", stale, namespace)

    now = await client.get(PODS, "a", namespace)
    assert now.spec.node_name == ""
    current = binding("a", "node-1", uid=made.uid, resourceVersion=now.metadata.resource_version)
    await client.create_subresource(PODS, "a", "binding", current, namespace)


async def test_a_gated_or_missing_pod_is_not_bound(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a", schedulingGates=[{"name": "x.dev/wait"}]), namespace)

    with pytest.raises(Conflict, match=r"pod a has non-empty \.spec\.schedulingGates"):
        await client.create_subresource(PODS, "a", "binding", binding("a", "node-1"), namespace)
    with pytest.raises(NotFound):
        await client.create_subresource(PODS, "b", "binding", binding("b", "node-1"), namespace)

    opened = await client.patch(POD, "a", {"spec": {"schedulingGates": None}}, namespace)
    assert "schedulingGates" not in opened["spec"]
    await client.create_subresource(PODS, "a", "binding", binding("a", "node-1"), namespace)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "node-1"},
        {"nodeSelector": {"disk": "fast"}},
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}]},
        {"schedulerName": "parley"},
    ],
)
async def test_a_pods_spec_is_immutable(client: Client, namespace: str, spec: dict[str, Any]) -> None:
    await client.create(PODS, pod("a"), namespace)

    with pytest.raises(Invalid, match="spec: Forbidden: pod updates may not change fields other than"):
        await client.patch(PODS, "a", {"spec": spec}, namespace)


async def test_no_gate_is_added_later(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)

    with pytest.raises(Invalid, match=r"schedulingGates.*Forbidden: only deletion is allowed"):
        await client.patch(PODS, "a", {"spec": {"schedulingGates": [{"name": "x.dev/wait"}]}}, namespace)


async def test_a_pod_on_no_node_is_deleted_at_once(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)

    await client.delete(PODS, "a", namespace)

    with pytest.raises(NotFound):
        await client.get(PODS, "a", namespace)


@pytest.mark.parametrize("patch", [{"status": {"phase": "Pending"}}, RUNNING])
async def test_a_bound_pod_is_deleted_when_its_node_says_so(
    client: Client, namespace: str, patch: dict[str, Any]
) -> None:
    await client.create(PODS, pod("a", nodeName="node-1"), namespace)
    await client.patch(PODS, "a", patch, namespace, subresource="status")

    await client.delete(PODS, "a", namespace)

    marked = (await client.get(PODS, "a", namespace)).metadata
    assert marked.deletion_timestamp is not None
    assert marked.deletion_grace_period_seconds == 30
    assert marked.generation == 2
    with pytest.raises(Conflict, match="pod a is being deleted, cannot be assigned to a host"):
        await client.create_subresource(PODS, "a", "binding", binding("a", "node-1"), namespace)

    await client.delete(PODS, "a", namespace, uid=marked.uid, grace_period_seconds=0)
    with pytest.raises(NotFound):
        await client.get(PODS, "a", namespace)


async def test_a_grace_period_can_only_be_shortened(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a", nodeName="node-1", terminationGracePeriodSeconds=60), namespace)

    async def grace(seconds: int | None) -> int | None:
        await client.delete(PODS, "a", namespace, grace_period_seconds=seconds)
        return (await client.get(PODS, "a", namespace)).metadata.deletion_grace_period_seconds

    assert [await grace(seconds) for seconds in (None, 90, 10)] == [60, 60, 10]


async def test_a_finished_pod_is_deleted_at_once(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a", nodeName="node-1"), namespace)
    await client.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")

    await client.delete(PODS, "a", namespace)

    with pytest.raises(NotFound):
        await client.get(PODS, "a", namespace)


async def test_a_finished_pod_that_is_being_deleted_is_left_to_its_node(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a", nodeName="node-1"), namespace)
    await client.delete(PODS, "a", namespace)
    await client.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, namespace, subresource="status")

    await client.delete(PODS, "a", namespace)

    assert (await client.get(PODS, "a", namespace)).metadata.deletion_timestamp
    await client.delete(PODS, "a", namespace, grace_period_seconds=0)


async def test_a_finalizer_holds_a_pod_that_its_node_released(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a", nodeName="node-1", metadata={"finalizers": ["x.dev/hold"]}), namespace)
    await client.delete(PODS, "a", namespace)
    await client.delete(PODS, "a", namespace, grace_period_seconds=0)

    held = await client.get(PODS, "a", namespace)
    assert held.metadata.deletion_grace_period_seconds == 0

    await client.patch(PODS, "a", {"metadata": {"finalizers": None}}, namespace)
    with pytest.raises(NotFound):
        await client.get(PODS, "a", namespace)


async def test_an_eviction_deletes(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("a"), namespace)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": namespace}}

    await client.create_subresource(PODS, "a", "eviction", body, namespace)

    with pytest.raises(NotFound):
        await client.get(PODS, "a", namespace)
