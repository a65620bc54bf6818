"""One claim for a run's pods, made by the first of them and deleted with the run, by Kubernetes' own collector."""

import asyncio
from typing import Any

import pytest
from tests.cluster.manifests import Manifest, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.watching import until_one
from tests.integration.native.conftest import Devices

from parley.api import reasons
from parley.api.resources import CLAIMS, CONFIG_MAPS, PODS, Resource

pytestmark = pytest.mark.cluster

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict[str, Any])
RUN, UID = "example.com/run", "example.com/run-uid"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "nameLabel": RUN, "uidLabel": UID}


def shared(name: str, class_name: str) -> Manifest:
    made = template(name, class_name)
    return {**made, "spec": {**made["spec"], "sharedBy": {"podLabel": UID, "owner": OWNER}}}


async def a_run(team: Namespace, name: str) -> dict[str, str]:
    """A run, which is a ConfigMap here, and the labels of its pods."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    made = await team.client.create(CONFIG_MAPS, body, team.name)
    return {RUN: name, UID: made.metadata.uid}


@pytest.fixture
async def runs(team: Namespace, devices: Devices) -> Namespace:
    """A namespace with a device on each of two nodes, and a template for what a run's pods share."""
    await devices(node_0=1, node_1=1)
    await team.create(resource_class(f"{team.name}-shared", shareable=True), shared("src", f"{team.name}-shared"))
    return team


async def test_a_run_s_pods_share_a_claim_that_goes_with_the_run(runs: Namespace) -> None:
    labels = await a_run(runs, "run-1")
    claim = f"src-{labels[UID]}"
    await asyncio.gather(
        *(runs.create(pod(name, claims={"work": claim}, labels=labels)) for name in ("left", "right"))
    )
    nodes = {(await runs.bound(name)).spec.node_name for name in ("left", "right")}
    assert len(nodes) == 1
    (made,) = (await runs.client.list(CLAIMS, runs.name)).items
    assert (made.metadata.name, made.metadata.annotations) == (claim, {"parley.dev/made-from": "src"})
    (owner,) = made.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("ConfigMap", "run-1", labels[UID])

    await runs.client.delete(CONFIG_MAPS, "run-1", runs.name)
    for name in ("left", "right"):
        await runs.finish(name)
    await runs.gone(CLAIMS, claim)


async def test_a_pod_without_the_label_is_told_and_goes_on_when_it_has_it(runs: Namespace) -> None:
    labels = await a_run(runs, "run-2")
    claim = f"src-{labels[UID]}"
    await runs.create(pod("bare", claims={"work": claim}, labels={RUN: "run-2"}))
    message = await runs.waits("bare", reasons.CLAIM_NOT_MADE)
    assert message == (
        f"claim {runs.name}/{claim} does not exist, and template {runs.name}/src creates claims by the label "
        f"'example.com/run-uid' (spec.sharedBy.podLabel), which pod {runs.name}/bare does not have: set it in "
        "metadata.labels, or create the claim"
    )
    assert await runs.told("bare", reasons.CLAIM_NOT_MADE) == message

    await runs.client.patch(PODS, "bare", {"metadata": {"labels": {UID: labels[UID]}}}, runs.name)

    await runs.bound("bare")


async def test_a_quota_bounds_the_claims_that_pods_have_made(runs: Namespace) -> None:
    hard = {"count/resourceclaims.parley.dev": "0"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    await runs.client.create(QUOTAS, quota, runs.name)
    await until_one(
        runs.client,
        QUOTAS,
        "few",
        lambda found: "used" in found.get("status", {}),
        "is counted",
        namespace=runs.name,
    )
    labels = await a_run(runs, "run-3")
    await runs.create(pod("many", claims={"work": f"src-{labels[UID]}"}, labels=labels))

    message = await runs.waits("many", reasons.WRITE_REFUSED)
    assert "exceeded quota: few, requested: count/resourceclaims.parley.dev=1" in message

    await runs.client.delete(QUOTAS, "few", runs.name)
    await runs.bound("many")
