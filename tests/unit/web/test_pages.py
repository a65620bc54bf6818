"""What is on each page, in HTML and as data."""

import asyncio
import re
from html import unescape

import orjson
import pytest
from tests.unit.explain.conftest import explained, kept_on
from tests.unit.scheduler.conftest import World
from tests.unit.web.conftest import Play, at, one_runs_and_one_waits, shown, snapshots

from parley.api.resources import BUILTIN_CLAIMS, EVENTS, PODS
from parley.explain.model import wire
from parley.kube.client import Call, Client
from parley.web.pages import data


def words(text: str) -> str:
    """What a reader sees, in one line."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", text)))


async def as_data(world: World, path: str, **query: str) -> dict[str, object]:
    made = snapshots(world)
    try:
        status, content = await data(made, at(path, **query))
    finally:
        await made.close()
    found: dict[str, object] = orjson.loads(content)
    return {"status": status, **found}


def test_the_first_page(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        await world.add_pod("plain")

        told = words((await shown(world, "/")).main)

        assert "Pods with claims (2)" in told
        assert re.search(r"default/wants … waits NothingViable 60 s - gpu 0 0 of 2 nodes are available", told)
        assert re.search(r"default/runs ✓ bound - 2 min a gpu - -", told)
        assert "gpu device.parley.dev 2 devices 1 0 1 … 1 waiting" in told
        assert "plain" not in told

    play(scenario)


def test_pods_can_be_chosen_by_namespace_and_state(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)

        async def chosen(state: str = "", namespace: str = "") -> set[str]:
            page = await shown(world, "/", state=state, namespace=namespace)
            return set(re.findall(r"default/\w+", words(page.main)))

        assert await chosen(state="waits") == {"default/wants"}
        assert await chosen(state="bound", namespace="default") == {"default/runs"}
        assert await chosen(namespace="team") == set()
        chosen_form = (await shown(world, "/", state="waits")).main
        assert '<option value="waits" selected>waits (1)</option>' in chosen_form

    play(scenario)


def test_a_pod_that_waits(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)

        page = await shown(world, "/pods/default/wants")
        told = words(page.main)

        assert page.title == "Pod default/wants - Parley"
        assert "Pod default/wants has been waiting for 60 s: NothingViable" in told
        assert "✕ 2 not viable" in told
        assert "a ✕ not viable yes ✓ fits ✕ 0 of 1 device free, 1 wanted" in told
        assert "b ✕ not viable yes ✓ fits ✕ has no devices" in told
        assert (
            "node a is free when pod default/runs ends (holds gpu-0, created 2 min ago) Pods: default/runs" in told
        )
        assert "scheduler 60 s Unschedulable" in told
        assert '<a href="../../pods/default/runs">default/runs</a>' in page.main

    play(scenario)


def test_a_pod_whose_podscheduling_is_of_a_newer_version(play: Play) -> None:
    class Newer(Client):
        async def request(self, call: Call) -> bytes:
            return (await super().request(call)).replace(b'"round":1', b'"round":"first"')

    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)

        told = words((await shown(world, "/pods/default/wants", Newer(world.server.client()))).main)

        assert "Pod default/wants has been waiting for" in told
        assert "Not read: PodScheduling default/wants can't be read" in told
        assert "which has what the controller reported, can't be read: spec.round: Input should be a valid" in told

    play(scenario)


def test_a_pod_that_runs(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)

        told = words((await shown(world, "/pods/default/runs")).main)

        assert "Pod default/runs has been bound to a for 2 min, running" in told
        assert "gpu-0 template one gpu device.parley.dev ✓ allocated on node a: a/gpu-0, for 2 min" in told
        assert "a ● selected yes ✓ viable" in told
        assert "2 min API server - the pod was created" in told
        assert "2 min scheduler - bound the pod to node a" in told

    play(scenario)


def test_the_data_is_that_of_the_command(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)

        for pod in ("runs", "wants"):
            found = await as_data(world, f"/pods/default/{pod}")
            same = orjson.loads(orjson.dumps(wire(await explained(world, pod))))
            assert found["pods"] == [same]
            assert found["timeline"]
        first = await as_data(world, "/")
        assert set(first) == {"status", "pods", "classes", "waiting", "unread", "now"}

    play(scenario)


def test_a_class_and_who_waits_for_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        limits = [
            {"namespaces": ["team"], "units": 2},
            {"namespaceSelector": {"matchLabels": {"tier": "gold"}}, "claims": 9},
            {"claims": 1},
        ]
        await world.add_class("other", limits=limits, shareable=True)

        told = words((await shown(world, "/classes/gpu")).main)
        other = words((await shown(world, "/classes/other")).main)

        assert "Waiting (1)" in told
        assert "default/wants NothingViable 60 s 0 0 of 2 nodes" in told
        assert "default/runs a gpu-0 gpu a/gpu-0 2 min" in told
        assert "Several pods may share a claim. Limit of namespaces team: at most 2 units" in other
        assert "Limit of each namespace with the labels tier=gold: at most 9 claims" in other
        assert "Limit of every other namespace: at most 1 claim" in other
        assert (await as_data(world, "/classes/gpu"))["status"] == 200

    play(scenario)


def test_a_claim_that_is_kept_without_users(play: Play) -> None:
    async def scenario(world: World) -> None:
        until = await kept_on(world, "a")

        told = words((await shown(world, "/classes/gpu")).main)

        assert f"nobody (claim default/disk, kept until {until}) a disk gpu a/gpu-0" in told

    play(scenario)


def test_a_node_and_who_holds_what_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        await world.taint("a", "maintenance", "NoSchedule")
        await world.publish("b", ["gpu-0", "gpu-1"])
        request = {"name": "r", "exactly": {"deviceClassName": "any"}}
        result = {"request": "r", "driver": "device.parley.dev", "pool": "b", "device": "gpu-1"}
        await world.delete_pod("wants")
        await world.create(
            BUILTIN_CLAIMS, {"metadata": {"name": "theirs"}, "spec": {"devices": {"requests": [request]}}}
        )
        allocation = {"allocation": {"devices": {"results": [result]}}}
        await world.client.patch(BUILTIN_CLAIMS, "theirs", {"status": allocation}, "default", subresource="status")
        await asyncio.sleep(1)

        a, b = words((await shown(world, "/nodes/a")).main), words((await shown(world, "/nodes/b")).main)

        assert "Taints: maintenance:NoSchedule" in a
        assert re.search(r"a/gpu-0 device.parley.dev ✓ held default/runs default/runs-gpu-0\S*", a)
        assert "b/gpu-0 device.parley.dev ✓ free - -" in b
        assert "b/gpu-1 device.parley.dev ✓ held - default/theirs" in b

    play(scenario)


def test_what_is_not_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        await world.client.create(PODS, {"metadata": {"name": "far"}, "spec": {"containers": []}}, "team")

        for path, said in (
            ("/pods/default/want", "pod default/want does not exist: did you mean wants?"),
            (
                "/pods/team/far",
                "pod team/far has no claims (spec.resourceClaims is empty): there is nothing to negotiate",
            ),
            ("/classes/none", "there is no class none: see `kubectl get prclasses`"),
            ("/nodes/none", "there is no node none, or nodes may not be read: see `kubectl get nodes`"),
            ("/pods", "there is no such page"),
            ("/pods/default/..%2Fwants", "there is no such page"),
            ("/pods/default/WANTS", "there is no such page"),
            ("/else/where", "there is no such page"),
        ):
            page = await shown(world, path)
            assert page.status == 404
            assert said in unescape(page.main)
            assert await as_data(world, path) == {"status": 404, "error": said}

    play(scenario)


HOSTILE = '<img src=x onerror="alert(1)"></table>\'&amp;'


def test_what_users_and_drivers_write_stays_text(play: Play) -> None:
    """Names are the API server's to check; messages, parameters and events are anybody's."""

    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        pod = await world.pod("wants")
        event = {
            "metadata": {"name": "e"},
            "regarding": {"kind": "Pod", "name": "wants", "namespace": "default", "uid": pod.metadata.uid},
            "reason": HOSTILE,
            "note": HOSTILE,
            "type": "Warning",
            "reportingController": HOSTILE,
            "eventTime": "2026-01-01T00:00:05.000000Z",
        }
        await world.create(EVENTS, event)
        condition = {"type": "PodScheduled", "status": "False", "reason": HOSTILE, "message": HOSTILE}
        await world.client.patch(
            PODS, "wants", {"status": {"conditions": [condition]}}, "default", subresource="status"
        )
        await world.taint("b", HOSTILE, "NoSchedule")
        await world.publish("a", ["gpu-0", HOSTILE])
        await asyncio.sleep(1)

        for path in ("/", "/pods/default/wants", "/nodes/a", "/nodes/b"):
            page = await shown(world, path)
            assert "<img" not in page.main
            assert page.main.count("</table>") == page.main.count("<table>")
        assert HOSTILE in unescape((await shown(world, "/pods/default/wants")).main)
        assert HOSTILE in unescape((await shown(world, "/nodes/a")).main)

    play(scenario)


def test_the_same_page_has_the_same_version(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        before, again = await shown(world, "/nodes/b"), await shown(world, "/nodes/b")

        await world.taint("b", "maintenance", "NoSchedule")
        await asyncio.sleep(1)

        assert before == again
        assert (await shown(world, "/nodes/b")).version != before.version

    play(scenario)


@pytest.mark.parametrize("path", ["/", "/pods/default/wants", "/pods/default/runs", "/classes/gpu", "/nodes/a"])
def test_every_table_says_what_its_rows_and_columns_are(play: Play, path: str) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        text = (await shown(world, path)).main

        tables = re.findall(r"<table>.*?</table>", text)
        assert tables
        for table in tables:
            assert table.startswith('<table><caption class="hidden">')
            columns = table.count('<th scope="col">')
            rows = re.findall(r"<tr>(.*?)</tr>", table)
            assert all(row.count("<td>") == columns - 1 for row in rows[1:])
            assert all(row.startswith('<th scope="row">') for row in rows[1:])
        assert len(re.findall(r"<h1>", text)) == 1
        assert [sign for sign in re.findall(r'class="mark [^>]*>(.)', text) if sign != "<"] == []

    play(scenario)
