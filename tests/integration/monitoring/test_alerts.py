"""Every alert fires when it should and not before, by Prometheus' own promtool."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from parley_devcluster import binaries, versions

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"


@pytest.fixture(scope="module")
def promtool() -> Path:
    """As `make machine` has built it: three minutes are too long for a test."""
    found = binaries.find(versions.ALERTS, versions.modules(), os.environ)
    if found.missing and os.environ.get("CI") == "true":
        pytest.fail("CI has to run promtool, but it is not in the cache: make machine builds it")
    if found.missing:
        pytest.skip("promtool is not in the cache: make machine builds it")
    return found.paths["promtool"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the rules as Prometheus reads them, and their tests."""
    rule = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    shutil.copy(MONITORING / "alerts_test.yaml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [("check", "rules", "rules.yaml"), ("test", "rules", "alerts_test.yaml")])
def test_promtool_finds_nothing(promtool: Path, folder: Path, command: tuple[str, ...]) -> None:
    done = subprocess.run([promtool, *command], cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
