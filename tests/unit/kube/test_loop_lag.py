"""How late the event loop is, is counted, and logged when it is much; seldom, however often it happens."""

import asyncio
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from parley.control.telemetry.metrics import Metrics
from parley.kube.loop_lag import LoopLag, watched


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"parley_event_loop_lag_seconds_{name}", labels)


def warnings(lags: Iterator[tuple[float, float]], clock: Clock) -> list[dict[str, object]]:
    lag = LoopLag(Metrics().loop_was_late, clock)
    with capture_logs() as logged:
        for when, seconds in lags:
            clock.now = when
            lag.report(seconds, 0.2)
    return [{key: line[key] for key in ("event", "log_level", "seconds", "busy", "times")} for line in logged]


def test_a_quarter_of_a_second_is_logged(clock: Clock) -> None:
    assert warnings(iter([(0.0, 0.25), (1.0, 0.3)]), clock) == [
        {"event": "the event loop was late", "log_level": "warning", "seconds": 0.3, "busy": 0.2, "times": 1}
    ]


def test_it_is_logged_once_in_30_seconds(clock: Clock) -> None:
    logged = warnings(((float(second), 1.0) for second in range(31)), clock)

    assert [line["times"] for line in logged] == [1, 30]


@pytest.mark.looptime
async def test_each_look_is_counted() -> None:
    metrics = Metrics()

    async with watched(metrics.loop_was_late):
        await asyncio.sleep(1.05)

    assert sample(metrics, "count") == 10
    assert sample(metrics, "bucket", le="0.005") == 10


@pytest.mark.looptime
async def test_what_keeps_the_loop_busy_is_seen(clock: Clock) -> None:
    metrics = Metrics()
    measuring = asyncio.create_task(LoopLag(metrics.loop_was_late, clock).run())
    await asyncio.sleep(0)
    clock.now += 1.1  # as if something had kept the loop busy

    await asyncio.sleep(0.15)
    measuring.cancel()

    assert sample(metrics, "sum") == pytest.approx(1.0)


@pytest.mark.looptime
@pytest.mark.parametrize(("used", "blocked"), [(0.3, 0.3), (5.0, 1.0)], ids=["starved", "busy"])
async def test_what_the_process_computed_itself_is_counted_apart(
    clock: Clock, used: float, blocked: float
) -> None:
    metrics, cpu = Metrics(), Clock()
    measuring = asyncio.create_task(LoopLag(metrics.loop_was_late, clock, cpu).run())
    await asyncio.sleep(0)
    clock.now += 1.1
    cpu.now += used

    await asyncio.sleep(0.15)
    measuring.cancel()

    assert metrics.registry.get_sample_value("parley_event_loop_blocked_seconds_sum") == pytest.approx(blocked)
