"""docs/extender.md on a real API server: its ways to install the second scheduler, as the page has them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import starting
from tests.cluster.reader import ROOT, Reader
from tests.support.shown import commands

from parley_devcluster import Cluster, manifests

pytestmark = pytest.mark.cluster

EXTENDER, INSTALL = ((ROOT / "docs" / page).read_text() for page in ("extender.md", "install.md"))
COMMANDS = [command for command, _ in commands(EXTENDER) if not command.startswith("helm")]
(HELM,) = (command for command, _ in commands(EXTENDER) if command.startswith("helm"))
(CERTIFICATES,) = re.findall(r"```sh\n(.*?)```", EXTENDER, flags=re.DOTALL)
VALUES = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", INSTALL, flags=re.DOTALL)[0]


@pytest.fixture
def empty() -> Iterator[Cluster]:
    """A control plane without Parley and without nodes."""
    starting.require_machine(real_nodes=False)
    with starting.directory() as place, Cluster.start(place, node_lifecycle=False) as cluster:
        yield cluster


@pytest.fixture
def administrator(empty: Cluster, tmp_path: Path) -> Reader:
    (tmp_path / "values.yaml").write_text(VALUES)
    reader = Reader.of(empty, tmp_path)
    path = f"{manifests.helm().parent}:{reader.environment['PATH']}"
    return Reader(reader.cluster, reader.folder, {**reader.environment, "PATH": path})


async def test_its_kustomizations_and_its_certificates(administrator: Reader) -> None:
    on_loopback, of_its_own = COMMANDS
    await administrator(on_loopback)
    await administrator(CERTIFICATES)
    await administrator(f"{of_its_own} --force-conflicts")  # in place of the other, which the page never does

    found = await administrator("kubectl -n parley-system get deployments,secrets -o name")

    assert {"deployment.apps/parley-controller", "deployment.apps/parley-scheduler"} <= set(found.split())
    assert {"secret/parley-extender-server", "secret/parley-extender-client"} <= set(found.split())


async def test_its_command_of_helm(administrator: Reader) -> None:
    await administrator("kubectl create namespace parley-system")
    await administrator(CERTIFICATES)

    installed = await administrator(HELM)

    assert "STATUS: deployed" in installed
    found = await administrator("kubectl -n parley-system get deployments -o name")
    assert "deployment.apps/parley-scheduler" in found.split()
