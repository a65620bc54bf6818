"""`parley cluster up` where a cluster runs already: what has ended is started again, and one with other devices is
not taken for the one that was asked for."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parley_devcluster import prepare, processes, state
from parley_devcluster.cli import app
from parley_devcluster.cluster import Cluster
from parley_devcluster.control_plane import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER, Command
from parley_devcluster.layout import Layout, Node, NodeOptions, Ports
from parley_devcluster.parley import CONTROLLER, NODE_PLUGIN

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cluster's, as recorded: this process stands for all that runs, and Parley's controller has ended."""
    node = Node(NodeOptions("node-1"), tmp_path / "node-1", "scope", "10.200.1", 7, 8)
    layout = Layout(tmp_path, "v1.37.0", Ports(1, 2, 3, 4, 5, 6), (node,))
    prepare.write_control_plane(layout, NOW)
    this = processes.identify(os.getpid())
    assert this is not None
    plugin = Command(f"{NODE_PLUGIN}-node-1", ("plugin", "--config", str(tmp_path / "mine" / "node-1.yaml")))
    controller = Command(CONTROLLER, ("/bin/sleep", "60"))
    running: dict[str, processes.ProcessIdentity] = dict.fromkeys(
        (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, node.containerd, node.kubelet, plugin.name), this
    )
    state.write(state.ClusterState(layout, processes.boot_id(), running, (plugin, controller)))
    return tmp_path


def test_what_has_ended_is_started_again(directory: Path) -> None:
    before = CliRunner().invoke(app, ["status", "--directory", str(directory)])
    result = CliRunner().invoke(app, ["up", "--directory", str(directory)])

    controller = Cluster.attach(directory).component(CONTROLLER)
    running = controller.running
    controller.kill()
    log = directory / "logs" / "parley-controller.log"
    assert before.exit_code == 1
    assert before.stdout.splitlines()[-1] == (
        f"parley-controller  does not run: see {log}; `parley cluster up` starts it again"
    )
    assert running
    assert result.stderr.splitlines()[:2] == [
        f"up: the cluster that runs in {directory} already",
        f"parley-controller had ended (see {log}) and was started again",
    ]


@pytest.mark.parametrize(("devices", "fits"), [("mine", True), ("others", False)])
def test_a_cluster_with_other_devices_is_not_the_one_that_was_asked_for(
    directory: Path, devices: str, fits: bool
) -> None:
    folder = directory / devices

    result = CliRunner().invoke(app, ["up", "--directory", str(directory), "--devices", str(folder)])

    Cluster.attach(directory).component(CONTROLLER).kill()
    refusal = (
        f"error: the cluster in {directory} runs with other devices than those of --devices {folder}: "
        "run `parley cluster down` first"
    )
    assert (result.exit_code, refusal in result.stderr.splitlines()) == ((0, False) if fits else (1, True))
