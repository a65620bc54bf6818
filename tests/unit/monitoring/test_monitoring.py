"""Alerts, dashboard, PodMonitors and runbook agree with the code and with each other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.docs.test_metrics import ROWS as METRICS

from parley.api import reasons
from parley_devcluster.dashboard import text

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "monitoring"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", RUNBOOK, flags=re.MULTILINE | re.DOTALL))
CODES = {value for name, value in vars(reasons).items() if name.isupper()}
OTHERS = {"KubeletStateRemoved"}
"""Faults of nodes that have neither."""

GIVEN = {"up", "process_start_time_seconds", "process_resident_memory_bytes"}
"""Metrics that Prometheus and its libraries make."""


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    yield from (alert["expr"] for alert in alerts())
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def named(expression: str) -> set[str]:
    """The metrics; a histogram's without the ending of its series."""
    bare = re.sub(r'\{.*?\}|\[.*?\]|"[^"]*"', "", expression)
    words = set(re.findall(r"\b(?:parley|process)_\w+|\bup\b", bare))
    kinds = {name.strip("`"): kind for name, kind, *_ in METRICS}
    return {
        base if kinds.get(base := re.sub(r"_(bucket|count|sum)$", "", word)) == "histogram" else word
        for word in words
    }


def test_every_metric_named_exists() -> None:
    known = {name.strip("`") for name, *_ in METRICS} | GIVEN

    assert {name for expression in expressions() for name in named(expression)} - known == set()


def test_every_label_that_is_asked_for_exists() -> None:
    labels = {name.strip("`"): set(re.findall(r"`(\w+)`", cell)) for name, _, cell, _ in METRICS}
    for expression in expressions():
        for metric, selector in re.findall(r"(parley_\w+)\{(.*?)\}", expression):
            base = re.sub(r"_(bucket|count|sum)$", "", metric)
            asked = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", selector))
            assert asked <= labels.get(metric, labels.get(base, set())) | {"le"}, expression


def test_reason_codes_in_expressions_exist() -> None:
    named = {
        code
        for expression in expressions()
        for selector in re.findall(r'reason[!=~]+"(.*?)"', expression)
        for code in selector.split("|")
    }

    assert named <= CODES
    assert named


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_has_severity_summary_description_and_its_section(alert: dict[str, Any]) -> None:
    name, annotations = alert["alert"], alert["annotations"]

    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert annotations["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    assert name in SECTIONS


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_a_number_that_may_be_one_is_before_no_plural(alert: dict[str, Any]) -> None:
    before_a_noun = re.findall(r"\{\{ \$value \}\} [\w{].*", "\n".join(alert["annotations"].values()))

    assert not before_a_noun or int(alert["expr"].rpartition("> ")[2]) > 0


def test_every_alert_and_code_has_a_section_and_so_do_a_few_other_faults() -> None:
    assert SECTIONS.keys() == {alert["alert"] for alert in alerts()} | CODES | OTHERS


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_the_meaning_how_to_see_more_and_what_to_do(name: str) -> None:
    parts = re.findall(r"\*\*(Meaning|See more|Do)\*\*: \S", SECTIONS[name])

    assert parts == ["Meaning", "See more", "Do"]


def test_links_of_the_runbook_lead_to_sections() -> None:
    anchors = {title.lower() for title in SECTIONS} | {"reason-codes"}

    assert set(re.findall(r"\]\(#([^)]*)\)", RUNBOOK)) <= anchors


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]

    assert [test["name"] for test in tests] == [alert["alert"] for alert in alerts()]
    for test in tests:
        quiet, fires = test["alert_rule_test"]
        assert {quiet["alertname"], fires["alertname"]} == {test["name"]}
        assert not quiet["exp_alerts"]
        assert fires["exp_alerts"]


def test_the_dashboard_is_the_one_that_is_described() -> None:
    assert (FOLDER / "dashboard.json").read_text() == text(), "run `make dashboard`"


def test_no_metric_of_parley_is_missing_on_the_dashboard() -> None:
    shown = {
        name
        for panel in json.loads(text())["panels"]
        for target in panel.get("targets", ())
        for name in named(target["expr"])
    }
    seldom = {"parley_events_grouped_total"}

    assert {name.strip("`") for name, *_ in METRICS} - shown == seldom


def test_pods_are_scraped_at_a_port_that_they_have() -> None:
    monitors = list(yaml.safe_load_all((FOLDER / "pod-monitors.yaml").read_text()))
    workloads = {
        document["metadata"]["name"]: document["spec"]["template"]
        for file in ("controller.yaml", "node-plugin.yaml")
        for document in yaml.safe_load_all((ROOT / "deploy" / "workloads" / file).read_text())
        if document["kind"] in ("Deployment", "DaemonSet")
    }

    assert {monitor["metadata"]["name"] for monitor in monitors} == set(workloads)
    for monitor in monitors:
        template = workloads[monitor["metadata"]["name"]]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports
