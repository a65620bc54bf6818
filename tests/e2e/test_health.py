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
from tests.cluster.node_plugins import (
    SCRATCH,
    SCRATCH_DRIVER,
    allocated,
    offered,
    plugin,
    scratch_settings,
)
from tests.cluster.watching import until_one

from parley.api.resources import PODS
from parley_devcluster import Cluster

pytestmark = pytest.mark.cluster

OLD_KUBELETS = """
import sys
from parley_kubelet.serving import registration
registration.HEALTH = ("v1alpha1.DRAResourceHealth",)
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
    python = [sys.executable, "-c", OLD_KUBELETS]
    with plugin(cluster, node, "checked", file, state=tmp_path / "state", python=python):
        await offered(team.client, "node-b", ["card"], "checked.example.com")
        handle = {"devices": [{"pool": "node-b", "device": "card"}]}
        user = pod("uses-card", claims={"it": "uses-card"})
        await allocated(team, "uses-card", "node-b", "checked.example.com", "card", handle, user)
        await team.runs("uses-card")
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
    file.write_text(yaml.safe_dump({"drivers": scratch_settings(folder)}))
    node = cluster.node("node-b")
    with plugin(cluster, node, "scratch", file, *SCRATCH_DRIVER, state=tmp_path / "state"):
        await offered(team.client, "node-b", ["scratch"], SCRATCH)
        script = "touch $SCRATCH/here; " + UNTIL_FINISHED
        user = pod("sorter", claims={"it": "sorter"}, script=script)
        await allocated(team, "sorter", "node-b", SCRATCH, "scratch", {"sizeMiB": 10}, user)
        await team.runs("sorter")
        (own,) = folder.iterdir()
        seen = "until [ -e $SCRATCH/here ]; do sleep 0.1; done; echo $SCRATCH_MIB"
        told = cluster.kubectl("exec", f"--namespace={team.name}", "sorter", "--", "sh", "-c", seen)
        assert told.split() == ["10"]
        assert (own / "here").exists()
        await health(team, "sorter", "Healthy")

        await team.delete(PODS, "sorter")

        assert list(folder.iterdir()) == []
