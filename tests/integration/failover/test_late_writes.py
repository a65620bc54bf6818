"""Writes of a leader that was cut off arrive when another one leads already, and has decided otherwise."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Collection

import pytest
from tests.cluster.manifests import claim, pod
from tests.cluster.namespace import Namespace, devices_of
from tests.cluster.proxy import FAIR, Fate, Proxy
from tests.cluster.replicas import Replicas
from tests.cluster.watching import LIMIT
from tests.integration.failover.conftest import ONE

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, NODES
from parley.kube.client import Client
from parley.sdk.recorded import recorded

pytestmark = pytest.mark.cluster

BEFORE, AFTERWARDS = "fake-0", "fake-1"
HELD = (
    r"PATCH /apis/resource\.k8s\.io/v1/namespaces/[^/]+/resourceclaims/generated-[^/]+/status",
    r"PATCH /apis/resource\.k8s\.io/v1/namespaces/[^/]+/resourceclaims/named/status",
    r"PATCH /apis/parley\.dev/v1alpha1/namespaces/[^/]+/resourceclaims/recorded/status",
)
"""The claim of pod `recorded` is not even recorded, that of pod `named` is, but its mirror does not know of it."""
REFUSED = {409, 422}
"""Of an object that has another resourceVersion by then, or another UID."""


@pytest.fixture
async def nodes(admin: Client) -> AsyncIterator[frozenset[str]]:
    """All nodes; at the end pods may be placed on each of them."""
    names = frozenset(node.metadata.name for node in (await admin.list(NODES)).items)
    try:
        yield names
    finally:
        await allow(admin, names, names)


async def allow(admin: Client, nodes: Collection[str], allowed: Collection[str]) -> None:
    """Let pods be placed on the nodes in `allowed` only."""
    body = {name: {"spec": {"unschedulable": None if name in allowed else True}} for name in nodes}
    await asyncio.gather(*(admin.patch(NODES, name, body[name]) for name in nodes))


def cut_off_at_its_writes(proxy: Proxy) -> asyncio.Event:
    """Hold writes of all these kinds, and cut the leader off when it has sent each; set as soon as that is so."""
    missing = set(HELD)
    complete = asyncio.Event()

    def judge(method: str, path: str) -> Fate:
        matching = {pattern for pattern in HELD if re.match(pattern, f"{method} {path}")}
        missing.difference_update(matching)
        if not missing and not complete.is_set():
            proxy.shut()
            complete.set()
        return Fate(held=True) if matching else FAIR

    proxy.judge = judge
    return complete


async def test_allocations_that_arrive_late_change_nothing(
    admin: Client, team: Namespace, controllers: Replicas, proxy: Proxy, nodes: frozenset[str]
) -> None:
    leader = await controllers.lead(proxy.kubeconfig)
    await controllers.start()
    await allow(admin, nodes, {BEFORE})
    await team.create(claim("named"), claim("recorded"))
    for name in ("named", "recorded"):
        await team.claim(name, lambda _: True, "mirrors Parley's")
        await team.parley_claim(name, lambda found: bool(found.status.conditions), "was looked at")
    armed = time.monotonic()
    sent = cut_off_at_its_writes(proxy)

    pods = {name: pod(name, claims={"gpu": name}) for name in ("named", "recorded")}
    pods["generated"] = pod("generated", templates={"gpu": ONE})
    await team.create(*pods.values())
    async with asyncio.timeout(LIMIT):
        await sent.wait()
    await allow(admin, nodes, {AFTERWARDS})
    assert await leader.ended() == 1
    for name in pods:
        assert (await team.bound(name)).spec.node_name == AFTERWARDS
    await proxy.reopen()

    for pattern in HELD:
        sent_late = [late for late in proxy.writes_since(armed) if re.match(pattern, f"{late.method} {late.path}")]
        answers = {late.status for late in sent_late}
        assert answers, pattern
        assert answers <= REFUSED, pattern
    mirrors = (await admin.list(BUILTIN_CLAIMS, team.name)).items
    assert [{device.pool for device in devices_of(mirror)} for mirror in mirrors] == [{AFTERWARDS}] * len(pods)
    for name in ("named", "recorded"):
        found = recorded(await admin.get(CLAIMS, name, team.name), ())
        assert found is not None
        assert found[0] == AFTERWARDS
        (mirror,) = (mirror for mirror in mirrors if mirror.metadata.name == name)
        assert frozenset(found[1].devices) == devices_of(mirror)
