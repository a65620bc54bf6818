"""When the cluster is read and watched, with which rights, and what is said where it can't be."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.unit.scheduler.conftest import World
from tests.unit.web.conftest import Play, at, one_runs_and_one_waits, shown, snapshots
from tests.unit.web.refusing import Refusing, forbidden

from parley.api.resources import NODES
from parley.explain.explaining import explain
from parley.kube.client import Call, NotFound, OutcomeUnknown, RawEvent, Unauthorized
from parley.kube.errors import Unreachable
from parley.web.pages import page
from parley.web.snapshots import IDLE, Snapshots

KINDS = 10


def test_nothing_is_read_before_somebody_looks_and_nothing_watched_long_after(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        client = Refusing(world.server.client())
        made = snapshots(world, client)
        await asyncio.sleep(60)
        assert not client.asked

        await made.snapshot()
        await asyncio.sleep(IDLE - 1)
        assert (client.watching, made.watching) == (KINDS, True)
        await asyncio.sleep(2)
        assert (client.watching, made.watching) == (0, False)

        again = await made.snapshot()
        assert len(again.pods) == 2
        assert client.watching == KINDS
        await made.close()
        assert client.watching == 0

    play(scenario)


def test_however_many_look_each_kind_is_listed_once(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        client = Refusing(world.server.client())
        made = snapshots(world, client)

        found = await asyncio.gather(*(made.snapshot() for _ in range(20)))

        assert {len(one.pods) for one in found} == {2}
        assert len({id(one.state.cluster) for one in found}) == 1
        assert {ask: times for ask, times in client.asked.items() if times > 1} == {}
        await made.close()

    play(scenario)


def test_a_world_is_made_anew_only_after_a_change_and_at_most_once_a_second(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        loop, made = asyncio.get_running_loop(), snapshots(world)
        first = await made.snapshot()
        await asyncio.sleep(60)
        assert (await made.snapshot()).state.cluster is first.state.cluster

        clusters = []
        started = loop.time()
        for number in range(3):
            await world.add_node(f"new-{number}")
            await asyncio.sleep(0.01)
            clusters.append((await made.snapshot()).state.cluster)

        assert len({id(cluster) for cluster in (first.state.cluster, *clusters)}) == 4
        assert 2 <= loop.time() - started < 2.1
        assert [len(list(cluster.nodes())) for cluster in clusters] == [3, 4, 5]
        await made.close()

    play(scenario)


def test_signs_of_life_of_nodes_are_no_changes(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made = snapshots(world)
        await made.snapshot()
        await asyncio.sleep(5)
        before = made.revision

        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:10:00Z"}
        await world.client.patch(NODES, "a", {"status": {"conditions": [ready]}}, subresource="status")
        await asyncio.sleep(1)
        assert made.revision == before
        await world.taint("a", "maintenance", "NoSchedule")
        await asyncio.sleep(1)
        assert made.revision > before
        await made.close()

    play(scenario)


def test_who_may_read_one_namespace_sees_that_and_what_is_missing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        client = Refusing(world.server.client(), lambda call: forbidden(call) if call.namespace is None else None)

        made = snapshots(world, client)
        found = await made.snapshot()
        told = await explain(client, world.clock(), "default", "wants")

        assert set(found.pods) == {("default", "runs"), ("default", "wants")}
        assert found.unread == told.unread
        assert "nodes is forbidden at the cluster scope" in found.unread
        await world.delete_pod("runs")
        await asyncio.sleep(5)
        assert set((await made.snapshot()).pods) == {("default", "wants")}
        page_ = await page(made, at("/"))
        assert "<strong>Not read: </strong>nodes is forbidden at the cluster scope" in page_.main
        await made.close()

    play(scenario)


def test_who_may_read_nothing_is_told_so(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)

        client = Refusing(world.server.client(), forbidden)
        first, pod = await shown(world, "/", client), await shown(world, "/pods/default/wants", client)

        assert "pods is forbidden at the cluster scope" in first.main
        assert pod.status == 503
        assert "pods is forbidden in namespace default: ask an administrator for that right" in pod.main

    play(scenario)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unauthorized(401, "Unauthorized", "Unauthorized"), "log in again"),
        (OutcomeUnknown("GET pods: no answer"), "check whether the API server runs and can be reached"),
    ],
)
def test_a_server_that_does_not_answer(play: Play, error: Exception, words: str) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        client = Refusing(world.server.client(), lambda _: error)
        made = snapshots(world, client)

        before = await page(made, at("/"))
        assert (before.status, words in before.main) == (503, True)

        client.refuse = lambda _: None
        await asyncio.sleep(60)
        assert (await page(made, at("/"))).status == 200
        await made.close()

    play(scenario)


def test_what_is_shown_may_be_old_while_watches_fail(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        client = Refusing(world.server.client())
        made = snapshots(world, client)
        assert "May be old" not in (await page(made, at("/"))).main

        client.refuse = lambda call: OutcomeUnknown("GET nodes: connection lost") if call.verb == "watch" else None
        await world.taint("a", "maintenance", "NoSchedule")
        await asyncio.sleep(5)
        broken = await page(made, at("/nodes/b"))
        assert broken.status == 200
        assert "May be old: </strong>GET nodes: connection lost: check whether the API server runs" in broken.main

        client.refuse = lambda _: None
        await asyncio.sleep(60)
        mended = await page(made, at("/nodes/a"))
        assert "May be old" not in mended.main
        assert "maintenance" in mended.main
        await made.close()

    play(scenario)


def test_a_server_that_lets_each_watch_hang_until_it_times_out_does_not_seem_to_work_meanwhile(play: Play) -> None:
    class Hanging(Refusing):
        hangs = False

        async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
            if self.hangs:
                await asyncio.sleep(10)
                raise Unreachable(str(call), "https://api", "no answer within 10 s")
            async for event in super().stream(call):
                if self.hangs:
                    raise Unreachable(str(call), "https://api", "the connection was closed")
                yield event

    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        client = Hanging(world.server.client())
        made = snapshots(world, client)
        await made.snapshot()

        client.hangs = True
        await world.taint("a", "maintenance", "NoSchedule")  # every later watch of nodes hangs
        seen = []
        for _ in range(120):
            await asyncio.sleep(1)
            seen.append(bool(made.trouble))
        assert seen == [True] * len(seen)

        client.hangs = False
        await asyncio.sleep(60)
        assert made.trouble == ""
        await made.close()

    play(scenario)


def test_a_cluster_without_parley_until_it_is_installed(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)

        def not_installed(call: Call) -> Exception | None:
            missing = call.resource.group == "parley.dev"
            return (
                NotFound(404, "NotFound", "the server could not find the requested resource") if missing else None
            )

        client = Refusing(world.server.client(), not_installed)
        made = snapshots(world, client)
        assert "Parley is not installed in this cluster, or not completely" in (await page(made, at("/"))).main

        client.refuse = lambda _: None
        await asyncio.sleep(60)
        assert "default/wants" in (await page(made, at("/"))).main
        await made.close()

    play(scenario)


def test_a_large_cluster_is_still_being_read(play: Play) -> None:
    class Slow(Refusing):
        async def request(self, call: Call) -> bytes:
            await asyncio.sleep(30)
            return await super().request(call)

    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made: Snapshots = snapshots(world, Slow(world.server.client()))

        early = await page(made, at("/"))
        assert (early.status, "the cluster is still being read" in early.main) == (503, True)
        await asyncio.sleep(30)
        assert (await page(made, at("/"))).status == 200
        await made.close()

    play(scenario)


def test_who_asks_for_a_pod_that_is_not_there_has_no_pods_listed_each_time(play: Play) -> None:
    """A page that stays open when its pod is gone is made again with every change in the cluster."""

    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        client = Refusing(world.server.client())
        made = snapshots(world, client)
        await made.snapshot()
        client.asked.clear()

        for _ in range(3):
            assert "did you mean wants?" in (await page(made, at("/pods/default/want"))).main

        assert {ask: times for ask, times in client.asked.items() if ask.startswith("list")} == {}
        await made.close()

    play(scenario)
