"""The page about metrics has all of them, with type and labels, and nothing else."""

import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric

from parley.api import reasons
from parley.control.telemetry.metrics import Metrics
from parley.kube.memory import MemoryServer
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.metrics import NodeMetrics as PluginMetrics
from parley_kubelet.metrics import loop_lag
from parley_kubelet.serving.service import call_seconds

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `parley_")
]


def every_figure() -> Iterable[Metric]:
    """All figures, each with a sample so that its labels show."""
    metrics = Metrics()
    for uid in ("waits", "bound"):
        metrics.pods.reconciled(uid)
    metrics.pods.waits("waits", reasons.NOTHING_VIABLE)
    metrics.pods.bound("bound", rounds=1)
    metrics.driver_seconds.labels("device", "allocate").observe(1)
    metrics.extender_seconds.labels("filter").observe(1)
    metrics.allocation_failures.labels("device", "permanent").inc()
    metrics.driver_faults.labels("device", "viable").inc()
    metrics.api_writes.labels("create", "pods", "ok").inc()
    metrics.api_write_seconds.labels("create", "pods").observe(1)
    metrics.events.labels(reasons.NOTHING_VIABLE).inc()
    metrics.events_grouped.labels(reasons.NOTHING_VIABLE).inc()
    metrics.holdings.of(lambda: {("device",): 1})
    metrics.receipts_awaited.of(lambda: {(): 1})
    metrics.receipts_oldest.of(lambda: {(): 1})
    metrics.queue_keys.of(lambda: {("pods", "ready"): 1})
    metrics.queue_retries.of(lambda: {("pods",): 1})
    metrics.cached_objects.of(lambda: {("pods",): 1})
    metrics.watch_restarts.of(lambda: {("pods", "Ended"): 1})
    metrics.undecodable.of(lambda: {("pods",): 1})
    metrics.outages.of(lambda: {("pods",): 61})
    metrics.leader.of(lambda: {("parley-controller",): 1})
    return metrics.registry.collect()


def of_the_node_plugin() -> set[tuple[str, str, frozenset[str]]]:
    """Rows of the node plugin's own metrics."""
    receipts = Receipts(MemoryServer().client(), "n1", {})
    metrics = PluginMetrics({}, receipts, call_seconds(), loop_lag()).read()
    return {(it.name, it.kind, frozenset(it.labels)) for it in metrics if it.name.startswith("parley_")}


def row(figure: Metric) -> tuple[str, str, frozenset[str]]:
    assert figure.samples, figure.name
    labels = frozenset(name for sample in figure.samples for name in sample.labels) - {"le"}
    return figure.name + "_total" * (figure.type == "counter"), figure.type, labels


def test_every_metric_is_on_the_page_with_type_and_labels_and_no_other() -> None:
    documented = {
        (name.strip("`"), kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROWS
    }

    assert documented == {row(figure) for figure in every_figure()} | of_the_node_plugin()


def test_a_duration_is_named_in_seconds_and_a_counter_ends_in_total() -> None:
    assert [name for name, kind, *_ in ROWS if "second" in name and not name.strip("`").endswith("_seconds")] == []
    assert [name for name, kind, *_ in ROWS if (kind == "counter") != name.strip("`").endswith("_total")] == []


def test_no_label_names_an_object() -> None:
    labels = {label for *_, labels, _ in ROWS for label in re.findall(r"`(\w+)`", labels)}

    assert labels.isdisjoint({"pod", "claim", "node", "namespace", "name", "uid", "template"})


def test_expressions_name_metrics_that_exist() -> None:
    assert set(re.findall(r"parley_\w+?(?=_bucket\b|\b)", PAGE)) == {name.strip("`") for name, *_ in ROWS}
