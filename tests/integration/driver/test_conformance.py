"""The drivers of this repository pass the conformance kit: two in Python, and one in Go, also on a real server."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.cluster.starting import fake_nodes
from tests.integration.driver.test_go_driver import NAME, SOURCES, require_go
from tests.support.checkout import Shell
from tests.support.pages import is_shown
from tests.support.shown import commands

from parley.cli.permissions import account_name, permissions
from parley.conformance.checks import CHECKS
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

ROOT = Path(__file__).parents[3]
PROTOCOL = (ROOT / "docs" / "driver-protocol.md").read_text()
PARLEY = str(Path(sys.executable).parent / "parley")

TOKENS = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClass
metadata: {name: licences}
driverName: tokens.parley.dev
nodePart: None
parameters: {pool: 2}
---
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: licence}
spec: {resourceClassName: licences, parameters: {count: 1}}
"""


PASSED = {check.name: "passed" for check in CHECKS}


def conformance(*arguments: str, folder: Path = ROOT) -> dict[str, str]:
    """The outcome of each check."""
    command = [PARLEY, "driver", "conformance", *arguments, "--settle", "1", "-o", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    items = orjson.loads(done.stdout)["items"]
    failed = [
        f"{i['about']}: expected {i['expected']}, seen {i['seen']}" for i in items if i["outcome"] == "failed"
    ]
    assert failed == [], done.stderr
    return {item["check"]: item["outcome"] for item in items}


@pytest.fixture(scope="module")
def seats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("go-driver") / "seats"
    subprocess.run([require_go(), "build", "-o", str(built), "."], cwd=SOURCES, check=True)
    return built


def test_the_driver_in_go_passes(seats: Path) -> None:
    start = f"exec {seats} --server $API_SERVER"
    found = conformance(str(SOURCES / "seats.yaml"), "--start", start)

    assert found == PASSED


def test_the_protocols_page_shows_what_a_driver_that_forgets_shareable_is_told(tmp_path: Path) -> None:
    """Of all checks, the two that the page shows."""
    ((command, shown),) = (it for it in commands(PROTOCOL) if "conformance" in it[0])
    shell = Shell.in_a_checkout(tmp_path)
    shutil.copytree(SOURCES, tmp_path / "forgetful")
    code = tmp_path / "forgetful" / "main.go"
    set_shareable = 'allocation["shareable"] = true'
    assert set_shareable in code.read_text()
    code.write_text(code.read_text().replace(set_shareable, ""))
    subprocess.run([require_go(), "build", "-o", str(tmp_path / "seats"), "."], cwd=code.parent, check=True)

    printed = shell(f"PATH=.venv/bin:$PATH; {command} --check answers --check shareable || test $? = 12")

    assert is_shown(printed, f"{shown.rstrip()}\n..."), printed


@pytest.mark.cluster
def test_the_driver_in_go_passes_on_a_real_api_server(seats: Path, installed: Cluster) -> None:
    installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(permissions(NAME, NAMESPACE)))
    user = f"system:serviceaccount:{NAMESPACE}:{account_name(NAME)}"
    start = f"exec {seats} --server $API_SERVER"
    real = ["--real", "--kubeconfig", str(installed.kubeconfig), "--driver-as", user]
    with fake_nodes(installed, 2):
        found = conformance(str(SOURCES / "seats.yaml"), "--start", start, *real)

    assert found == PASSED | {"immediate-tainted": "skipped"}, "nodes of a real cluster are not tainted"


def test_the_driver_for_tokens_passes(tmp_path: Path) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    start = f"exec {PARLEY} driver run tokens --lease-duration 5"

    assert conformance(str(tmp_path / "tokens.yaml"), "--start", start) == PASSED


def test_the_example_of_scratch_folders_passes(tmp_path: Path) -> None:
    folder = ROOT / "examples" / "scratch"
    (tmp_path / "disks.yaml").write_text(yaml.safe_dump_all(map(disk, ("node-1", "node-2"))))
    start = f"cd {folder} && exec {PARLEY} driver run scratch_driver:ScratchDriver --lease-duration 5"
    files = (str(folder / "scratch.yaml"), str(tmp_path / "disks.yaml"))

    assert conformance(*files, "--start", start) == PASSED


def disk(node: str) -> dict[str, Any]:
    """What the driver's part on the node publishes: room for two folders."""
    device = {"name": "scratch", "capacity": {"size": {"value": "250Mi"}}}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "scratch.example.com", "nodeName": node, "pool": pool, "devices": [device]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}
