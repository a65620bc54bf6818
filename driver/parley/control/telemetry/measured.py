"""Embedded drivers and a client that time their calls and count failures, and otherwise do the same as without."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from parley.control.limited_driver import LimitedDriver
from parley.control.telemetry.metrics import Metrics, label
from parley.kube.client import Call, Client
from parley.kube.transport import Transport
from parley.negotiation.answers import Answer
from parley.sdk import Allocation, Driver, PermanentError, Request
from parley.sdk.checks import DriverFault
from parley.sdk.referenced import NO_REFERENCES, References


class MeasuredDriver(LimitedDriver):
    """An embedded driver whose calls are timed and whose failures are counted."""

    def __init__(self, driver: Driver[Any, Any], metrics: Metrics, references: References = NO_REFERENCES) -> None:
        super().__init__(driver, references)
        self._metrics = metrics
        self._seconds = {
            call: metrics.driver_seconds.labels(self.name, call)
            for call in ("viable", "score", "allocate", "deallocate")
        }

    @contextmanager
    def _timed(self, call: str) -> Iterator[None]:
        started = self._metrics.monotonic()
        try:
            yield
        finally:
            self._seconds[call].observe(self._metrics.monotonic() - started)

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        with self._timed("viable"):
            return super().viable(request, nodes)

    def score(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
        with self._timed("score"):
            return super().score(request, nodes)

    def _failed(self, call: str, error: BaseException) -> None:
        self._metrics.driver_faults.labels(self.name, call).inc()
        super()._failed(call, error)

    async def allocate(self, request: Request[Any, Any], node: str) -> Mapping[str, Allocation]:
        with self._timed("allocate"):
            try:
                return await super().allocate(request, node)
            except BaseException as error:
                self._metrics.allocation_failures.labels(self.name, kind_of(error)).inc()
                raise

    async def deallocate(self, uid: str) -> None:
        with self._timed("deallocate"):
            await super().deallocate(uid)


def kind_of(failure: BaseException) -> str:
    """How an allocation failed: "permanent" (it will never succeed on this node), "fault" (the driver violated the
    interface), "aborted" (it took too long, or the controller stops) or "temporary"."""
    if isinstance(failure, PermanentError):
        return "permanent"
    if isinstance(failure, asyncio.CancelledError):
        return "aborted"
    return "fault" if isinstance(failure, DriverFault) else "temporary"


class MeasuredClient(Client):
    """A client whose writes are timed, and counted by their results."""

    def __init__(self, transport: Transport, metrics: Metrics) -> None:
        super().__init__(transport)
        self._metrics = metrics

    async def request(self, call: Call) -> bytes:
        """Send the request, and measure it if it is a write."""
        if not call.writes:
            return await super().request(call)
        resource = label(call.resource, call.subresource)
        started = self._metrics.monotonic()
        result = "ok"
        try:
            return await super().request(call)
        except BaseException as error:
            result = type(error).__name__
            raise
        finally:
            self._metrics.api_writes.labels(call.verb, resource, result).inc()
            seconds = self._metrics.monotonic() - started
            self._metrics.api_write_seconds.labels(call.verb, resource).observe(seconds)
