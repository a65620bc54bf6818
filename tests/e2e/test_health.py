"""What a pod's status says of its devices' health, and drivers of others on a real kubelet and container runtime.

The further drivers run as programs beside the cluster's node plugins. Nobody negotiates for them: the test itself
allocates, as a controller would.
"""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.cluster.manifests import UNTIL_FINISHED, pod
from tests.cluster.namespace import Namespace
from tests.cluster.watching import until, until_one

from parley.api.resources import BUILTIN_CLAIMS, PODS, RESOURCE_SLICES
from parley.devcluster import Cluster
from parley.devcluster.layout import Node
from parley.devcluster.parley import NAMESPACE, NODE_PLUGIN
from parley.kube.client import Client

pytestmark = pytest.mark.cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "scratch"

OLD_KUBELETS = """
import sys
from parley_kubelet import registration
registration.PREPARING, registration.HEALTH = ("v1beta1.DRAPlugin",), ("v1alpha1.DRAResourceHealth",)
from parley_kubelet.main import main
sys.exit(main())
"""


async def health(team: Namespace, name: str, condition: str) -> Mapping[str, Any]:
    """The pod's one device as its status shows it, as soon as it is in that condition."""
    found = await until_one(
        team.client,
        PODS.untyped(),
        name,
        lambda pod: [resource["health"] for resource in resources(pod)] == [condition],
        f"has a device that is {condition}",
        namespace=team.name,
    )
    (resource,) = resources(found)
    return resource


def resources(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = pod.get("status", {}).get("containerStatuses", ())
    statuses = [status for container in containers for status in container.get("allocatedResourcesStatus", ())]
    return [resource for status in statuses for resource in status["resources"]]


async def test_a_device_node_that_disappears_shows_in_its_pods_status_until_it_is_back(
    cluster: Cluster, team: Namespace
) -> None:
    await team.create(pod("uses-a-0", templates={"gpu": "one"}, nodeSelector={"kubernetes.io/hostname": "node-a"}))
    await team.runs("uses-a-0")
    (entry,) = orjson.loads((cluster.node("node-a").parley_dir / "checkpoint.json").read_bytes())["claims"]
    path = Path(entry["edits"]["deviceNodes"][0]["path"])
    well = await health(team, "uses-a-0", "Healthy")
    assert well["resourceID"] == f"device.parley.dev/claim={entry['uid']}_a-0"

    with missing(path):
        ill = await health(team, "uses-a-0", "Unhealthy")
        await offered(team.client, "node-a", [])

    assert ill["message"] == f"device node {path} is missing"
    await health(team, "uses-a-0", "Healthy")
    await offered(team.client, "node-a", ["a-0"])


@contextmanager
def missing(path: Path) -> Iterator[None]:
    """Without that device node."""
    device = path.stat().st_rdev
    path.unlink()
    try:
        yield
    finally:
        os.mknod(path, stat.S_IFCHR | 0o666, device)


async def offered(client: Client, node: str, devices: list[str], driver: str = "device.parley.dev") -> None:
    """Return when the node publishes these devices and no others."""
    await until(
        client,
        RESOURCE_SLICES,
        lambda slices: [d.name for slice_ in slices.values() for d in slice_.spec.devices] == devices,
        f"{node} publishes {devices}",
        field_selector=f"spec.nodeName={node},spec.driver={driver}",
    )


async def test_a_check_that_fails_shows_in_the_status_with_its_words_also_over_the_protocols_of_old_kubelets(
    cluster: Cluster, team: Namespace, tmp_path: Path
) -> None:
    well = tmp_path / "well"
    well.touch()
    check = {"command": ["sh", "-c", f"test -e {well} || {{ echo too hot; exit 1; }}"], "intervalSeconds": 1}
    device = {"name": "card", "model": "m", "env": {"CARD": "1"}, "check": check}
    file = tmp_path / "devices.yaml"
    file.write_text(yaml.safe_dump({"driver": "checked.example.com", "devices": [device]}))
    node = cluster.node("node-b")
    with program(cluster, node, "checked", tmp_path / "state", [sys.executable, "-c", OLD_KUBELETS], file):
        await offered(team.client, "node-b", ["card"], "checked.example.com")
        handle = {"devices": [{"pool": "node-b", "device": "card"}]}
        await user(team, "uses-card", "checked.example.com", "card", handle, script=UNTIL_FINISHED)
        told = cluster.kubectl("exec", f"--namespace={team.name}", "uses-card", "--", "env").splitlines()
        assert {"PARLEY_DEVICE_CARD=m", "CARD=1"} <= set(told)
        await health(team, "uses-card", "Healthy")

        well.unlink()

        ill = await health(team, "uses-card", "Unhealthy")
        assert ill["message"] == "check sh ended with status 1: too hot"
        await offered(team.client, "node-b", [], "checked.example.com")
        await team.delete(PODS, "uses-card")


async def test_a_drivers_hooks_prepare_what_a_container_finds_and_remove_it_with_the_pod(
    cluster: Cluster, team: Namespace, tmp_path: Path
) -> None:
    folder = tmp_path / "scratch"
    file = tmp_path / "node.yaml"
    settings = {"folder": str(folder), "sizeMiB": 100}
    file.write_text(yaml.safe_dump({"drivers": {"scratch.example.com": settings}}))
    command = [sys.executable, "-m", "parley_kubelet", "--driver", "scratch_node:ScratchNode"]
    with program(cluster, cluster.node("node-b"), "scratch", tmp_path / "state", command, file):
        await offered(team.client, "node-b", ["scratch"], "scratch.example.com")
        script = "touch $SCRATCH/here; " + UNTIL_FINISHED
        await user(team, "sorter", "scratch.example.com", "scratch", {"sizeMiB": 10}, script=script)
        (own,) = folder.iterdir()
        seen = "until [ -e $SCRATCH/here ]; do sleep 0.1; done; echo $SCRATCH_MIB"
        told = cluster.kubectl("exec", f"--namespace={team.name}", "sorter", "--", "sh", "-c", seen)
        assert told.split() == ["10"]
        assert (own / "here").exists()
        await health(team, "sorter", "Healthy")

        await team.delete(PODS, "sorter")

        assert list(folder.iterdir()) == []


@contextmanager
def program(
    cluster: Cluster, node: Node, name: str, state: Path, command: list[str], configuration: Path
) -> Iterator[None]:
    """A further node plugin on the node, with the account of Parley's own."""
    account = cluster.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN)
    options = {
        "kubeconfig": account,
        "node-name": node.name,
        "config": configuration,
        "plugins-dir": node.plugins_dir,
        "plugins-registry-dir": node.plugins_registry_dir,
        "cdi-dir": node.cdi_dir,
        "state-dir": state,
    }
    arguments = [f"--{option}={value}" for option, value in options.items()]
    environment = {"PYTHONPATH": str(EXAMPLE)}
    component = cluster.add_program(f"{name}-{node.name}", [*command, *arguments], environment=environment)
    try:
        yield
    finally:
        component.stop(limit=20)
    assert "Forbidden" not in component.log.read_text()


async def user(
    team: Namespace, name: str, driver: str, device: str, handle: Mapping[str, Any], *, script: str
) -> None:
    """A running pod on node-b with a claim of its name, to which the device is allocated."""
    request = {"name": "it", "exactly": {"deviceClassName": "none"}}
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    await team.client.create(BUILTIN_CLAIMS, body, team.name)
    result = {"request": "it", "driver": driver, "pool": "node-b", "device": device}
    opaque = {"source": "FromClaim", "requests": ["it"], "opaque": {"driver": driver, "parameters": dict(handle)}}
    named = {"key": "metadata.name", "operator": "In", "values": ["node-b"]}
    allocation = {
        "devices": {"results": [result], "config": [opaque]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [named]}]},
    }
    status = {"status": {"allocation": allocation}}
    await team.client.patch(BUILTIN_CLAIMS, name, status, team.name, subresource="status")
    await team.create(pod(name, claims={"it": name}, script=script, nodeName="node-b"))
    await team.runs(name)
