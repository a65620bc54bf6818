"""Drivers and API writes do what they did, and are counted by what became of them."""

import asyncio
from collections.abc import Mapping

import pytest
from tests.unit.control.builders import TOKENS, World, class_fields, pending, played, user

from parley.api.resources import CLASSES
from parley.control.decision.demand import demand_of
from parley.control.telemetry.measured import MeasuredClient, MeasuredDriver, kind_of
from parley.control.telemetry.metrics import Metrics
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.kube.client import AlreadyExists
from parley.sdk import Allocation, PermanentError, Request
from parley.sdk.checks import DriverFault


def counted(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (PermanentError("broken"), "permanent"),
        (DriverFault("nothing allocated"), "fault"),
        (asyncio.CancelledError(), "aborted"),
        (RuntimeError("try again"), "temporary"),
        (TimeoutError(), "temporary"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_how_an_allocation_failed(failure: BaseException, kind: str) -> None:
    assert kind_of(failure) == kind


class Broken(TokensDriver):
    """Can never allocate, and can't count."""

    name = TOKENS

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        raise PermanentError("broken for good")

    def units(self, claim: object) -> int:
        raise RuntimeError("can't count")


def test_a_drivers_calls_are_timed_and_its_failures_counted_and_raised() -> None:
    async def story(world: World) -> None:
        metrics = Metrics()
        driver = MeasuredDriver(Broken(), metrics)
        request = demand_of({TOKENS: driver}, user("p"), [pending("c")]).requests[TOKENS]
        with pytest.raises(PermanentError):
            await driver.allocate(request, "node-1")
        with pytest.raises(DriverFault):
            driver.units(request.claims[0])
        assert driver.viable(request, ["node-1"])["c"].viable == ("node-1",)
        calls = ("viable", "allocate", "score")
        seconds = "parley_driver_call_seconds_count"
        assert [counted(metrics, seconds, driver=TOKENS, call=call) for call in calls] == [1, 1, 0]
        assert counted(metrics, "parley_allocation_failures_total", driver=TOKENS, kind="permanent") == 1
        assert counted(metrics, "parley_driver_faults_total", driver=TOKENS, call="units") == 1

    played(story)


def test_writes_are_counted_by_their_result_and_reads_are_not() -> None:
    async def story(world: World) -> None:
        metrics = Metrics()
        client = MeasuredClient(world.server.client(), metrics)
        body = {"metadata": {"name": "licence"}, **class_fields()}
        await client.create(CLASSES, body)
        with pytest.raises(AlreadyExists):
            await client.create(CLASSES, body)
        await client.get(CLASSES, "licence")
        await client.list(CLASSES)
        labels = {"verb": "create", "resource": "resourceclasses.parley.dev"}
        results = ("ok", "AlreadyExists")
        assert [counted(metrics, "parley_api_writes_total", **labels, result=result) for result in results] == [
            1,
            1,
        ]
        assert counted(metrics, "parley_api_write_seconds_count", **labels) == 2
        verbs = {
            sample.labels["verb"]
            for metric in metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "parley_api_writes_total"
        }
        assert verbs == {"create"}

    played(story)
