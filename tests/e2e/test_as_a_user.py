"""What the README promises: a cluster by one command, the examples with plain kubectl, and nothing left of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.starting import directory, require_machine

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[2] / "examples"


def parley(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parley", "cluster", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Kubectl:
    """kubectl with the kubeconfig that the command printed."""

    def __init__(self, place: Path, kubeconfig: str) -> None:
        self._program = place / "bin" / "kubectl"
        self._environment = {**os.environ, "KUBECONFIG": kubeconfig, "HOME": str(place)}

    def __call__(self, *arguments: str | Path) -> str:
        command = [str(self._program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    require_machine(real_nodes=True)
    with directory() as path:
        yield path


@pytest.fixture(scope="module")
def kubectl(place: Path) -> Kubectl:
    """In a new cluster with the first example."""
    up = parley("up", "--directory", place)
    assert up.returncode == 0, up.stderr
    (kubeconfig,) = up.stdout.split()
    kubectl = Kubectl(place, kubeconfig)
    kubectl("apply", "-f", EXAMPLES / "gpu.yaml")
    kubectl("wait", "--for=condition=Ready", "pod/gpu", "pod/reader", "--timeout=150s")
    return kubectl


def rows(table: str) -> dict[str, list[str]]:
    """The lines of a table after its head, by their first word, without the age."""
    return {line.split()[0]: line.split()[1:-1] for line in table.splitlines()[1:]}


def test_podschedulings_show_how_the_negotiation_went(kubectl: Kubectl) -> None:
    node = kubectl("get", "pod", "gpu", "-o", "jsonpath={.spec.nodeName}")
    for name in ("gpu", "reader"):  # told a moment after the pod is bound
        kubectl("wait", "--for=create", f"podscheduling/{name}", "--timeout=120s")
        kubectl("wait", "--for=jsonpath={.spec.selectedNode}", f"podscheduling/{name}", "--timeout=120s")

    shown = kubectl("get", "podschedulings")

    assert shown.split()[:6] == ["NAME", "CANDIDATES", "VIABLE", "SELECTED", "WAITING-FOR", "AGE"]
    assert rows(shown)["gpu"][-1] == node
    assert rows(shown)["reader"][-1] == "node-2"


def test_named_claims_show_their_conditions(kubectl: Kubectl) -> None:
    shown = kubectl("get", "prclaims")

    assert shown.split()[:6] == ["NAME", "CLASS", "ALLOCATED", "READY", "DRIVER", "AGE"]
    assert rows(shown)["scanner"] == ["gpu", "True", "True", "device.parley.dev"]


def test_the_container_has_its_device(kubectl: Kubectl) -> None:
    node = kubectl("get", "pod", "gpu", "-o", "jsonpath={.spec.nodeName}")

    environment = kubectl("exec", "gpu", "--", "env")

    assert f"_UUID={node}-gpu-" in environment
    assert "PARLEY_DEVICE_GPU_" in environment


def test_a_pod_that_fits_nowhere_is_described_with_what_each_node_lacks(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", EXAMPLES / "waiting.yaml")
    kubectl("wait", "--for=create", "podscheduling/giant", "--timeout=120s")
    kubectl("wait", "--for=jsonpath={.status.waitingFor}=NothingViable", "podscheduling/giant", "--timeout=120s")
    about = "--field-selector=involvedObject.name=giant,reason=NothingViable"
    kubectl("wait", "--for=create", "event", about, "--timeout=120s")

    described = kubectl("describe", "pod", "giant")

    assert "NothingViable" in described
    assert "0 of 2 nodes are available" in described
    assert rows(kubectl("get", "podschedulings"))["giant"][-1] == "NothingViable"


def test_a_claim_outlives_its_pod_and_says_that_it_is_free(kubectl: Kubectl) -> None:
    kubectl("delete", "pod", "reader", "--timeout=120s")

    kubectl("wait", "--for=condition=Allocated=false", "prclaim/scanner", "--timeout=120s")


def test_the_cluster_goes_as_it_came(kubectl: Kubectl, place: Path) -> None:
    assert parley("status", "--directory", place).returncode == 0

    down = parley("down", "--directory", place)

    assert (down.returncode, down.stderr) == (0, "the cluster is gone\n")
    assert not place.exists()
    assert parley("status", "--directory", place).returncode == 1
