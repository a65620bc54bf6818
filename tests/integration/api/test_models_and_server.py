"""What the real API server takes of each of our kinds, the model reads; what the one in memory takes is the same.

The objects are made from the CRDs, with texts, numbers, lists and names at limits, of wrong types, null, odd.
Nothing is kept (`dryRun`), so that one moment of a server does for thousands.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from tests.cluster.mutated import METADATA, mutated
from tests.cluster.raw import Refused, raw

from parley.api.crd import structural_schema
from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES, POD_SCHEDULINGS, TEMPLATES, Resource
from parley.kube.client import ApiError
from parley.kube.memory import MemoryServer
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

KINDS = (CLASSES, CLAIMS, TEMPLATES, POD_SCHEDULINGS, CLAIM_RELEASES)
EXAMPLES = 200
NAMESPACE = "default"


def content_of(resource: Resource[Any], *parts: str) -> dict[str, Any]:
    """The schema of the object without what all kinds have, or with these parts only."""
    schema = structural_schema(resource.type)
    left = parts or tuple(schema["properties"].keys() - {"apiVersion", "kind", "metadata"})
    required = [name for name in schema.get("required", ()) if name in left]
    return {
        "type": "object",
        "properties": {name: schema["properties"][name] for name in left},
        "required": required,
    }


def object_of(resource: Resource[Any], meta: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**content, **identity, "metadata": {**meta, "name": "mutated"}}


def real(cluster: Cluster, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | str:
    """What the server would keep, or its refusal."""
    kind = "application/json" if method == "POST" else "application/merge-patch+json"
    try:
        kept = raw(cluster).request(method, f"{path}?dryRun=All", body, kind)
    except Refused as error:
        if error.status not in (400, 422):
            raise
        return str(error)
    found: dict[str, Any] = json.loads(json.dumps(kept), parse_int=as_in_go)  # Go writes such numbers in full
    return found


def as_in_go(digits: str) -> int | float:
    """What 64 bits can't hold is read as a number with a point."""
    number = int(digits)
    return number if -(2**63) <= number < 2**63 else float(digits)


async def in_memory(resource: Resource[Any], body: dict[str, Any], status: Any = None) -> dict[str, Any] | str:
    client, untyped = MemoryServer().client(), resource.untyped()
    namespace = NAMESPACE if resource.namespaced else None
    try:
        kept = await client.create(untyped, json.loads(json.dumps(body), parse_int=as_in_go), namespace)
        if status is None:
            return kept
        patch = json.loads(json.dumps({"status": status}), parse_int=as_in_go)
        return await client.patch(untyped, "mutated", patch, namespace, subresource="status")
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return str(error)


def agree(real: dict[str, Any] | str, memory: dict[str, Any] | str) -> None:
    """Both refuse, or both keep the same."""
    if isinstance(real, str) or isinstance(memory, str):
        assert isinstance(real, str) == isinstance(memory, str), f"real: {real}\nin memory: {memory}"
        return
    for field in (real.keys() | memory.keys()) - {"metadata"}:
        assert memory.get(field) == real.get(field), field
    for field in ("labels", "annotations", "finalizers"):
        assert memory["metadata"].get(field) == real["metadata"].get(field), field


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> Iterator[Cluster]:
    """The server, over one connection."""
    with raw(control_plane).kept_open():
        yield control_plane


@pytest.fixture(scope="module")
def claim(server: Cluster) -> dict[str, Any]:
    """A claim that is there."""
    body = object_of(CLAIMS, {}, {"spec": {"resourceClassName": "gpu"}})
    raw(server).post(CLAIMS.path(NAMESPACE), body)
    return body


ours = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize("resource", KINDS, ids=lambda resource: resource.plural)
def test_what_the_server_takes_the_model_reads(server: Cluster, resource: Resource[Any]) -> None:
    path = resource.path(NAMESPACE if resource.namespaced else None)

    @seed(11)
    @ours
    @given(METADATA, mutated(content_of(resource)))
    def check(meta: dict[str, Any], content: dict[str, Any]) -> None:
        body = object_of(resource, meta, content)
        kept = real(server, "POST", path, body)
        if not isinstance(kept, str):
            resource.decode(json.dumps(kept).encode())
        agree(kept, asyncio.run(in_memory(resource, body)))

    check()


@pytest.mark.parametrize("time", [[], ["2026-01-01T00:00:00Z"], {}, 5, "soon", "2026-13-01T00:00:00Z"], ids=repr)
def test_what_is_no_time_is_refused(server: Cluster, claim: dict[str, Any], time: Any) -> None:
    """Lists too, which the API server takes for times where no rule says that they are none."""
    condition = {"type": "Odd", "status": "True", "reason": "Odd", "message": "", "lastTransitionTime": time}
    path = CLAIMS.path(NAMESPACE, claim["metadata"]["name"], "status")
    for status in ({"keptUntil": time}, {"conditions": [condition]}):
        assert "422" in str(real(server, "PATCH", path, {"status": status}))


def test_what_the_server_takes_for_a_claims_status_the_model_reads(server: Cluster, claim: dict[str, Any]) -> None:
    @seed(11)
    @ours
    @given(mutated(content_of(CLAIMS, "status")))
    def check(content: dict[str, Any]) -> None:
        status = content.get("status")
        path = CLAIMS.path(NAMESPACE, "mutated", "status")
        kept = real(server, "PATCH", path, {"status": status})
        if not isinstance(kept, str):
            CLAIMS.decode(json.dumps(kept).encode())
        if status is not None:
            agree(kept, asyncio.run(in_memory(CLAIMS, claim, status)))

    try:
        check()
    finally:
        raw(server).request("DELETE", CLAIMS.path(NAMESPACE, "mutated"))


@pytest.mark.parametrize("size", [253, 254, 317, 318])
def test_a_label_of_a_template_is_as_long_as_kubernetes_takes_it(server: Cluster, size: int) -> None:
    """254 characters passed the server and stopped the watch of templates."""
    labels = {"a" * size: "a"}
    body = object_of(
        TEMPLATES, {}, {"spec": {"metadata": {"labels": labels}, "spec": {"resourceClassName": "gpu"}}}
    )

    kept = real(server, "POST", TEMPLATES.path(NAMESPACE), body)

    if size <= 317:
        assert not isinstance(kept, str)
        assert TEMPLATES.decode(json.dumps(kept).encode()).spec.metadata.labels == labels
    else:
        assert (
            "the name of a label has at most 317 characters (63 after its prefix), its value at most 63." in kept
        )
