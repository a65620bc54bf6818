"""The typed verbs above a transport: which calls they make, and what becomes of the bytes that come back."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import orjson
import pytest

from parley.api.resources import CLASSES, PODS, Resource
from parley.kube.client import Call, Client, EventType, Expired, OutcomeUnknown, RawEvent
from parley.kube.memory import MemoryServer
from parley.kube.responses import DECODED_AT_ONCE

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, dict[str, Any])
POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "7"},
}


class ScriptedTransport:
    """Answers with the texts in turn, and streams the events; keeps the calls."""

    def __init__(self, *answers: object, events: Sequence[tuple[EventType, object]] = ()) -> None:
        self.calls: list[Call] = []
        self.streams_ended = 0
        self.closed = 0
        self._answers = [orjson.dumps(answer) for answer in answers]
        self._events = [RawEvent(kind, orjson.dumps(item)) for kind, item in events]

    async def request(self, call: Call) -> bytes:
        self.calls.append(call)
        return self._answers.pop(0)

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        self.calls.append(call)
        try:
            for event in self._events:
                yield event
            raise Expired(410, "Expired", "too old")
        finally:
            self.streams_ended += 1

    async def close(self) -> None:
        self.closed += 1


def page(rest: str, *items: object) -> dict[str, object]:
    return {"metadata": {"resourceVersion": "9", "continue": rest}, "items": items}


async def test_a_list_is_read_page_by_page() -> None:
    transport = ScriptedTransport(page("more", {"data": 1}), page("", {"data": 2}))

    listing = await Client(transport).list(CONFIG_MAPS, "team", label_selector="a=b")

    assert listing.items == ({"data": 1}, {"data": 2})
    assert listing.resource_version == "9"
    assert [call.query for call in transport.calls] == [
        {"labelSelector": "a=b", "limit": "500"},
        {"labelSelector": "a=b", "limit": "500", "continue": "more"},
    ]


@pytest.mark.parametrize("count", [1, 10])
async def test_other_tasks_run_while_a_long_page_is_decoded(count: int) -> None:
    items = [{"data": "x" * (DECODED_AT_ONCE // 2)}] * count
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    listing = await Client(ScriptedTransport(page("", *items))).list(CONFIG_MAPS)
    task.cancel()
    assert len(listing.items) == count
    assert turns == 0 if count == 1 else turns >= 3


async def test_what_does_not_fit_in_a_list_is_a_tombstone_and_the_rest_is_there() -> None:
    broken = {"metadata": {**POD["metadata"], "name": "b"}, "spec": 7}
    listing = await Client(ScriptedTransport(page("", POD, broken))).list(PODS)
    assert [pod.metadata.name for pod in listing.items] == ["a"]
    assert [stone.name for stone in listing.tombstones] == ["b"]


async def test_one_object_that_does_not_fit_is_an_unknown_outcome() -> None:
    client = Client(ScriptedTransport({"metadata": {"name": "gpu"}, "spec": 7}))
    with pytest.raises(
        OutcomeUnknown, match="GET resourceclasses gpu: the answer cannot be read as ResourceClass"
    ):
        await client.get(CLASSES, "gpu")


async def test_each_write_is_one_call() -> None:
    transport = ScriptedTransport(*([POD] * 5))
    client = Client(transport)

    await client.create(PODS, {"metadata": {"generateName": "a-"}}, "team", field_manager="m")
    await client.patch(PODS, "a", {"status": {}}, "team", subresource="status")
    await client.apply(PODS, "a", {"spec": {}}, "team", field_manager="m", force=True)
    await client.delete(PODS, "a", "team", uid="u", grace_period_seconds=0)
    await client.create_subresource(PODS, "a", "binding", {"target": {}}, "team")

    kind = {"apiVersion": "v1", "kind": "Pod"}
    assert [
        (str(call), call.verb, dict(call.query), call.content_type, call.body) for call in transport.calls
    ] == [
        (
            "POST pods team/a-",
            "create",
            {"fieldManager": "m"},
            "application/json",
            {**kind, "metadata": {"generateName": "a-"}},
        ),
        ("PATCH pods team/a/status", "patch", {}, "application/merge-patch+json", {"status": {}}),
        (
            "PATCH pods team/a",
            "patch",
            {"fieldManager": "m", "force": "true"},
            "application/apply-patch+yaml",
            {**kind, "spec": {}},
        ),
        (
            "DELETE pods team/a",
            "delete",
            {},
            "application/json",
            {"propagationPolicy": "Background", "preconditions": {"uid": "u"}, "gracePeriodSeconds": 0},
        ),
        ("POST pods team/a/binding", "create", {}, "application/json", {"target": {}}),
    ]
    assert all(call.writes for call in transport.calls)


async def test_a_watch_decodes_each_event_and_ends_as_the_stream_does() -> None:
    events = [(EventType.ADDED, POD), (EventType.BOOKMARK, {"metadata": {"resourceVersion": "8"}})]
    transport = ScriptedTransport(events=events)
    seen = []

    async def watch() -> None:
        async for event in Client(transport).watch(PODS, "team", resource_version="6", field_selector="x=y"):
            seen.append((event.type, event.object and event.object.metadata.name, event.resource_version))

    with pytest.raises(Expired):
        await watch()

    assert seen == [(EventType.ADDED, "a", "7"), (EventType.BOOKMARK, None, "8")]
    assert str(transport.calls[0]) == "WATCH pods team"
    assert transport.calls[0].query == {"resourceVersion": "6", "fieldSelector": "x=y"}
    assert not transport.calls[0].writes


async def test_who_stops_watching_ends_the_stream() -> None:
    transport = ScriptedTransport(events=[(EventType.ADDED, POD)] * 2)
    async with aclosing(Client(transport).watch(PODS, resource_version="6")) as events:
        await anext(events)
        assert transport.streams_ended == 0
    assert transport.streams_ended == 1


async def test_clients_nest_and_each_sees_every_call() -> None:
    class Noting(Client):
        def __init__(self, inner: Client, name: str) -> None:
            super().__init__(inner)
            self._name = name

        async def request(self, call: Call) -> bytes:
            seen.append(f"{self._name} {call}")
            return await super().request(call)

        def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
            seen.append(f"{self._name} {call}")
            return super().stream(call)

    seen: list[str] = []
    client = Noting(Noting(MemoryServer().client(), "inner"), "outer")

    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "team")
    async with aclosing(client.watch(CONFIG_MAPS, "team", resource_version="0")) as events:
        assert (await anext(events)).object == made

    assert seen == [
        "outer POST configmaps team/a",
        "inner POST configmaps team/a",
        "outer WATCH configmaps team",
        "inner WATCH configmaps team",
    ]


async def test_closing_reaches_the_transport() -> None:
    transport = ScriptedTransport()
    await Client(Client(transport)).close()
    assert transport.closed == 1
