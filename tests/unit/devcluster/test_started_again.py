"""`parley cluster up` where the cluster runs, but one of its programs has ended: nobody else starts it."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parley_devcluster import prepare, processes, state
from parley_devcluster.cli import app
from parley_devcluster.cluster import Cluster
from parley_devcluster.control_plane import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER, Command
from parley_devcluster.layout import Layout, Ports
from parley_devcluster.parley import CONTROLLER

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cluster's, as recorded: this process stands for its control plane, and Parley's controller has ended."""
    layout = Layout(tmp_path, "v1.37.0", Ports(1, 2, 3, 4, 5, 6))
    prepare.write_control_plane(layout, NOW)
    this = processes.identify(os.getpid())
    assert this is not None
    running: dict[str, processes.ProcessIdentity] = dict.fromkeys(
        (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER), this
    )
    controller = Command(CONTROLLER, ("/bin/sleep", "60"))
    state.write(state.ClusterState(layout, processes.boot_id(), running, (controller,)))
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
