"""The controller's metrics for Prometheus. `docs/metrics.md` has the names and their meaning.

`Metrics` is made once per process and passed to the code that counts; without it that counts into a registry that
is never read. Events are counted when they happen; state that exists anyway (queues, caches, the ledger, the
lease) is a `Reading`, read at each scrape. Labels have few values: never the name of a pod, claim or node.
"""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from parley.api.resources import Resource
from parley.control.holding import PreparedOn
from parley.control.ledger import Ledger
from parley.kube import loop_lag
from parley.kube.freshness import Outage
from parley.kube.informer import Informer
from parley.kube.queue import WorkQueue

Samples = Mapping[tuple[str, ...], float]
"""Values by the values of the labels."""

Family = GaugeMetricFamily | CounterMetricFamily

_BINDING_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_CALL_SECONDS = (0.0001, 0.001, 0.01, 0.1, 1, 10, 60, 600)
_WRITE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 4)
_ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16)


class Reading(Collector):
    """A metric that is read at each scrape, with the function given to `of`; without samples before that."""

    def __init__(
        self,
        family: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        labels: Sequence[str] = (),
    ) -> None:
        self._new: Callable[[], Family] = lambda: family(name, text, labels=labels)
        self._read: Callable[[], Samples] = dict

    def of(self, read: Callable[[], Samples]) -> None:
        """Read samples with this function from now on; it is called in the thread that scrapes."""
        self._read = read

    def describe(self) -> Iterator[Family]:
        """The name and the text, without any sample."""
        yield self._new()

    def collect(self) -> Iterator[Family]:
        """The present values."""
        family = self._new()
        for labels, value in self._read().items():
            family.add_metric(labels, value)
        yield family


@dataclass(slots=True)
class _PendingPod:
    """One unbound pod: when it was first reconciled, and what it waits for or last waited for."""

    since: float
    code: str = ""
    waited: bool = False


class PodMetrics:
    """Metrics of pods, from the first reconciliation of an unbound one to its binding or end. Keyed by UID."""

    def __init__(self, registry: CollectorRegistry, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._pending: dict[str, _PendingPod] = {}
        self._outcomes = Counter(
            "parley_pods",
            "Pods that were reconciled before they were bound, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._rounds = Histogram(
            "parley_pod_negotiation_rounds",
            "Rounds of negotiation that it took to find the node of a bound pod.",
            registry=registry,
            buckets=_ROUNDS,
        )
        self._seconds = Histogram(
            "parley_pod_binding_seconds",
            "Time from the first reconciliation of a pod until Parley sees that it is bound.",
            registry=registry,
            buckets=_BINDING_SECONDS,
        )
        waiting = Reading(
            GaugeMetricFamily, "parley_pods_waiting", "Pods that are waiting, by reason code.", ["reason"]
        )
        waiting.of(lambda: Tally((way.code,) for way in self._pending.values() if way.code))
        registry.register(waiting)

    def reconciled(self, uid: str) -> None:
        """Note that an unbound pod with claims of ours is reconciled; only the first time counts."""
        if uid not in self._pending:
            self._pending[uid] = _PendingPod(self._monotonic())

    def waits(self, uid: str, code: str) -> None:
        """Note that the pod waits for that reason, until another one is reported."""
        if (way := self._pending.get(uid)) is not None:
            way.code, way.waited = code, True

    def left_line(self, uid: str, code: str = "") -> bool:
        """Note that the pod waits in line no more, only for `code`. Returns whether that is a change."""
        way = self._pending.get(uid)
        if way is None:
            return True
        before, way.code = way.code, code
        return before != code

    def bound(self, uid: str, rounds: int) -> float | None:
        """Note that the pod is bound and everything is allocated. `rounds` is 0 if they are not known.

        Returns the seconds since its first reconciliation; None if the pod was bound already by then.
        """
        way = self._pending.pop(uid, None)
        if way is None:
            return None
        if rounds:
            self._rounds.observe(rounds)
        seconds = self._monotonic() - way.since
        self._outcomes.labels("bound_after_waiting" if way.waited else "bound").inc()
        self._seconds.observe(seconds)
        return seconds

    def gone(self, uid: str) -> None:
        """Note that the pod was deleted or has ended; that counts if it was never bound."""
        if self._pending.pop(uid, None) is not None:
            self._outcomes.labels("gone").inc()

    def forget(self, uid: str) -> None:
        """Forget the pod: it has no claims of Parley's after all."""
        self._pending.pop(uid, None)


class Metrics:
    """All metrics of one process, in `registry`. Durations are measured with the clock `monotonic`."""

    def __init__(
        self, registry: CollectorRegistry | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self.monotonic = monotonic
        self.pods = PodMetrics(self.registry, monotonic)
        self.driver_seconds = self._histogram(
            "parley_driver_call_seconds",
            "Duration of calls of an embedded driver.",
            ["driver", "call"],
            _CALL_SECONDS,
        )
        self.extender_seconds = self._histogram(
            "parley_extender_call_seconds",
            "Duration of calls by schedulers to the extender.",
            ["verb"],
            _CALL_SECONDS,
        )
        self.allocation_failures = self._counter(
            "parley_allocation_failures", "Allocations that failed in an embedded driver.", ["driver", "kind"]
        )
        self.driver_faults = self._counter(
            "parley_driver_faults",
            "Calls of an embedded driver that raised or violated the driver interface.",
            ["driver", "call"],
        )
        self.api_writes = self._counter(
            "parley_api_writes", "Writes to the API server.", ["verb", "resource", "result"]
        )
        self.api_write_seconds = self._histogram(
            "parley_api_write_seconds",
            "Duration of writes to the API server.",
            ["verb", "resource"],
            _WRITE_SECONDS,
        )
        self.events = self._counter("parley_events", "Events written.", ["reason"])
        self.events_grouped = self._counter(
            "parley_events_grouped",
            "Events not written because a similar one was written shortly before.",
            ["reason"],
        )
        self.receipts_awaited = self._gauge(
            "parley_receipts_awaited", "Confirmations by nodes that claims are waiting for."
        )
        self.receipts_oldest = self._gauge(
            "parley_receipts_oldest_seconds", "For how long the oldest of them has been awaited; 0 without any."
        )
        self._awaited: dict[PreparedOn, float] = {}
        self.holdings = self._gauge("parley_holdings", "Claims for which a driver holds something.", ["driver"])
        self.queue_keys = self._gauge(
            "parley_queue_keys", "Keys in the work queues, by state.", ["queue", "state"]
        )
        self.queue_retries = self._reading(
            CounterMetricFamily, "parley_queue_retries", "Keys requeued after a failure.", ["queue"]
        )
        self.cached_objects = self._gauge(
            "parley_cached_objects", "Objects in the informers' caches.", ["resource"]
        )
        self.watch_restarts = self._reading(
            CounterMetricFamily, "parley_watch_restarts", "Watches that ended.", ["resource", "cause"]
        )
        self.loop_lag = Histogram(
            "parley_event_loop_lag_seconds",
            "How late the event loop was, measured every 100 ms.",
            registry=self.registry,
            buckets=loop_lag.BUCKETS,
        )
        self.loop_blocked = Histogram(
            "parley_event_loop_blocked_seconds",
            "The part of the lag in which the process itself used the CPU.",
            registry=self.registry,
            buckets=loop_lag.BUCKETS,
        )
        self.undecodable = self._gauge(
            "parley_undecodable_objects", "Objects that exist but cannot be decoded.", ["resource"]
        )
        self.outages = self._gauge(
            "parley_watch_outage_seconds",
            "For how long a kind has been neither listed nor watched; 0 while it is.",
            ["resource"],
        )
        self.leader = self._gauge("parley_leader", "1 while this process may write, 0 otherwise.", ["lease"])

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=buckets)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Reading:
        return self._reading(GaugeMetricFamily, name, text, labels)

    def _reading(
        self,
        family: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        labels: Sequence[str] = (),
    ) -> Reading:
        made = Reading(family, name, text, labels)
        self.registry.register(made)
        return made

    def loop_was_late(self, lag: float, blocked: float) -> None:
        """Note that the event loop was late by `lag` seconds, in `blocked` of which this process used the CPU."""
        self.loop_lag.observe(lag)
        self.loop_blocked.observe(blocked)

    def read_ledger(self, ledger: Ledger) -> None:
        """Read the holdings, and the receipts that nodes owe for them, from this ledger."""
        self.holdings.of(lambda: Tally((holding.driver,) for holding in ledger))
        self.receipts_awaited.of(lambda: {(): len(_awaited(ledger))})
        self.receipts_oldest.of(lambda: {(): self._longest_awaited(_awaited(ledger))})

    def _longest_awaited(self, awaited: Iterable[PreparedOn]) -> float:
        """The time for which the oldest of these has been there, in seconds since it was first read."""
        now = self.monotonic()
        self._awaited = {one: self._awaited.get(one, now) for one in awaited}
        return now - min(self._awaited.values(), default=now)

    def read_queues(self, queues: Mapping[str, WorkQueue[Any]]) -> None:
        """Read the keys and retries of these queues, by name."""
        self.queue_keys.of(
            lambda: {
                (name, state): count
                for name, queue in queues.items()
                for state, count in asdict(queue.statistics()).items()
            }
        )
        self.queue_retries.of(lambda: {(name,): queue.retried for name, queue in queues.items()})

    def read_caches(self, caches: Sequence[Informer[Any]]) -> None:
        """Read the numbers of cached and undecodable objects, outages and watch restarts of these informers."""
        self.undecodable.of(lambda: {(label(cache.resource),): len(cache.tombstones) for cache in caches})
        self.outages.of(lambda: {(label(cache.resource),): _seconds(cache.outage()) for cache in caches})
        self.cached_objects.of(lambda: {(label(cache.resource),): len(cache) for cache in caches})
        self.watch_restarts.of(
            lambda: {
                (label(cache.resource), cause): count
                for cache in caches
                for cause, count in cache.interruptions.items()
            }
        )


def _awaited(ledger: Ledger) -> list[PreparedOn]:
    return [one for holding in ledger if not holding.joinable for one in holding.owed]


def _seconds(outage: Outage | None) -> float:
    return outage.seconds if outage is not None else 0.0


def label(resource: Resource[Any], subresource: str = "") -> str:
    """A kind's value of the label `resource`: "pods", "resourceclaims.parley.dev", ".../status"."""
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{name}/{subresource}" if subresource else name
