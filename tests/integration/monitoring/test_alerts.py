"""Every alert fires when it should and not before, by Prometheus' own promtool."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"


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
