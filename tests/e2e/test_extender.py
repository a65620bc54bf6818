"""The second scheduler with real nodes: pods run with their devices, and what a kubelet refuses is released."""

import asyncio
from urllib.request import Request, urlopen

import orjson
import pytest
from tests.cluster.manifests import Manifest, pod
from tests.cluster.namespace import Namespace

from parley.api.resources import PODS
from parley.sdk import Device
from parley_devcluster import Cluster
from parley_devcluster.second_scheduler import SCHEDULER_NAME

pytestmark = pytest.mark.cluster


def second(name: str) -> Manifest:
    """A pod of the second scheduler that wants the one device of node-a."""
    only_there = {"kubernetes.io/hostname": "node-a"}
    return pod(name, templates={"gpu": "one"}, schedulerName=SCHEDULER_NAME, nodeSelector=only_there)


async def test_a_pod_of_the_second_scheduler_runs_with_its_device(team: Namespace) -> None:
    await team.create(second("p"))

    await team.runs("p")

    assert await team.devices("p") == {Device("node-a", "a-0")}


def bind(extender: str, call: dict[str, str]) -> str:
    """What the extender says to a scheduler that has chosen the node."""
    request = Request(f"http://{extender}/bind", orjson.dumps(call), {"Content-Type": "application/json"})
    with urlopen(request, timeout=120) as answer:
        return str(orjson.loads(answer.read())["Error"])


async def test_a_pod_that_the_kubelet_turns_down_gives_its_device_back(
    cluster: Cluster, team: Namespace, extender: str
) -> None:
    large = second("large")
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
    await team.create(large)
    unbound = await team.client.get(PODS, "large", team.name)

    call = {"PodName": "large", "PodNamespace": team.name, "PodUID": unbound.metadata.uid, "Node": "node-a"}
    assert await asyncio.to_thread(bind, extender, call) == ""  # a scheduler that did not know of the node's CPUs

    await team.pod("large", lambda pod: pod.status.phase == "Failed", "is turned down")
    await team.create(second("next"))
    await team.runs("next")
    assert await team.devices("next") == {Device("node-a", "a-0")}
