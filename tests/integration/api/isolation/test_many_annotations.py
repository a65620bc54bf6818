"""Claims with very many annotations and finalizers: the policies' cost, and that drivers can still mark them."""

import pytest
from benchmarks.usage import Process, cpu_seconds
from tests.integration.api.isolation.conftest import CLASS, DISKS, MARKS, Claim

from parley.api.resources import CLAIMS
from parley.kube.client import Client, Forbidden
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


async def test_very_many_annotations_and_finalizers_cost_no_more_than_a_policy_may(
    user: Client, namespace: str
) -> None:
    finalizers = [f"example.com/f{number}" for number in range(10_000)]
    annotations = {f"a{number}": "" for number in range(20_000)}
    meta = {"name": "one", "finalizers": finalizers, "annotations": annotations}
    spec = {"resourceClassName": CLASS[DISKS]}
    marked = {**meta, "annotations": {**annotations, **MARKS["annotations"]}}
    with pytest.raises(Forbidden, match=f"cannot set, change or remove {DISKS}/allocating-on in"):
        await user.create(CLAIMS, {"metadata": marked, "spec": spec}, namespace)

    await user.create(CLAIMS, {"metadata": meta, "spec": spec}, namespace)
    await user.patch(CLAIMS, "one", {"metadata": {"annotations": {"a0": "b"}}}, namespace)
    await user.patch(CLAIMS, "one", {"metadata": {"finalizers": None}}, namespace)


async def test_very_many_annotations_cost_a_driver_little_more_than_they_cost_the_api_server(
    cluster: Cluster, own: Claim, user: Client
) -> None:
    """In its CPU time, compared with writes of an administrator, to whom no policy applies."""
    server = Process("kube-apiserver", str(cluster.component("kube-apiserver").pid))
    many = {f"a{number}": "" for number in range(15_000)}
    await user.patch(CLAIMS, "one", {"metadata": {"annotations": many}}, own.namespace)
    before = cpu_seconds(server)
    for value in ("1", "2", None):
        labels = {"labels": {"example.com/mine": value}}
        await own.admin.patch(CLAIMS, "one", {"metadata": labels}, own.namespace)
    unguarded = cpu_seconds(server) - before

    await own.mark({**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]]})
    await own.mark({"annotations": {f"{DISKS}/allocating-on": "n2"}})
    await own.mark({"finalizers": ["parley.dev/in-use"], "annotations": {f"{DISKS}/allocating-on": None}})

    assert cpu_seconds(server) - before - unguarded < 4 * unguarded
    with pytest.raises(Forbidden, match="change no other metadata"):
        await own.mark({"annotations": {f"{DISKS}/allocating-on": "n1", "a7": None}})


async def test_the_largest_claims_are_drivers_to_mark(own: Claim, user: Client) -> None:
    """What a policy may cost is limited by the API server, and a write that would cost more is refused."""
    for annotations, finalizers in (
        ({"a": "\1" * 150_000}, []),
        ({f"{number:x}": "" for number in range(50_000)}, []),
        ({}, ["example.com/a"] * 40_000),
    ):
        kept = ["parley.dev/in-use", *finalizers]
        body = {"annotations": annotations, "finalizers": kept}
        await user.patch(CLAIMS, "one", {"metadata": body}, own.namespace)
        await own.mark({**MARKS, "finalizers": [*kept, *MARKS["finalizers"]]})
        await own.mark({"finalizers": kept, "annotations": {f"{DISKS}/allocating-on": None}})
        await user.patch(CLAIMS, "one", {"metadata": {"annotations": None}}, own.namespace)


async def test_a_claim_does_not_get_more_drivers_finalizers_than_any_has(user: Client, namespace: str) -> None:
    finalizers = [f"x{number}.example.com/deletion-protection" for number in range(20_000)]
    body = {"metadata": {"name": "one", "finalizers": finalizers}, "spec": {"resourceClassName": CLASS[DISKS]}}

    with pytest.raises(Forbidden) as refused:
        await user.create(CLAIMS, body, namespace)

    assert (
        f"ResourceClaim {namespace}/one has more than 64 finalizers <driver>/deletion-protection and annotations "
        "<driver>/allocating-on: leave its annotations, and these finalizers, as they are." in str(refused.value)
    )
