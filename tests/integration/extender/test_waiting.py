"""Many pods wait, and much happens that does not concern them: nothing is written, and nobody loses their turn."""

import asyncio
from collections.abc import Collection

import pytest
from tests.cluster.manifests import ordinary_claim, template
from tests.cluster.namespace import Namespace
from tests.integration.extender.conftest import NODES, Devices, parley_pod
from tests.integration.extender.service import Service

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.resources import NODES as NODE_OBJECTS
from parley.api.resources import POD_SCHEDULINGS, PODS
from parley.kube.client import Client

pytestmark = pytest.mark.cluster

WAITING = 100
CHANGES = 40
EVERY = 0.1


async def versions(client: Client, namespace: str) -> dict[str, str]:
    """Of each pod and PodScheduling that waits."""
    pods, schedulings = await asyncio.gather(
        client.list(PODS, namespace, label_selector="waits"), client.list(POD_SCHEDULINGS, namespace)
    )
    return {
        f"{kind} {item.metadata.name}": item.metadata.resource_version
        for kind, items in (("pod", pods.items), ("scheduling", schedulings.items))
        for item in items
    }


async def test_unrelated_changes_cost_those_who_wait_nothing_and_what_they_wait_for_lets_one_in(
    team: Namespace, devices: Devices, service: Service
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), parley_pod("holder", templates={"gpu": "one"}))
    await team.bound("holder")
    names = [f"w{number}" for number in range(WAITING)]
    for start in range(0, WAITING, 50):
        await asyncio.gather(
            *(
                team.create(parley_pod(name, templates={"gpu": "one"}, labels={"waits": "yes"}))
                for name in names[start : start + 50]
            )
        )
    for name in (names[0], names[-1]):
        await team.waits(name, reasons.NOTHING_VIABLE)
    before = await at_rest(team)

    asked = service.calls["filter"]
    # of either the scheduler takes note, and tries all who wait again
    for number in range(CHANGES):
        await asyncio.sleep(EVERY)
        await team.create(ordinary_claim(f"unrelated-{number}", "unrelated"))
        note = {"metadata": {"annotations": {"test.example.com/unrelated": str(number)}}}
        await team.client.patch(NODE_OBJECTS, NODES[number % len(NODES)], note)
    print(f"{service.calls['filter'] - asked} filter calls for {2 * CHANGES} unrelated changes")

    assert await versions(team.client, team.name) == before
    await team.finish("holder")
    await team.pods(
        lambda pods: sum(bool(pod.spec.node_name) for pod in pods if "waits" in pod.metadata.labels) == 1,
        "one is in",
    )


def bound_ones(pods: Collection[Pod]) -> list[Pod]:
    return [pod for pod in pods if "waits" in pod.metadata.labels and pod.spec.node_name]


async def at_rest(team: Namespace) -> dict[str, str]:
    """The versions, when all who wait have been told why and nothing has changed for some seconds."""
    await team.pods(
        lambda pods: all(was_told(pod) for pod in pods if "waits" in pod.metadata.labels), "all are told"
    )
    seen: dict[str, str] = {}
    while len(seen) < 2 * WAITING or seen != (now := await versions(team.client, team.name)):
        seen = await versions(team.client, team.name)
        await asyncio.sleep(4)
    return now


def was_told(pod: Pod) -> bool:
    return any("see the pod's podscheduling" in condition.message for condition in pod.status.conditions)
