"""The node plugin's metrics for Prometheus, which `docs/metrics.md` lists, and the answers of `/healthz` and
`/readyz`.

All but two are read at each scrape from the objects that have the values anyway. Labels are few: never the name of
a pod, claim or node.
"""

import asyncio
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal

from parley.kube.loop_lag import BUCKETS
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.serving.driver_server import DriverServer
from parley_kubelet.telemetry.endpoint import Reply, endpoint
from parley_kubelet.telemetry.exposition import CONTENT_TYPE, Histogram, Metric, NodeReading, exposition

GOOD_FOR: Final = 1.0
"""Seconds for which an answer is cached: any client that can connect can request it."""


def loop_lag() -> Histogram:
    """The histogram of the event loop's lag."""
    text = "How late the event loop was, measured every 100 ms."
    return Histogram("parley_node_event_loop_lag_seconds", text, (), BUCKETS)


class NodeMetrics:
    """The metrics of one process with these drivers. `calls` and `lag` are observed elsewhere, the rest is read
    here."""

    def __init__(
        self, drivers: Mapping[str, DriverServer], receipts: Receipts, calls: Histogram, lag: Histogram
    ) -> None:
        self._drivers = drivers
        self._receipts = receipts
        self._counted = (calls, lag)

    def read(self) -> tuple[Metric, ...]:
        """All metrics, with their current values."""
        return (*self._counted, *self._of_claims(), *self._of_drivers(), *_of_process())

    def _of_claims(self) -> Iterator[Metric]:
        held: dict[tuple[str, ...], float] = {
            (name, phase): count
            for name, server in self._drivers.items()
            for phase, count in Counter(entry.phase for entry in server.preparation.cached.values()).items()
        }
        yield NodeReading(
            "parley_node_claims", "gauge", "Claims in the checkpoint, by phase.", ("driver", "phase"), held
        )
        told: dict[tuple[str, ...], float] = {
            (name, reason): count
            for name, server in self._drivers.items()
            for reason, count in server.notices.counts().items()
        }
        text = "Claims for which the driver has a notice now."
        yield NodeReading("parley_node_notices", "gauge", text, ("driver", "reason"), told)
        yield self._by_driver(
            "counter",
            "parley_node_checkpoint_errors_total",
            "How often the checkpoint could not be read or written.",
            lambda name: self._drivers[name].preparation.checkpoint_errors,
        )
        given, waiting = self._receipts.receipts, self._receipts.pending()
        yield self._by_driver(
            "counter",
            "parley_node_receipts_total",
            "Receipts given: nothing of the claim is prepared any more.",
            lambda name: given[name],
        )
        yield self._by_driver(
            "gauge",
            "parley_node_receipts_waiting",
            "Receipts that were requested and not given yet.",
            lambda name: waiting[name],
        )
        outage: dict[tuple[str, ...], float] = {("claimreleases.parley.dev",): self._receipts.outage_seconds()}
        yield NodeReading(
            "parley_node_watch_outage_seconds",
            "gauge",
            "For how long requests for receipts have been neither listed nor watched; 0 while they are.",
            ("resource",),
            outage,
        )

    def _of_drivers(self) -> Iterator[Metric]:
        yield self._by_driver(
            "gauge",
            "parley_node_registered",
            "1 while the kubelet knows the driver.",
            lambda name: self._drivers[name].registration.is_registered,
        )
        yield self._by_driver(
            "gauge",
            "parley_node_driver_blocked",
            "1 while calls of the driver do not end, for example because a disk does not answer.",
            lambda name: bool(self._drivers[name].preparation.blocked()),
        )
        yield self._by_driver(
            "gauge",
            "parley_node_slices",
            "ResourceSlices published.",
            lambda name: self._drivers[name].publisher.published.slices,
        )
        yield self._by_driver(
            "gauge",
            "parley_node_devices",
            "Devices published.",
            lambda name: self._drivers[name].publisher.published.devices,
        )
        yield self._by_driver(
            "counter",
            "parley_node_publish_failures_total",
            "How often devices could not be published.",
            lambda name: self._drivers[name].publisher.failures,
        )

    def _by_driver(
        self, kind: Literal["counter", "gauge"], name: str, text: str, value: Callable[[str], float]
    ) -> NodeReading:
        samples: dict[tuple[str, ...], float] = {(driver,): value(driver) for driver in self._drivers}
        return NodeReading(name, kind, text, ("driver",), samples)


def _of_process() -> Iterator[Metric]:
    """The metrics of the process, by the names that Prometheus' client libraries use."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    (boot,) = (line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    yield NodeReading(
        "process_cpu_seconds_total", "counter", "CPU time.", (), {(): usage.ru_utime + usage.ru_stime}
    )
    yield NodeReading("process_resident_memory_bytes", "gauge", "Resident memory.", (), {(): resident})
    yield NodeReading(
        "process_start_time_seconds", "gauge", "Unix time of the start.", (), {(): int(boot.split()[1]) + started}
    )


class Liveness:
    """Whether the plugin should be restarted, because a driver does not answer on its sockets, or is not
    registered with the kubelet for a while; and whether it is ready."""

    def __init__(self, drivers: Sequence[DriverServer], clock: Callable[[], float] = time.monotonic) -> None:
        self._drivers = drivers
        self._clock = clock
        self._turn = asyncio.Lock()
        self._fault = ""
        self._until = float("-inf")

    async def fault(self) -> str:
        """The current fault, or that of less than a second ago; "" if there is none."""
        async with self._turn:
            if self._clock() >= self._until:
                faults = await asyncio.gather(*(driver.fault() for driver in self._drivers))
                self._fault = "; ".join(fault for fault in faults if fault)
                self._until = self._clock() + GOOD_FOR
            return self._fault

    def obstacle(self) -> str:
        """Why the plugin is not ready: the drivers that the kubelet does not call; "" if it calls all."""
        return "; ".join(why for driver in self._drivers if (why := driver.obstacle()))


def served(
    metrics: NodeMetrics, liveness: Liveness, port: int, host: str | None = None
) -> AbstractAsyncContextManager[int]:
    """Serves `/metrics`, `/healthz` and `/readyz` within the block; yields the port, a free one if `port` is 0."""

    async def healthz() -> Reply:
        return _probed(await liveness.fault())

    async def readyz() -> Reply:
        return _probed(liveness.obstacle())

    async def scrape() -> Reply:
        return Reply(exposition(metrics.read()), content_type=CONTENT_TYPE)

    return endpoint({"/healthz": healthz, "/readyz": readyz, "/metrics": scrape}, port, host)


def _probed(fault: str) -> Reply:
    return Reply(f"{fault}\n", HTTPStatus.SERVICE_UNAVAILABLE) if fault else Reply("ok")
