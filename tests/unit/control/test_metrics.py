"""What is counted, and that counting changes nothing."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from tests.support.faults import FaultClient, kill_at

from parley.api import reasons
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.control.holding import Holding, Phase, PreparedOn
from parley.control.ledger import Ledger
from parley.control.telemetry.measured import MeasuredClient, MeasuredDriver
from parley.control.telemetry.metrics import Metrics, label
from parley.kube.client import Conflict, NotFound, OutcomeUnknown
from parley.kube.informer import Informer
from parley.kube.memory import MemoryServer
from parley.kube.queue import WorkQueue
from parley.negotiation.answers import Answer
from parley.sdk import Allocation, Driver, NoParameters, PermanentError, PodReference, Request
from parley.sdk.parameters import RawClaim
from parley.simulate.virtual_time import run


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(monotonic=clock)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_a_pod_that_is_bound_counts_once_with_its_time_and_rounds(metrics: Metrics, clock: Clock) -> None:
    metrics.pods.reconciled("uid")
    clock.now += 0.2
    metrics.pods.reconciled("uid")
    metrics.pods.left_line("uid", reasons.BINDING)
    clock.now += 0.1

    assert metrics.pods.bound("uid", rounds=2) == pytest.approx(0.3)
    assert metrics.pods.bound("uid", rounds=2) is None
    assert value(metrics, "parley_pods_total", outcome="bound") == 1
    assert value(metrics, "parley_pod_binding_seconds_sum") == pytest.approx(0.3)
    assert value(metrics, "parley_pod_negotiation_rounds_sum") == 2


def test_a_pod_that_had_to_wait_is_an_outcome_of_its_own(metrics: Metrics) -> None:
    metrics.pods.reconciled("uid")
    metrics.pods.waits("uid", reasons.NOTHING_VIABLE)
    metrics.pods.left_line("uid", reasons.BINDING)
    metrics.pods.bound("uid", rounds=1)

    assert value(metrics, "parley_pods_total", outcome="bound_after_waiting") == 1
    assert value(metrics, "parley_pods_total", outcome="bound") is None


def test_pods_that_wait_are_told_by_reason_until_they_go_on_or_are_gone(metrics: Metrics) -> None:
    for uid in "abc":
        metrics.pods.reconciled(uid)
        metrics.pods.waits(uid, reasons.NOTHING_VIABLE)
    metrics.pods.waits("b", reasons.CLAIM_IN_USE)
    metrics.pods.gone("c")

    assert value(metrics, "parley_pods_waiting", reason="NothingViable") == 1
    assert value(metrics, "parley_pods_waiting", reason="ClaimInUse") == 1
    assert value(metrics, "parley_pods_total", outcome="gone") == 1

    metrics.pods.left_line("a")
    assert value(metrics, "parley_pods_waiting", reason="NothingViable") is None


def test_pods_that_were_never_on_their_way_do_not_count(metrics: Metrics) -> None:
    metrics.pods.waits("bound already", reasons.NOTHING_VIABLE)
    metrics.pods.left_line("bound already")
    metrics.pods.reconciled("of others")
    metrics.pods.forget("of others")

    assert metrics.pods.bound("bound already", rounds=1) is None
    metrics.pods.gone("of others")
    assert [value(metrics, "parley_pods_total", outcome=outcome) for outcome in ("bound", "gone")] == [None, None]


def test_rounds_that_are_not_known_do_not_count(metrics: Metrics) -> None:
    metrics.pods.reconciled("uid")
    metrics.pods.bound("uid", rounds=0)

    assert value(metrics, "parley_pod_negotiation_rounds_count") == 0
    assert value(metrics, "parley_pod_binding_seconds_count") == 1


class Moody(Driver[NoParameters, NoParameters]):
    """Takes a second, then does as the node's name says."""

    name = "moody.example.com"
    parameters = NoParameters
    class_parameters = NoParameters

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def viable(self, request: Request[NoParameters, NoParameters], nodes: Sequence[str]) -> Mapping[str, Answer]:
        self._clock.now += 1
        return {claim.name: Answer(tuple(nodes)) for claim in request.claims}

    async def allocate(self, request: Request[NoParameters, NoParameters], node: str) -> Mapping[str, Allocation]:
        self._clock.now += 1
        if node == "never":
            raise PermanentError("never")
        if node == "slow":
            await asyncio.Event().wait()
        if node == "busy":
            raise OSError("busy")
        return {} if node == "forgotten" else {claim.name: Allocation() for claim in request.claims}

    async def deallocate(self, uid: str) -> None:
        self._clock.now += 1


async def test_calls_of_a_driver_are_timed_and_its_failures_are_told_apart(metrics: Metrics, clock: Clock) -> None:
    driver = MeasuredDriver(Moody(clock), metrics)
    claim = RawClaim("gpu", "uid", "team", "gpu", "class", None, None)
    request = driver.request(PodReference("team", "pod", "uid"), [claim])

    driver.viable(request, ["a", "b"])
    assert set(await driver.allocate(request, "good")) == {"gpu"}
    for node in ("never", "busy", "forgotten"):
        with pytest.raises(Exception, match=r".+"):
            await driver.allocate(request, node)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await driver.allocate(request, "slow")

    def of_driver(name: str, **labels: str) -> float | None:
        return value(metrics, name, driver="moody.example.com", **labels)

    assert of_driver("parley_driver_call_seconds_sum", call="viable") == 1
    assert of_driver("parley_driver_call_seconds_count", call="allocate") == 5
    kinds = ("permanent", "temporary", "fault", "aborted")
    assert [of_driver("parley_allocation_failures_total", kind=kind) for kind in kinds] == [1, 1, 1, 1]


async def test_writes_are_counted_by_what_became_of_them(metrics: Metrics) -> None:
    server = MemoryServer().client()
    client = MeasuredClient(FaultClient(server, after=kill_at(4, OutcomeUnknown("lost"))), metrics)
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    await client.create(PODS, body, "default")
    with pytest.raises(Conflict):
        await client.patch(PODS, "a", {"metadata": {"resourceVersion": "1"}}, "default", subresource="status")
    with pytest.raises(NotFound):
        await client.delete(PODS, "b", "default")
    with pytest.raises(OutcomeUnknown):
        await client.delete(PODS, "a", "default")
    await client.list(PODS)

    counted = {
        (verb, resource, result): value(
            metrics, "parley_api_writes_total", verb=verb, resource=resource, result=result
        )
        for verb, resource, result in (
            ("create", "pods", "ok"),
            ("patch", "pods/status", "Conflict"),
            ("delete", "pods", "NotFound"),
            ("delete", "pods", "OutcomeUnknown"),
        )
    }
    assert list(counted.values()) == [1, 1, 1, 1]
    assert value(metrics, "parley_api_write_seconds_count", verb="delete", resource="pods") == 2


def test_kinds_of_one_name_are_told_apart() -> None:
    assert [label(CLAIMS), label(BUILTIN_CLAIMS, "status"), label(PODS)] == [
        "resourceclaims.parley.dev",
        "resourceclaims.resource.k8s.io/status",
        "pods",
    ]


def holding(uid: str, driver: str) -> Holding:
    return Holding(uid, "team", uid, "gpu", False, driver, "node", Allocation(), {})


async def test_what_is_kept_anyway_is_read_when_it_is_asked_for(metrics: Metrics) -> None:
    ledger, queue = Ledger(), WorkQueue[str]()
    metrics.read_ledger(ledger)
    metrics.read_queues({"pods": queue})
    for uid in "ab":
        ledger.add(holding(uid, "device.parley.dev"))
    queue.add("a")
    queue.retry("b")

    assert value(metrics, "parley_holdings", driver="device.parley.dev") == 2
    assert value(metrics, "parley_queue_keys", queue="pods", state="ready") == 1
    assert value(metrics, "parley_queue_keys", queue="pods", state="failing") == 1
    assert value(metrics, "parley_queue_retries_total", queue="pods") == 1


def test_of_receipts_it_is_told_how_long_the_oldest_has_been_awaited(metrics: Metrics, clock: Clock) -> None:
    """Where many claims end there are some at any time, and each may be there for a second."""
    ledger = Ledger()
    metrics.read_ledger(ledger)
    held = holding("a", "workspace.parley.dev")
    held.phase = Phase.UNRESERVING
    ledger.add(held)
    seen = []
    owed: set[str]
    for owed in ({"w"}, {"x"}, {"x", "y"}, {"x"}, set()):
        held.owed = {PreparedOn(uid, "n1") for uid in owed}
        seen.append((value(metrics, "parley_receipts_awaited"), value(metrics, "parley_receipts_oldest_seconds")))
        clock.now += 30

    assert seen == [(1, 0), (1, 0), (2, 30), (1, 60), (0, 0)]


class FailFirst:
    """Gets no answer to the first call."""

    def __init__(self) -> None:
        self._left = 1

    def __call__(self, _: object) -> None:
        if self._left:
            self._left -= 1
            raise OutcomeUnknown("lost")


def test_caches_tell_how_much_they_hold_and_how_often_watching_was_interrupted(metrics: Metrics) -> None:
    async def story() -> None:
        client = MemoryServer().client()
        pods = Informer(FaultClient(client, before=FailFirst()), PODS)
        metrics.read_caches([pods])
        following = asyncio.create_task(pods.run())
        await pods.synced.wait()
        following.cancel()

        assert value(metrics, "parley_cached_objects", resource="pods") == 0
        assert value(metrics, "parley_watch_restarts_total", resource="pods", cause="OutcomeUnknown") == 1

    run(story())


def test_nothing_is_told_of_what_nobody_keeps(metrics: Metrics) -> None:
    assert value(metrics, "parley_leader") is None
    metrics.leader.of(lambda: {("parley-controller",): True})
    assert value(metrics, "parley_leader", lease="parley-controller") == 1
