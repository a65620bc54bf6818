"""The leader dies, stops, or is cut off while pods arrive: another one goes on, and the old one does no harm."""

import asyncio
import time
from datetime import datetime

import pytest
from tests.cluster.load import Bindings, assert_each_has_its_own, mixed
from tests.cluster.namespace import Namespace
from tests.cluster.programs import Entry
from tests.cluster.proxy import Proxy
from tests.cluster.replicas import BRIEF, Replicas
from tests.integration.failover.conftest import ONE

pytestmark = pytest.mark.cluster

LONGEST_GAP = BRIEF + 60.0
"""Seconds without any binding after a leader died: the lease, and the rest is for a machine that is slow."""
KEPT = 60
"""Seconds that the lease of a leader would hold which did not release it at its end."""


def moment(entry: Entry) -> datetime:
    return datetime.fromisoformat(entry["timestamp"])


async def test_others_go_on_at_once_after_a_leader_that_was_asked_to_end_and_after_the_lease_of_a_killed_one(
    team: Namespace, bindings: Bindings, controllers: Replicas
) -> None:
    controllers.lease_seconds = KEPT
    leader = await controllers.lead()
    controllers.lease_seconds = BRIEF
    await controllers.start()
    load = mixed(200, ONE, every=0.05)
    async with load.arriving(team):
        await bindings.count(40)
        ended = asyncio.get_running_loop().time()
        assert await leader.stop() == 0
        second = await controllers.next_leader(leader)
        await bindings.count(80)
        gap = bindings.longest_gap(ended)
        killed = asyncio.get_running_loop().time()
        await second.kill()

    await bindings.all_of(load.staying)
    await assert_each_has_its_own(team, load.staying)
    print(f"no pod was bound for {gap:.1f} s after the leader was asked to end")
    assert gap < KEPT
    gap = bindings.longest_gap(killed)
    print(f"no pod was bound for {gap:.1f} s after the next leader was killed")
    assert gap < LONGEST_GAP


async def test_a_leader_that_was_stopped_writes_nothing_when_it_goes_on(
    team: Namespace, bindings: Bindings, controllers: Replicas, proxy: Proxy
) -> None:
    leader = await controllers.lead(proxy.kubeconfig)
    await controllers.start()
    load = mixed(100, ONE, every=0.1)
    async with load.arriving(team):
        await bindings.count(20)
        leader.freeze()
        await bindings.count(60)
        assert proxy.writes_since(0) != []
        woken = time.monotonic()
        leader.thaw()

        assert await leader.ended() == 1
        assert "did not renew it for" in (await leader.said("lease lost"))["error"]
        assert proxy.writes_since(woken) == []
    await bindings.all_of(load.staying)
    await assert_each_has_its_own(team, load.staying)


async def test_a_leader_that_is_cut_off_gives_up_before_the_other_one_begins(
    team: Namespace, bindings: Bindings, controllers: Replicas, proxy: Proxy
) -> None:
    leader = await controllers.lead(proxy.kubeconfig)
    successor = await controllers.start()
    load = mixed(100, ONE, every=0.1)
    async with load.arriving(team):
        await bindings.count(20)
        proxy.shut()
        cut = time.monotonic()
        assert await leader.ended() == 1
        gave_up = moment(await leader.said("lease lost"))
        began = moment(await successor.said("lease acquired"))
        assert gave_up < began
        print(f"given up {(began - gave_up).total_seconds():.1f} s before the other one began")

        await bindings.count(60)
        await proxy.reopen()
        late = [f"{seen.method} {seen.path}: {seen.status}" for seen in proxy.writes_since(cut)]
        print("writes that were on their way when the leader was cut off:", *late, sep="\n  ")

    await bindings.all_of(load.staying)
    await assert_each_has_its_own(team, load.staying)
