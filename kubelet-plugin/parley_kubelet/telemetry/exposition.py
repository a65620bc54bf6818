"""Metrics in Prometheus' text format, for a dozen of them: the client library would take memory of every node.

Decides how values are written; `parley_kubelet.metrics` decides which there are. The format is version 0.0.4.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Values = tuple[str, ...]
"""The values of a sample's labels, in the order of their names."""


Kind = Literal["counter", "gauge", "histogram"]


class Metric(Protocol):
    """A metric that can be written."""

    @property
    def name(self) -> str:
        """The metric's name as in PromQL; a counter's ends with `_total`."""
        ...

    @property
    def kind(self) -> Kind:
        """The metric's TYPE."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """The labels' names."""
        ...

    def lines(self) -> Iterator[str]:
        """HELP, TYPE, and a line for each sample."""
        ...


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A counter or gauge whose values are read at the scrape from the objects that keep them."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    labels: Sequence[str]
    samples: Mapping[Values, float]

    def lines(self) -> Iterator[str]:
        """The lines of the samples, in order."""
        yield from _head(self.name, self.kind, self.text)
        for values, value in self.samples.items():
            yield f"{self.name}{_labelled(zip(self.labels, values, strict=True))} {float(value)}"


@dataclass(slots=True)
class _Series:
    counts: list[int]
    """Counts per bucket (not cumulative), the last one without an upper bound."""
    sum: float = 0.0


class Histogram:
    """Durations by labels. `buckets` are their upper bounds in seconds, ascending."""

    def __init__(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self.name = name
        self.kind: Final = "histogram"
        self.labels = tuple(labels)
        self._text = text
        self._buckets = tuple(buckets)
        self._series: dict[Values, _Series] = {}

    def observe(self, seconds: float, *values: str) -> None:
        """Count a duration for these values of the labels."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = _Series([0] * (len(self._buckets) + 1))
        series.counts[bisect_left(self._buckets, seconds)] += 1
        series.sum += seconds

    def lines(self) -> Iterator[str]:
        """Cumulative buckets, sum and count of each series."""
        yield from _head(self.name, self.kind, self._text)
        for values, series in self._series.items():
            labels = list(zip(self.labels, values, strict=True))
            count = 0
            for bound, own in zip((*map(str, map(float, self._buckets)), "+Inf"), series.counts, strict=True):
                count += own
                yield f"{self.name}_bucket{_labelled([*labels, ('le', bound)])} {float(count)}"
            yield f"{self.name}_sum{_labelled(labels)} {series.sum}"
            yield f"{self.name}_count{_labelled(labels)} {float(count)}"


def exposition(metrics: Iterable[Metric]) -> str:
    """The text of a scrape."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _labelled(labels: Iterable[tuple[str, str]]) -> str:
    written = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{written}}}" if written else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
