"""Objects that can't be decoded: each has a tombstone, and nothing stops; the same in memory and over HTTP."""

import asyncio
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.api.builtin import BuiltinClaim
from parley.api.opaque import read, why_unreadable
from parley.api.resources import BUILTIN_CLAIMS, NODES
from parley.kube import responses
from parley.kube.client import Client, EventType, OutcomeUnknown, Tombstone, WatchEvent
from parley.kube.informer import Informer
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime

DEEP = b'{"a":' * 2_000 + b"1" + b"}" * 2_000
HALF = b'{"a": "\\ud800"}'


def body(name: str, parameters: bytes = b"{}", **requests: Any) -> dict[str, Any]:
    config = [{"opaque": {"driver": "example.com", "parameters": orjson.Fragment(parameters)}}]
    wanted = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}, **requests}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [wanted], "config": config}}}


def strict(claim: BuiltinClaim) -> BuiltinClaim:
    """Stands for a field that this version does not know: such a claim can't be decoded."""
    if claim.metadata.labels.get("from") == "future":
        raise ValueError("a field of the future")
    return claim


class Told:
    """What an informer reported, in short."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bool, bool]] = []
        self.tombstones: list[Tombstone] = []

    def changed(self, old: BuiltinClaim | None, new: BuiltinClaim | None) -> None:
        claim = new or old
        assert claim is not None
        self.changes.append((claim.metadata.name, old is not None, new is not None))


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


def following(client: Client, told: Told) -> tuple[Informer[BuiltinClaim], asyncio.Task[None]]:
    informer = Informer(
        client,
        BUILTIN_CLAIMS,
        on_change=told.changed,
        on_tombstone=told.tombstones.append,
        transform=strict,
    )
    return informer, asyncio.create_task(informer.run())


async def spoil(client: Client, name: str, value: str | None = "future") -> None:
    await client.patch(BUILTIN_CLAIMS, name, {"metadata": {"labels": {"from": value}}}, "team")
    await asyncio.sleep(1)


ADDED, CHANGED, GONE = (False, True), (True, True), (True, False)


async def test_one_of_a_list_and_the_others_are_there(server: MemoryServer) -> None:
    client, told = server.client(), Told()
    for name in ("first", "bad", "last"):
        await client.create(BUILTIN_CLAIMS, body(name), "team")
    await spoil(client, "bad")

    informer, run = following(client, told)
    await asyncio.sleep(1)

    assert told.changes == [("first", *ADDED), ("last", *ADDED)]
    (stone,) = told.tombstones
    claim = await client.get(BUILTIN_CLAIMS, "bad", "team")
    meta = claim.metadata
    assert stone == Tombstone("team", "bad", meta.uid, meta.resource_version, "ValueError: a field of the future")
    assert list(informer.tombstones) == [stone]
    assert informer.outage() is None
    run.cancel()


async def test_what_was_known_stays_until_the_object_can_be_decoded_again(server: MemoryServer) -> None:
    client, told = server.client(), Told()
    await client.create(BUILTIN_CLAIMS, body("claim"), "team")
    informer, run = following(client, told)
    await asyncio.sleep(1)

    await spoil(client, "claim")
    known = informer.get("team", "claim")
    assert known is not None
    assert known.metadata.labels == {}
    assert len(informer.tombstones) == 1

    await client.create(BUILTIN_CLAIMS, body("other"), "team")
    await spoil(client, "claim", None)

    assert told.changes == [("claim", *ADDED), ("other", *ADDED), ("claim", *CHANGED)]
    assert list(informer.tombstones) == []
    run.cancel()


async def test_what_was_known_goes_when_the_object_is_deleted(server: MemoryServer) -> None:
    client, told = server.client(), Told()
    await client.create(BUILTIN_CLAIMS, body("claim"), "team")
    informer, run = following(client, told)
    await asyncio.sleep(1)
    await spoil(client, "claim")

    await client.delete(BUILTIN_CLAIMS, "claim", "team")
    await asyncio.sleep(1)

    assert told.changes == [("claim", *ADDED), ("claim", *GONE)]
    assert list(informer.tombstones) == []
    run.cancel()


async def test_another_object_of_the_name_is_not_taken_for_the_one_that_was_known(server: MemoryServer) -> None:
    client, told = server.client(), Told()
    await client.create(BUILTIN_CLAIMS, body("claim"), "team")
    informer, run = following(client, told)
    await asyncio.sleep(1)
    server.end_watches()
    await client.delete(BUILTIN_CLAIMS, "claim", "team")
    meta = {"name": "claim", "labels": {"from": "future"}}
    await client.create(BUILTIN_CLAIMS, {**body("claim"), "metadata": meta}, "team")
    server.forget_history()
    await asyncio.sleep(60)

    assert told.changes == [("claim", *ADDED), ("claim", *GONE)]
    assert informer.get("team", "claim") is None
    assert len(informer.tombstones) == 1
    run.cancel()


async def test_a_tombstone_goes_when_a_list_has_the_object_no_more(server: MemoryServer) -> None:
    client, told = server.client(), Told()
    await client.create(BUILTIN_CLAIMS, body("claim"), "team")
    await spoil(client, "claim")
    informer, run = following(client, told)
    await asyncio.sleep(1)
    server.end_watches()
    await client.delete(BUILTIN_CLAIMS, "claim", "team")
    server.forget_history()
    await asyncio.sleep(60)

    assert list(informer.tombstones) == []
    assert told.changes == []
    run.cancel()


async def test_each_state_is_told_once(server: MemoryServer) -> None:
    client, told = server.client(), Told()
    await client.create(BUILTIN_CLAIMS, body("claim"), "team")
    await spoil(client, "claim")
    _, run = following(client, told)
    await asyncio.sleep(1)
    server.end_watches()
    server.forget_history()
    await asyncio.sleep(60)
    assert len(told.tombstones) == 1

    await client.patch(BUILTIN_CLAIMS, "claim", {"metadata": {"annotations": {"a": "b"}}}, "team")
    await asyncio.sleep(1)

    assert len(told.tombstones) == 2
    run.cancel()


@pytest.mark.parametrize("parameters", [DEEP, HALF], ids=["deep", "half a surrogate pair"])
async def test_opaque_parameters_that_nobody_can_read_are_no_matter(
    server: MemoryServer, parameters: bytes
) -> None:
    client, told = server.client(), Told()
    await client.create(BUILTIN_CLAIMS, body("listed", parameters), "team")
    informer, run = following(client, told)
    await asyncio.sleep(1)
    await client.create(BUILTIN_CLAIMS, body("watched", parameters), "team")
    await client.create(BUILTIN_CLAIMS, body("good"), "team")
    await asyncio.sleep(1)

    assert [name for name, *_ in told.changes] == ["listed", "watched", "good"]
    assert told.tombstones == []
    for name in ("listed", "watched"):
        claim = informer.get("team", name)
        assert claim is not None
        (config,) = claim.spec.devices.config
        assert config.opaque is not None
        assert why_unreadable(read(config.opaque.parameters))
    run.cancel()


async def test_an_answer_that_cannot_be_decoded_is_as_good_as_none(server: MemoryServer) -> None:
    client = server.client()
    with pytest.raises(OutcomeUnknown, match="cannot be read as Node"):
        await client.create(NODES, {"metadata": {"name": "n"}, "spec": {"unschedulable": "yes"}})
    with pytest.raises(OutcomeUnknown, match="cannot be read as Node"):
        await client.get(NODES, "n")


def frames(*events: tuple[str, bytes]) -> list[bytes]:
    return [b'{"type":"%s","object":%s}\n' % (kind.encode(), item) for kind, item in events]


def item(name: str, spec: bytes) -> bytes:
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "7"}
    return b'{"kind":"ResourceClaim","metadata":%s,"spec":%s}' % (orjson.dumps(meta), spec)


BROKEN = b'{"devices": {"requests": 7}}'
UNTELLABLE = pytest.mark.parametrize("inside", [DEEP, HALF, b'"\xff"'], ids=["deep", "half", "no UTF-8"])


@UNTELLABLE
async def test_a_page_is_told_apart_where_the_decoder_cannot(inside: bytes) -> None:
    """Also where what nobody can read stands in no opaque field."""
    items = [item("good", b"{}"), item("bad", b'{"devices":{"requests":%s}}' % inside), item("wrong", BROKEN)]
    content = b'{"metadata":{"resourceVersion":"9","continue":"more"},"items":[%s]}' % b",".join(items)

    listing, rest = await responses.page(BUILTIN_CLAIMS, content)

    assert [claim.metadata.name for claim in listing.items] == ["good"]
    assert [(stone.name, stone.uid, stone.resource_version) for stone in listing.tombstones] == [
        ("bad", "uid-bad", "7"),
        ("wrong", "uid-wrong", "7"),
    ]
    assert (listing.resource_version, rest) == ("9", "more")


def decoded(line: bytes) -> WatchEvent[BuiltinClaim]:
    return responses.event(BUILTIN_CLAIMS, responses.raw_event(line))


@UNTELLABLE
@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_a_line_of_a_watch_is_a_tombstone_where_the_decoder_fails(kind: str, inside: bytes) -> None:
    (line,) = frames((kind, item("bad", b'{"devices":{"requests":%s}}' % inside)))
    told = decoded(line)

    assert (told.type, told.object, told.resource_version) == (EventType(kind), None, "7")
    assert told.tombstone is not None
    assert (told.tombstone.namespace, told.tombstone.name) == ("team", "bad")


CONTENTS = {
    "good": b"{}",
    "deep": b'{"devices":{"config":[{"opaque":{"driver":"d","parameters":%s}}]}}' % DEEP,
    "half": b'{"devices":{"config":[{"opaque":{"driver":"d","parameters":%s}}]}}' % HALF,
    "wrong": BROKEN,
    "deep elsewhere": b'{"devices":{"requests":%s}}' % DEEP,
    "separators": '{"devices":{"requests":[{"name":"\u2028\u0085"}]}}'.encode(),
}
TOMBSTONES = {"wrong", "deep elsewhere"}


@given(st.lists(st.sampled_from(sorted(CONTENTS)), max_size=8), st.lists(st.integers(0, 60_000), max_size=20))
def test_a_stream_is_the_same_however_it_is_cut(names: list[str], places: list[int]) -> None:
    whole = b"".join(frames(*(("ADDED", item(f"c{i}", CONTENTS[name])) for i, name in enumerate(names))))
    cuts = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    lines = responses.LineSplitter()

    told = [decoded(line) for a, b in pairwise(cuts) for line in lines.feed(whole[a:b])]

    assert not lines.unfinished
    assert [event.tombstone is not None for event in told] == [name in TOMBSTONES for name in names]
    seen = [event.tombstone or (event.object and event.object.metadata) for event in told]
    assert [found.name for found in seen if found] == [f"c{i}" for i in range(len(names))]


@pytest.mark.parametrize(
    "line",
    [b"", b"7", b"{}", b'{"type":"ADDED"}', b'{"type":"ADDED","object":7}', b'{"type":"ADDED","object":{"a":'],
)
def test_a_line_that_names_no_object_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        decoded(line)
