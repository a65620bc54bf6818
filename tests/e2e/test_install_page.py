"""docs/install.md on two real nodes: a shell runs its blocks as they stand there, from the chart to a pod with a
device, through an upgrade and a removal that is refused, and back to nothing; docs/runbook.md's look closer.

Only what is this machine's own comes from here: Parley's image under the name that the page has, without a
registry, and the folders of its two kubelets.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.deployed import logs, machine
from tests.cluster.starting import DEPLOY, require_machine
from tests.support.shell import PROGRAMS, path, tried
from tests.support.shown import below

from parley_devcluster import Cluster, manifests

pytestmark = pytest.mark.cluster

PAGE = (DEPLOY.parent / "docs" / "install.md").read_text()
NODES = ("a", "b")


def blocks(title: str, language: str = "") -> list[str]:
    """The code blocks below that heading, up to the next one."""
    below = PAGE.split(f"# {title}\n", 1)[1]
    outside = re.split(r"^##+ ", below, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^```(\w*)\n(.*?)^```$", outside, flags=re.DOTALL | re.MULTILINE)
    return [text for written_in, text in found if written_in == language]


(VALUES,) = blocks("With helm", "yaml")
CONTAINER = "kubectl get pod mounter -o jsonpath='{.status.containerStatuses[*].containerID}'"
ALLOW, INSTALL = blocks("With helm")
(POD,) = blocks("A first pod", "yaml")
USE, END = blocks("A first pod")
(UPGRADE,) = blocks("Upgrade")
REMOVE, _, KEEP = blocks("Remove")[:3]
RUNBOOK = (DEPLOY.parent / "docs" / "runbook.md").read_text()


@dataclass(frozen=True)
class Shell:
    """A shell of an administrator, in a folder with a checkout's deploy/ and the files that the page shows."""

    cluster: Cluster
    folder: Path

    def __call__(self, block: str) -> str:
        """What the block prints; fails with its errors at the first command that fails."""
        done = self.tried(block)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs(self.cluster)[-3000:]}"
        return done.stdout

    def tried(self, block: str) -> subprocess.CompletedProcess[str]:
        """What became of the block."""
        programs = path(manifests.helm().parent, self.cluster.directory / "bin", PROGRAMS)
        own = {"PATH": programs, "HOME": str(self.folder), "KUBECONFIG": str(self.cluster.kubeconfig)}
        return tried(f"set -x\n{block}", self.folder, own)


def here(cluster: Cluster, values: dict[str, Any]) -> dict[str, Any]:
    """The page's values; its pool is one for each node, whose kubelet has a folder of its own on this machine."""
    (pool,) = values["nodePlugin"]["pools"]
    places = {
        node.name: {"kubeletFolder": str(node.kubelet_dir), "cdiFolder": str(node.cdi_dir)}
        for node in cluster.nodes
    }
    pools = [
        {**pool, "name": name, "nodeSelector": {"kubernetes.io/hostname": name}, **folders}
        for name, folders in places.items()
    ]
    return {**values, "nodePlugin": {"pools": pools}}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    require_machine(real_nodes=True)
    values = yaml.safe_load(VALUES)
    parley = "{repository}:{tag}".format(**values["image"])
    with machine(tmp_path_factory.mktemp("machine"), NODES, parley) as cluster:
        folder = tmp_path_factory.mktemp("administrator")
        (folder / "deploy").symlink_to(DEPLOY)
        (folder / "values.yaml").write_text(yaml.safe_dump(here(cluster, values)))
        (folder / "pod.yaml").write_text(POD)
        yield Shell(cluster, folder)


def look_closer(shell: Shell) -> None:
    """As the runbook says."""
    pods, controllers, plugins, schedulings, waiting, explain = below(RUNBOOK, "Runbook")
    assert len(re.findall(r"(?m)^parley-\S+ +1/1 +Running", shell(pods))) == 4
    assert "lease acquired" in shell(controllers)
    said = shell.tried(plugins)  # nothing, while all is well
    assert (said.returncode, "No resources found" in said.stderr) == (0, False)
    assert "mounter" in shell(schedulings)
    assert "mounter" not in shell(waiting)
    shell(explain)


def test_from_the_chart_to_a_pod_with_a_device_and_back(shell: Shell) -> None:
    shell(ALLOW)
    shell(INSTALL)
    plugins = shell(
        "kubectl -n parley-system get pods -l app.kubernetes.io/name=parley-kubelet -o wide --no-headers"
    )
    assert {line.split()[6] for line in plugins.splitlines()} == set(NODES)

    used = shell(USE)

    assert "pod/mounter condition met" in used
    assert re.search(r"^c\S+ .* /dev/fuse$", used, flags=re.MULTILINE)
    node = shell("kubectl get pod mounter -o jsonpath='{.spec.nodeName}'")
    assert node in NODES
    assert re.search(rf"^mounter .* {node} ", used, flags=re.MULTILINE)

    look_closer(shell)
    container = shell(CONTAINER)
    shell(UPGRADE)
    refused = shell.tried(REMOVE)
    assert refused.returncode != 0
    assert re.search(r"claim default/mounter-fuse-\w+ is used by pod mounter: delete the pod", refused.stderr)
    history = shell(KEEP)
    assert re.search(r"(?m)^3\s.*\buninstalling\b", history)
    assert shell(CONTAINER) == container

    shell(END)
    shell(REMOVE)

    assert shell("kubectl -n parley-system get deployments,daemonsets --output=name") == ""
    assert shell("kubectl get resourceclaims.resource.k8s.io,podschedulings -A --output=name") == ""
