"""Figures are written out once a second, however often somebody asks."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from parley.control.telemetry.exposition import Exposition


class Counted(Collector):
    """Tells how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def describe(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("asked", "Times.")

    def collect(self) -> Iterator[Metric]:
        self.asked += 1
        yield GaugeMetricFamily("asked", "Times.", value=self.asked)


def test_a_text_is_good_for_a_second() -> None:
    now = [0.0]
    registry = CollectorRegistry()
    registry.register(Counted())
    exposition = Exposition(registry, lambda: now[0])

    texts = []
    for moment in (0.0, 0.5, 0.99, 1.0, 1.5):
        now[0] = moment
        texts.append(exposition.text().split()[-1])

    assert texts == [b"1.0", b"1.0", b"1.0", b"2.0", b"2.0"]
