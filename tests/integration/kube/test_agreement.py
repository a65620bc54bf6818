"""Random writes of several managers, on both servers at once: whatever the real one answers, so does the other."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.kube.objects import DRIVER, pod_scheduling

from parley.api.resources import POD_SCHEDULINGS
from parley.devcluster import Cluster
from parley.kube.client import ApiError, Client, PatchType
from parley.kube.http import HttpClient
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.cluster

SCHEDULING = POD_SCHEDULINGS.untyped()


def name_of(entry: Any) -> str:
    return str(entry["name"])


nodes = st.lists(st.sampled_from(["node-1", "node-2"]), max_size=2)
entries = st.fixed_dictionaries(
    {"name": st.sampled_from(["gpu", "disk"]), "driverName": st.just(DRIVER), "round": st.integers(0, 1)},
    optional={
        "viableNodes": nodes,
        "reason": st.sampled_from(["", "busy"]),
        "alternatives": st.fixed_dictionaries({}, optional={"nodes": nodes}),
    },
)
contents = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), max_size=2),
        "finalizers": st.lists(st.sampled_from(["x.dev/one", "x.dev/two"]), unique=True, max_size=2),
        "spec": st.fixed_dictionaries({}, optional={"candidateNodes": nodes, "round": st.integers(0, 2)}),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "claims": st.lists(entries, max_size=2, unique_by=name_of),
                "waitingFor": st.sampled_from(["", "NoCandidates"]),
            },
        ),
    },
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["apply", "apply", "force", "merge", "create", "delete"]),
        st.sampled_from(["one", "two"]),
        contents,
    ),
    min_size=2,
    max_size=8,
)
Step = tuple[str, str, dict[str, Any]]


def body_of(content: dict[str, Any]) -> dict[str, Any]:
    """The content as a body: labels and finalizers belong into the metadata."""
    inner = {field: content[field] for field in ("spec", "status") if field in content}
    body = pod_scheduling("web", **inner)
    body["metadata"] |= {field: content[field] for field in ("labels", "finalizers") if field in content}
    return body


async def take(client: Client, namespace: str, step: Step) -> object:
    """What the server answers: the object without what every server makes up, or its refusal."""
    verb, manager, content = step
    body = body_of(content)
    try:
        if verb == "delete":
            await client.delete(SCHEDULING, "web", namespace)
            return "deleted"
        if verb == "create":
            return told(await client.create(SCHEDULING, body, namespace, field_manager=manager))
        kind = PatchType.MERGE if verb == "merge" else PatchType.APPLY
        force = verb == "force"
        changed = await client.patch(
            SCHEDULING, "web", body, namespace, patch_type=kind, field_manager=manager, force=force
        )
        return told(changed)
    except ApiError as error:
        return error.status, error.reason


def told(found: dict[str, Any]) -> dict[str, Any]:
    meta = {field: found["metadata"].get(field) or None for field in ("labels", "finalizers", "generation")}
    return {**dict(without_empty(found)), "metadata": {**meta, "going": "deletionTimestamp" in found["metadata"]}}


def without_empty(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """`spec: {}` and no spec say the same."""
    for field in ("spec", "status"):
        if found.get(field):
            yield field, found[field]


async def end(client: Client, namespace: str) -> None:
    """Remove the object, whatever holds it."""
    try:
        await client.patch(SCHEDULING, "web", {"metadata": {"finalizers": None}}, namespace)
        await client.delete(SCHEDULING, "web", namespace)
    except ApiError:
        pass  # gone already, which is as good


async def run(kubeconfig: str, taken: list[Step]) -> None:
    memory = MemoryServer().client()
    async with HttpClient.from_kubeconfig(kubeconfig) as real:
        await end(real, "default")
        for number, step in enumerate(taken):
            expected, actual = await take(real, "default", step), await take(memory, "default", step)
            assert actual == expected, f"step {number}: {step}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(taken=steps)
def test_both_servers_answer_alike(control_plane: Cluster, taken: list[Step]) -> None:
    asyncio.run(run(str(control_plane.kubeconfig), taken))
