"""Grafana's own schema takes the dashboard, and Prometheus every expression on it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.integration.driver.test_go_driver import require_go

from parley_devcluster.dashboard import dashboard

SOURCES = Path(__file__).parent / "grafana"
Checked = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """What Grafana's schema says of a text, which is a dashboard's."""
    folder = tmp_path_factory.mktemp("grafana")
    program = folder / "check"
    subprocess.run([require_go(), "build", "-o", str(program), "."], cwd=SOURCES, check=True)

    def checked(text: str) -> subprocess.CompletedProcess[str]:
        (folder / "dashboard.json").write_text(text)
        return subprocess.run([program, folder / "dashboard.json"], capture_output=True, text=True, check=False)

    return checked


def test_grafanas_schema_has_all_its_fields_and_misses_none(check: Checked) -> None:
    described = dashboard()

    found = check(json.dumps(described))

    assert (found.stderr, found.stdout) == ("", f"{len(described['panels'])} panels\n")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('"expr"', '"expression"', "unexpected field 'expression'"),
        ('"gridPos"', '"position"', "unexpected field 'position'"),
        ('"showLegend": true, ', "", "options.legend.showLegend: required field is missing from input"),
    ],
)
def test_what_grafana_does_not_know_or_misses_is_found(check: Checked, right: str, wrong: str, said: str) -> None:
    text = json.dumps(dashboard())
    assert right in text

    found = check(text.replace(right, wrong))

    assert found.returncode == 1
    assert said in found.stderr


def test_prometheus_can_parse_every_expression(promtool: Path, tmp_path: Path) -> None:
    """Grafana puts a duration in place of its variable."""
    expressions = [
        target["expr"].replace("$__rate_interval", "5m")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    done = subprocess.run(
        [promtool, "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(expressions)} rules found" in done.stdout
