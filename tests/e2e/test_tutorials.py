"""docs/tutorials/device.md on the cluster that one command makes, followed literally to its end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.starting import directory, require_machine
from tests.support.pages import ROOT, follow

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "tutorials" / "device.md"


def parley_cluster(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "parley", "cluster", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def place() -> Iterator[Path]:
    require_machine(real_nodes=True)
    with directory() as path:
        yield path


def test_a_device_from_its_node_to_a_container_and_back(place: Path, tmp_path: Path) -> None:
    follow(PAGE, tmp_path)
    kubeconfig = parley_cluster("up", "--directory", place, "--devices", tmp_path / "devices")
    try:
        environment = {"KUBECONFIG": kubeconfig, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
        follow(PAGE, tmp_path, "On the development cluster", environment=environment)
    finally:
        parley_cluster("down", "--directory", place)
