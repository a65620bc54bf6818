"""Grafana's dashboard for Parley, described here: `python -m parley_devcluster.dashboard FILE` writes its JSON.

Decides which panels there are and what they show; how a panel looks is the same for all. docs/metrics.md has the
metrics' meaning.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_COLUMNS: Final = 3
_WIDTH, _HEIGHT = 24 // _COLUMNS, 8
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_OPTIONS: Final = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


@dataclass(frozen=True)
class Panel:
    """A time series: `expression` in PromQL, a line's name by Grafana's `legend`, Grafana's `unit`."""

    title: str
    expression: str
    legend: str = ""
    unit: str = "short"


@dataclass(frozen=True)
class Row:
    """A row of panels with a title."""

    title: str
    panels: Sequence[Panel]


def _quantile(metric: str, by: str = "", share: float = 0.99) -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


ROWS: Final = (
    Row(
        "Pods",
        (
            Panel("Pods that wait, by reason", "sum by (reason) (parley_pods_waiting)", "{{reason}}"),
            Panel("Pods bound and gone", _rate("parley_pods_total", "outcome"), "{{outcome}}", "ops"),
            Panel("From first look to binding (p99)", _quantile("parley_pod_binding_seconds"), "p99", "s"),
            Panel("Rounds of negotiation (p99)", _quantile("parley_pod_negotiation_rounds"), "p99"),
            Panel("Claims that drivers hold", "sum by (driver) (parley_holdings)", "{{driver}}"),
            Panel(
                "Releases that nodes have to confirm",
                "max(parley_receipts_awaited)",
                "open",
            ),
            Panel("The oldest of these", "max(parley_receipts_oldest_seconds)", "age", "s"),
        ),
    ),
    Row(
        "Drivers and schedulers",
        (
            Panel(
                "Driver calls (p99)",
                _quantile("parley_driver_call_seconds", "driver, call"),
                "{{driver}} {{call}}",
                "s",
            ),
            Panel(
                "Failed allocations",
                _rate("parley_allocation_failures_total", "driver, kind"),
                "{{driver}} {{kind}}",
                "ops",
            ),
            Panel(
                "Driver faults", _rate("parley_driver_faults_total", "driver, call"), "{{driver}} {{call}}", "ops"
            ),
            Panel("Extender calls (p99)", _quantile("parley_extender_call_seconds", "verb"), "{{verb}}", "s"),
        ),
    ),
    Row(
        "Controller",
        (
            Panel("Leader", 'max by (pod) (parley_leader{lease="parley-controller"})', "{{pod}}"),
            Panel("Event loop lag (p99)", _quantile("parley_event_loop_lag_seconds", "pod"), "{{pod}}", "s"),
            Panel("Of it computed (p99)", _quantile("parley_event_loop_blocked_seconds", "pod"), "{{pod}}", "s"),
            Panel("Work queues", "sum by (queue, state) (parley_queue_keys) > 0", "{{queue}} {{state}}"),
            Panel("Requeued after a failure", _rate("parley_queue_retries_total", "queue"), "{{queue}}", "ops"),
            Panel("Writes, by result", _rate("parley_api_writes_total", "result"), "{{result}}", "ops"),
            Panel("Writes (p99)", _quantile("parley_api_write_seconds", "resource"), "{{resource}}", "s"),
            Panel("Watch outages", "max by (resource) (parley_watch_outage_seconds) > 0", "{{resource}}", "s"),
            Panel("Watches that ended", _rate("parley_watch_restarts_total", "cause"), "{{cause}}", "ops"),
            Panel("Objects in memory", "max by (resource) (parley_cached_objects)", "{{resource}}"),
            Panel(
                "Objects that can't be decoded", "max by (resource) (parley_undecodable_objects)", "{{resource}}"
            ),
            Panel("Events", _rate("parley_events_total", "reason"), "{{reason}}", "ops"),
            Panel("Memory", 'process_resident_memory_bytes{job=~".*parley-.*"}', "{{pod}}", "bytes"),
        ),
    ),
    Row(
        "Node plugins",
        (
            Panel("Claims held on nodes", "sum by (driver, phase) (parley_node_claims)", "{{driver}} {{phase}}"),
            Panel(
                "Calls of the kubelets (p99)",
                _quantile("parley_node_call_seconds", "driver, call"),
                "{{driver}} {{call}}",
                "s",
            ),
            Panel(
                "Calls, by outcome",
                _rate("parley_node_call_seconds_count", "call, outcome"),
                "{{call}} {{outcome}}",
                "ops",
            ),
            Panel(
                "Drivers that a kubelet does not know",
                "count by (driver) (parley_node_registered == 0)",
                "{{driver}}",
            ),
            Panel("Drivers whose calls do not end", "sum by (driver) (parley_node_driver_blocked)", "{{driver}}"),
            Panel("Devices published", "sum by (driver) (parley_node_devices)", "{{driver}}"),
            Panel("Slices published", "sum by (driver) (parley_node_slices)", "{{driver}}"),
            Panel("Publishing failed", _rate("parley_node_publish_failures_total", "driver"), "{{driver}}", "ops"),
            Panel("Receipts given", _rate("parley_node_receipts_total", "driver"), "{{driver}}", "ops"),
            Panel("Receipts requested", "sum by (driver) (parley_node_receipts_waiting)", "{{driver}}"),
            Panel(
                "Checkpoint errors", _rate("parley_node_checkpoint_errors_total", "driver"), "{{driver}}", "ops"
            ),
            Panel("Notices to users", "sum by (reason) (parley_node_notices)", "{{reason}}"),
            Panel("Event loop lag (p99)", _quantile("parley_node_event_loop_lag_seconds"), "p99", "s"),
            Panel(
                "Longest watch outage", "max by (resource) (parley_node_watch_outage_seconds)", "{{resource}}", "s"
            ),
        ),
    ),
)


def dashboard(rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    """Grafana's JSON model of the dashboard, with a variable for the Prometheus data source."""
    return {
        "title": "Parley",
        "uid": "parley",
        "tags": ["kubernetes", "parley"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "annotations": {"list": []},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(rows), 1)],
    }


def text() -> str:
    """The file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    top = 0
    for row in rows:
        yield {"type": "row", "title": row.title, "collapsed": False, "panels": [], "gridPos": _at(top, 0, 24, 1)}
        top += 1
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, _COLUMNS)
            yield _drawn(panel, _at(top + line * _HEIGHT, column * _WIDTH, _WIDTH, _HEIGHT))
        top += -(-len(row.panels) // _COLUMNS) * _HEIGHT


def _at(y: int, x: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _drawn(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS,
        "targets": [
            {
                "refId": "A",
                "datasource": _SOURCE,
                "expr": panel.expression,
                "legendFormat": panel.legend or "__auto",
            }
        ],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text())
