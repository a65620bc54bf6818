"""What the API server in memory has beyond a real one: a clock, a short memory, cut watches, the same run again.

That it behaves as a real one otherwise is shown by the conformance tests in tests/integration/kube.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from parley.api.resources import NODES, POD_SCHEDULINGS, Resource
from parley.kube.client import BadRequest, Client, EventType, Expired, WatchEvent
from parley.kube.errors import Silent
from parley.kube.memory import MemoryServer
from parley.kube.memory.patches import merge_patch

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, dict[str, Any])
GADGETS = Resource("example.org", "v2", "gadgets", "Gadget", True, dict[str, Any])


def config_map(name: str, value: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"key": value}}


def watch(client: Client, version: str) -> AsyncIterator[WatchEvent[dict[str, Any]]]:
    return client.watch(CONFIG_MAPS, "default", resource_version=version)


async def fill(client: Client, count: int) -> str:
    """Make one object and change it; returns the version before."""
    version = (await client.list(CONFIG_MAPS)).resource_version
    await client.create(CONFIG_MAPS, config_map("a"), "default")
    for number in range(count - 1):
        await client.patch(CONFIG_MAPS, "a", {"data": {"key": str(number)}}, "default")
    return version


async def test_timestamps_are_the_given_clocks() -> None:
    client = MemoryServer(lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)).client()

    made = await client.create(CONFIG_MAPS, config_map("a"), "default")

    assert made["metadata"]["creationTimestamp"] == "2026-01-02T03:04:05Z"


async def test_the_same_seed_gives_the_same_names_and_uids() -> None:
    async def run(seed: int) -> list[tuple[str, str]]:
        client = MemoryServer(seed=seed).client()
        made = [
            await client.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}, "default") for _ in range(3)
        ]
        return [(one["metadata"]["name"], one["metadata"]["uid"]) for one in made]

    assert await run(1) == await run(1)
    assert await run(1) != await run(2)


async def test_what_was_forgotten_has_expired() -> None:
    server = MemoryServer()
    client = server.client()
    version = await fill(client, 3)

    server.forget_history()

    with pytest.raises(Expired, match=f"too old resource version: {version} "):
        await anext(watch(client, version))


async def test_the_history_has_a_limit() -> None:
    client = MemoryServer(history=5).client()
    version = await fill(client, 20)

    with pytest.raises(Expired):
        await anext(watch(client, version))
    latest = int((await client.list(CONFIG_MAPS)).resource_version)
    event = await anext(watch(client, str(latest - 5)))
    assert int(event.resource_version) == latest - 4


async def test_other_kinds_do_not_push_a_kind_out_of_the_history() -> None:
    client = MemoryServer(history=2).client()
    version = (await client.list(NODES)).resource_version
    await client.create(NODES, {"metadata": {"name": "node-1"}})
    await fill(client, 20)

    event = await anext(client.watch(NODES, resource_version=version))

    assert event.object is not None
    assert event.object.metadata.name == "node-1"


async def test_a_watch_that_fell_behind_has_expired() -> None:
    client = MemoryServer(history=2).client()
    events = watch(client, (await client.list(CONFIG_MAPS)).resource_version)
    reading = asyncio.ensure_future(anext(events))
    await fill(client, 1)
    await reading

    for number in range(20):
        await client.patch(CONFIG_MAPS, "a", {"data": {"key": f"again {number}"}}, "default")

    with pytest.raises(Expired):
        await anext(events)


async def test_watches_that_the_server_ends_can_be_continued() -> None:
    server = MemoryServer()
    client = server.client()
    version = await fill(client, 1)
    events = watch(client, version)
    first = await anext(events)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)

    server.end_watches()

    with pytest.raises(StopAsyncIteration):
        await waiting
    await client.patch(CONFIG_MAPS, "a", {"data": {"key": "new"}}, "default")
    continued = await anext(watch(client, first.resource_version))
    assert continued.type is EventType.MODIFIED


async def test_a_quiet_watch_gets_bookmarks_from_which_it_can_continue() -> None:
    server = MemoryServer(bookmark_interval=0.01)
    client = server.client()
    events = watch(client, (await client.list(CONFIG_MAPS)).resource_version)
    await client.create(NODES, {"metadata": {"name": "node-1"}})

    bookmark = await anext(events)

    assert (bookmark.type, bookmark.object) == (EventType.BOOKMARK, None)
    assert bookmark.resource_version == str(server.resource_version)
    server.forget_history()
    await client.create(CONFIG_MAPS, config_map("a"), "default")
    event = await anext(watch(client, bookmark.resource_version))
    assert event.type is EventType.ADDED


async def test_a_watch_from_a_version_that_is_yet_to_come_hears_nothing_before_it() -> None:
    """So does the watch cache of a real API server (cache_watcher.go, `process`)."""
    server = MemoryServer(bookmark_interval=0.01)
    client = server.client()
    events = watch(client, str(server.resource_version + 3))
    for name in ("a", "b"):
        await client.create(CONFIG_MAPS, config_map(name), "default")

    with pytest.raises(Silent):
        await anext(events)

    events = watch(client, str(server.resource_version + 1))
    for name in ("c", "d"):
        await client.create(CONFIG_MAPS, config_map(name), "default")
    event = await anext(events)
    assert event.object is not None
    assert event.object["metadata"]["name"] == "d"


async def test_many_watches_see_the_same_change() -> None:
    client = MemoryServer().client()
    version = (await client.list(CONFIG_MAPS)).resource_version
    reading = [asyncio.ensure_future(anext(watch(client, version))) for _ in range(50)]
    await asyncio.sleep(0)

    await fill(client, 1)

    events = await asyncio.gather(*reading)
    assert {event.resource_version for event in events} == {events[0].resource_version}
    assert len({id(event.object) for event in events}) == 50


async def test_a_kind_that_nobody_described_is_served_all_the_same() -> None:
    client = MemoryServer().client()
    made = await client.create(GADGETS, {"metadata": {"name": "a"}, "spec": {"free": [1]}}, "default")
    changed = await client.patch(GADGETS, "a", {"spec": {"more": {"x": None, "y": 1}}}, "default")

    assert (made["apiVersion"], made["kind"]) == ("example.org/v2", "Gadget")
    assert changed["spec"] == {"free": [1], "more": {"y": 1}}
    assert changed["metadata"]["generation"] == 2


async def test_the_namespace_is_named_for_namespaced_kinds_only() -> None:
    client = MemoryServer().client()

    with pytest.raises(BadRequest, match="configmaps are namespaced: name the namespace"):
        await client.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(BadRequest, match="nodes are not namespaced: name no namespace"):
        await client.create(NODES, {"metadata": {"name": "node-1"}}, "default")


async def test_the_clients_name_owns_what_is_written_in_no_other() -> None:
    server = MemoryServer()
    await server.client("kubelet").create(CONFIG_MAPS, config_map("a", "1"), "default")

    body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map("a", "2")}
    with pytest.raises(Exception, match='conflict with "kubelet" using v1'):
        await server.client().apply(CONFIG_MAPS, "a", body, "default", field_manager="one")


async def test_every_fault_of_an_object_is_told_at_once() -> None:
    client = MemoryServer().client()
    body = {"metadata": {"name": "a"}, "spec": {"round": -1, "candidateNodes": [""]}}

    with pytest.raises(Exception, match=r'"a" is invalid: \[spec\.candidateNodes\[0\]: .*, spec\.round: ') as told:
        await client.create(POD_SCHEDULINGS, body, "default")
    assert told.typename == "Invalid"


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": {"b": 1}}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
        ({}, {"a": {"b": None, "c": {"d": None}}}, {"a": {"c": {}}}),
        ({}, {"a": [{"b": None}, None, 1]}, {"a": [{}, None, 1]}),
        ({"a": [1]}, {"a": [{"b": None}]}, {"a": [{}]}),
        ({"a": {"b": 1}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ],
    ids=["there", "new", "in a new list", "in a list that is replaced", "in a list for an object"],
)
def test_a_merge_patch_leaves_out_nulls_where_the_api_server_does(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch) == merged
