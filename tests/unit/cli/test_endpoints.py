"""Endpoints of a controller: metrics, health, readiness."""

import aiohttp
from prometheus_client import CollectorRegistry, Counter

from parley.cli.endpoints import application, process_figures, served
from parley.control.telemetry.metrics import Metrics


async def answer(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_metrics_are_served() -> None:
    registry = CollectorRegistry()
    Counter("parley_decisions", "Decisions.", registry=registry).inc(3)

    async with served(application(str, registry), 0, "127.0.0.1") as port:
        status, text = await answer(port, "/metrics")

    assert status == 200
    assert "parley_decisions_total 3.0" in text


async def test_a_controller_that_is_not_ready_is_healthy() -> None:
    async with served(application(lambda: "pods: not watched", CollectorRegistry()), 0, "127.0.0.1") as port:
        assert await answer(port, "/healthz") == (200, "ok")
        assert await answer(port, "/readyz") == (503, "not ready: pods: not watched")


async def test_a_ready_controller() -> None:
    async with served(application(str, CollectorRegistry()), 0, "127.0.0.1") as port:
        assert await answer(port, "/readyz") == (200, "ok")


async def test_figures_of_the_process_and_of_its_work_are_served_together() -> None:
    metrics = Metrics(process_figures())
    metrics.leader.of(lambda: {("parley-controller",): False})

    async with served(application(str, metrics.registry), 0, "127.0.0.1") as port:
        _, text = await answer(port, "/metrics")

    assert 'parley_leader{lease="parley-controller"} 0.0' in text
    assert "process_resident_memory_bytes" in text
