"""One namespace's user with the stock role `edit` sends whatever it can think of; the others do not notice."""

import asyncio
import os
from random import Random

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cluster.load import Bindings
from tests.cluster.namespace import Namespace
from tests.integration.corpus.bystanders import Bystanders
from tests.integration.corpus.conftest import NODES, Controller
from tests.integration.corpus.corpus import Corpus
from tests.integration.corpus.tenant import Tenant

pytestmark = pytest.mark.cluster

REQUESTS = int(os.environ.get("HOSTILE_REQUESTS", "2000"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))

LATEST = 5.0
"""Seconds by which a pod with a claim may be bound later than one without."""
BLOCKED = 0.25
"""Seconds for which the controller's event loop may compute without a pause."""
MEMORY = 96 << 20
"""Bytes that the controller may have more afterwards: what it remembers of a namespace that is full."""


async def figures(controller: Controller) -> dict[str, float]:
    """The controller's metrics that have no labels, and buckets by name and bound."""
    url = f"http://127.0.0.1:{controller.port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    of_buckets = {f"{one.name} {one.labels['le']}": one.value for one in samples if set(one.labels) == {"le"}}
    return of_buckets | {sample.name: sample.value for sample in samples if not sample.labels}


def blocked_for(seconds: float, figures: dict[str, float]) -> float:
    """How often the event loop computed for longer without a pause."""
    name = "parley_event_loop_blocked_seconds"
    return figures[f"{name}_count"] - figures[f"{name}_bucket {seconds}"]


async def test_nobody_notices_a_hostile_namespace(
    controller: Controller, team: Namespace, bindings: Bindings, tenant: Tenant
) -> None:
    bystanders = Bystanders(team, bindings, "one")
    before = await figures(controller)
    passing = asyncio.create_task(bystanders.run())
    playing = asyncio.create_task(
        tenant.play(Corpus(Random(SEED), tenant.namespace, NODES, tenant.known), REQUESTS)
    )

    await asyncio.wait((passing, playing), return_when=asyncio.FIRST_COMPLETED)
    assert controller.program.running, f"the controller ended:\n{controller.program.last_lines()}"
    after = await figures(controller)
    for task in (passing, playing):
        task.cancel()
    ended = await asyncio.gather(passing, playing, return_exceptions=True)

    grown = after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]
    print(
        f"seed {SEED}: {sum(tenant.answers.values())} requests, answers {dict(sorted(tenant.answers.items()))}; "
        f"{len(bystanders.lateness)} pods of others, the latest {max(bystanders.lateness, default=0):.2f} s after "
        f"one without a claim; controller {grown / (1 << 20):+.0f} MiB, its event loop blocked for more than "
        f"{BLOCKED} s {blocked_for(BLOCKED, after):.0f} times, 0.1 s {blocked_for(0.1, after):.0f} times"
    )
    assert isinstance(ended[0], asyncio.CancelledError), f"the others' pods: {ended[0]!r}"
    assert ended[1] is None, f"the tenant: {ended[1]!r}"
    assert tenant.answers[201] > REQUESTS / 20, "hardly anything was accepted: the corpus tests nothing"
    assert len(bystanders.lateness) > 5
    assert max(bystanders.lateness) < LATEST
    assert blocked_for(BLOCKED, after) == blocked_for(BLOCKED, before)
    assert grown < MEMORY
