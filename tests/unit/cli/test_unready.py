"""Whether a process is ready, and what it says if not."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from parley.api.resources import NODES, PODS
from parley.cli.leading import unready
from parley.control.telemetry.metrics import Metrics
from parley.kube.client import Call, Client, Forbidden
from parley.kube.informer import Informer
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime


class WithoutNodes(Client):
    """May neither list nor watch nodes."""

    async def request(self, call: Call) -> bytes:
        if call.resource == NODES:
            raise Forbidden(403, "Forbidden", "nodes is forbidden")
        return await super().request(call)


class Leader:
    def __init__(self, *caches: Informer[Any]) -> None:
        self.ready = asyncio.Event()
        self.caches: Sequence[Informer[Any]] = caches

    async def run(self) -> None:
        await asyncio.gather(*(cache.run() for cache in self.caches))


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    client = WithoutNodes(MemoryServer().client())
    leader = Leader(Informer(client, PODS), Informer(client, NODES))
    run = asyncio.create_task(leader.run())
    yield leader
    run.cancel()


def test_who_does_not_lead_is_ready_to_take_over() -> None:
    assert unready([]) == ""


async def test_a_leader_that_has_yet_to_begin(leader: Leader) -> None:
    await asyncio.sleep(1)

    assert unready([leader]) == "the first list is not complete"


async def test_a_leader_without_news_of_a_kind_for_a_minute_says_which_and_why(leader: Leader) -> None:
    leader.ready.set()
    await asyncio.sleep(59)
    assert unready([leader]) == ""

    await asyncio.sleep(2)
    assert unready([leader]) == ("nodes: neither listed nor watched for 61 s: 403 Forbidden: nodes is forbidden")


async def test_a_gauge_tells_it_at_once(leader: Leader) -> None:
    metrics = Metrics()
    metrics.read_caches(leader.caches)
    await asyncio.sleep(20)

    def seconds(resource: str) -> float | None:
        return metrics.registry.get_sample_value("parley_watch_outage_seconds", {"resource": resource})

    assert (seconds("pods"), seconds("nodes")) == (0, 20)
