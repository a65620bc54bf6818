"""What README and quickstart promise: a cluster by one command, the example with plain kubectl, and nothing left.

A shell in a checkout runs their commands as they stand there. The cluster's folder is the test's own.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.starting import directory, require_machine
from tests.support.checkout import ROOT, Shell
from tests.support.shown import below, shown

pytestmark = pytest.mark.cluster

README, QUICKSTART = ((ROOT / page).read_text() for page in ("README.md", "docs/quickstart.md"))
MAKE, EXPORT, APPLY, SCHEDULINGS, CLAIMS, DESCRIBE, DOWN = below(
    README, "Try it on a real cluster on this machine"
)
EXPLAIN = shown(QUICKSTART, "parley explain")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    require_machine(real_nodes=True)
    with directory() as path:
        yield path


@pytest.fixture(scope="module")
def shell(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """In which kubectl means the new cluster, where the first example runs."""
    shell = Shell.in_a_checkout(tmp_path_factory.mktemp("checkout"), PARLEY_CLUSTER_DIRECTORY=str(place))
    shell(shown(QUICKSTART, "export PATH"))
    made = shell(f"{MAKE} 2>&1")
    (export,) = re.findall(r"export .*", made)
    assert re.fullmatch(re.escape(EXPORT).replace(re.escape("..."), r"\S+"), export)
    shell(export)
    assert shell("command -v kubectl").strip() == str(place / "bin" / "kubectl")
    shell(APPLY)
    shell("kubectl wait --for=condition=Ready pod/gpu pod/reader --timeout=150s")
    return shell


def rows(table: str) -> dict[str, list[str]]:
    """The lines of a table after its head, by their first word, without the age."""
    return {line.split()[0]: line.split()[1:-1] for line in table.splitlines()[1:]}


def test_podschedulings_show_how_the_negotiation_went(shell: Shell) -> None:
    node = shell("kubectl get pod gpu -o jsonpath={.spec.nodeName}")
    for name in ("gpu", "reader"):  # told a moment after the pod is bound
        shell(f"kubectl wait --for=create podscheduling/{name} --timeout=120s")
        shell(f"kubectl wait --for=jsonpath={{.spec.selectedNode}} podscheduling/{name} --timeout=120s")

    printed = shell(SCHEDULINGS)

    assert printed.split()[:6] == ["NAME", "CANDIDATES", "VIABLE", "SELECTED", "WAITING-FOR", "AGE"]
    assert rows(printed)["gpu"][-1] == node
    assert rows(printed)["reader"][-1] == "node-2"


def test_named_claims_show_their_conditions(shell: Shell) -> None:
    printed = shell(CLAIMS)

    assert printed.split()[:6] == ["NAME", "CLASS", "ALLOCATED", "READY", "DRIVER", "AGE"]
    assert rows(printed)["scanner"] == ["gpu", "True", "True", "device.parley.dev"]


def test_the_pod_is_described_and_explained(shell: Shell) -> None:
    node = shell("kubectl get pod gpu -o jsonpath={.spec.nodeName}")

    assert re.search(rf"(?m)^Node: +{node}/", shell(DESCRIBE))
    assert re.match(rf"Pod default/gpu (is|has been) bound to {node}", shell(EXPLAIN))


def test_the_container_has_its_device(shell: Shell) -> None:
    node = shell("kubectl get pod gpu -o jsonpath={.spec.nodeName}")

    environment = shell("kubectl exec gpu -- env")

    assert f"_UUID={node}-gpu-" in environment
    assert "PARLEY_DEVICE_GPU_" in environment


def test_a_pod_that_fits_nowhere_is_described_with_what_each_node_lacks(shell: Shell) -> None:
    shell("kubectl apply -f examples/waiting.yaml")
    shell("kubectl wait --for=create podscheduling/giant --timeout=120s")
    shell("kubectl wait --for=jsonpath={.status.waitingFor}=NothingViable podscheduling/giant --timeout=120s")
    about = "--field-selector=involvedObject.name=giant,reason=NothingViable"
    shell(f"kubectl wait --for=create event {about} --timeout=120s")

    described = shell("kubectl describe pod giant")

    assert "NothingViable" in described
    assert "0 of 2 nodes are available" in described
    assert rows(shell(SCHEDULINGS))["giant"][-1] == "NothingViable"


def test_a_claim_outlives_its_pod_and_says_that_it_is_free(shell: Shell) -> None:
    shell("kubectl delete pod reader --timeout=120s")

    shell("kubectl wait --for=condition=Allocated=false prclaim/scanner --timeout=120s")


def test_the_cluster_goes_as_it_came(shell: Shell, place: Path) -> None:
    shell("parley cluster status")

    gone = shell(f"{DOWN} 2>&1")

    assert "the cluster is gone" in gone.splitlines()
    assert not place.exists()
    assert shell("parley cluster status || echo $?").endswith("1\n")


def test_the_quickstart_has_the_same_commands() -> None:
    of_quickstart = below(QUICKSTART, "A real cluster on this machine")

    assert [command for command in of_quickstart if command != EXPLAIN] == [
        MAKE,
        EXPORT,
        APPLY,
        SCHEDULINGS,
        DESCRIBE,
        DOWN,
    ]
