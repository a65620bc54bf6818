"""Conditions of claims as users wait for them: with the kubectl of the cluster, in both allocation modes."""

import asyncio

import pytest
from tests.cluster.manifests import claim, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.raw import raw
from tests.integration.native.conftest import Devices, Parley
from tests.support.conditions import condition, ready

from parley.api.resources import CLAIMS, PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster


class Waiting:
    """`kubectl wait` for claims of a namespace, beside what the test does meanwhile."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace

    async def kubectl(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._cluster.kubectl, "-n", self._namespace, *arguments)

    async def until(self, condition: str, claim: str) -> str:
        wait = ("wait", f"--for=condition={condition}", f"prclaim/{claim}", "--timeout=60s")
        return await self.kubectl(*wait)


@pytest.fixture
def user(cluster: Cluster, team: Namespace) -> Waiting:
    return Waiting(cluster, team.name)


async def test_a_claim_becomes_allocated_and_ready_with_its_first_pod(
    team: Namespace, devices: Devices, user: Waiting
) -> None:
    await devices(node_0=1)
    await team.create(claim("mine"))
    await user.until("Allocated=false", "mine")
    waiting = asyncio.create_task(user.until("Allocated", "mine"))
    await team.create(pod("first", claims={"gpu": "mine"}))

    assert await waiting == "resourceclaim.parley.dev/mine condition met\n"
    await user.until("Ready", "mine")
    found = await team.parley_claim("mine", lambda c: ready(c) == "Ready", "is ready")
    assert condition(found, "Allocated").message == "allocated on node node-0"
    assert {c.observed_generation for c in found.status.conditions} == {found.metadata.generation}

    shown = await user.kubectl("get", "prclaims", "-o", "wide")
    headings = "NAME CLASS ALLOCATED READY DRIVER AGE MODE RESERVED-FOR KEPT-UNTIL REASON ALLOCATION"
    assert " ".join(shown.split()[:11]) == headings
    assert shown.split()[-7:] == ["WaitForFirstConsumer", "first", "Ready", "allocated", "on", "node", "node-0"]

    await team.client.delete(CLAIMS, "mine", team.name)  # while the pod uses it
    await user.until("Ready=false", "mine")
    await team.delete(PODS, "first")


async def test_a_claim_without_a_pod_becomes_allocated_and_ready_too(
    team: Namespace, devices: Devices, user: Waiting
) -> None:
    immediate = claim("mine")
    immediate["spec"]["allocationMode"] = "Immediate"
    await team.create(immediate)
    await user.until("Allocated=false", "mine")
    waiting = asyncio.gather(user.until("Allocated", "mine"), user.until("Ready", "mine"))
    await devices(node_0=1)
    await waiting

    shown = (await user.kubectl("get", "prclaims")).splitlines()
    assert shown[0].split() == ["NAME", "CLASS", "ALLOCATED", "READY", "DRIVER", "AGE"]
    assert shown[1].split()[2:4] == ["True", "True"]


async def test_nothing_is_allocated_or_ready_of_a_class_that_is_not_there(team: Namespace, user: Waiting) -> None:
    await team.create(claim("mine", "nowhere"))
    await user.until("Ready=false", "mine")
    found = await team.parley_claim("mine", lambda c: ready(c) == "ClassNotFound", "says what is missing")
    assert condition(found, "Allocated").reason == "WaitForFirstConsumer"


async def test_a_status_of_an_earlier_version_is_taken_and_completed(
    team: Namespace, cluster: Cluster, user: Waiting, parley: Parley
) -> None:
    """Earlier ones had `state`, which the API server drops now."""
    await parley.kill()
    await team.create(claim("mine"))
    path = CLAIMS.path(team.name, "mine", "status")
    raw(cluster).patch(path, {"status": {"state": "pending", "conditions": []}})
    await parley.start()
    await user.until("Allocated=false", "mine")
    assert "state" not in raw(cluster).get(CLAIMS.path(team.name, "mine"))["status"]


async def test_a_class_says_whether_its_driver_is_there_and_what_is_free(
    team: Namespace, devices: Devices, user: Waiting
) -> None:
    await devices(node_0=2, node_1=1)
    await team.create(resource_class("other", "nobody.example.com"), claim("mine"))
    wait = ("wait", "--timeout=60s")
    await user.kubectl(*wait, "--for=condition=Ready", "prclass/gpu")
    await user.kubectl(*wait, "--for=condition=Ready=false", "prclass/other")
    await user.kubectl(*wait, "--for=jsonpath={.status.free}=3", "prclass/gpu")
    await team.create(pod("first", claims={"gpu": "mine"}))
    await user.kubectl(*wait, "--for=jsonpath={.status.free}=2", "prclass/gpu")

    shown = (await user.kubectl("get", "prclasses", "-o", "wide")).splitlines()
    head = "NAME DRIVER READY TOTAL FREE AGE SHAREABLE PLACEMENT NODE-PART REASON"
    assert " ".join(shown[0].split()) == head
    gpu, other = (line.split() for line in shown[1:])
    assert gpu[:5] == ["gpu", "device.parley.dev", "True", "3", "2"]
    assert gpu[6:] == ["false", "Optimistic", "Required", "InController"]
    assert other[:3] == ["other", "nobody.example.com", "False"]
    assert other[-1] == "DriverMissing"


async def test_a_limit_goes_by_the_labels_of_namespaces(team: Namespace, devices: Devices, user: Waiting) -> None:
    await devices(node_0=2)
    gold = {"namespaceSelector": {"matchLabels": {"tier": "gold"}}, "claims": 1}
    await team.create(resource_class("few", limits=[{"claims": 0}, gold]), template("few", "few"))
    await team.create(pod("first", templates={"gpu": "few"}))
    await team.waits("first", "LimitReached")
    await user.kubectl("label", "namespace", team.name, "tier=gold")
    await team.bound("first")
    await team.create(pod("second", templates={"gpu": "few"}))
    await team.waits("second", "LimitReached")
