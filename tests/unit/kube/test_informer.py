"""What an informer does about each trouble of a watch, in virtual time, against a server that follows a script."""

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import pytest
from tests.unit.kube.scripted_server import (
    STEADY,
    ScriptedServer,
    Stream,
    Told,
    Wait,
    added,
    bookmark,
    deleted,
    follow,
    inform,
    listing,
    modified,
    pod,
)

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.kube.backoff import Backoff
from parley.kube.client import (
    Client,
    Expired,
    Forbidden,
    Listing,
    OutcomeUnknown,
    TooManyRequests,
)
from parley.kube.errors import Silent
from parley.kube.informer import Informer
from parley.kube.memory import MemoryServer

pytestmark = pytest.mark.looptime

GONE = Expired(410, "Expired", "too old resource version: 3 (7)")


async def test_the_list_is_reported_before_synced_and_changes_after_it() -> None:
    a, b = pod("a", 1), pod("b", 2)
    server = ScriptedServer(
        listing(3, a, b), [added(pod("c", 4)), modified(pod("a", 5)), deleted(pod("b", 6)), Wait(1e9)]
    )
    told = Told()
    informer = inform(server, told)
    assert not informer.synced.is_set()

    await follow(informer)

    assert told.changes == [
        ("a", (None, "1")),
        ("b", (None, "2")),
        ("c", (None, "4")),
        ("a", ("1", "5")),
        ("b", ("2", None)),
    ]
    assert informer.synced.is_set()
    assert [item.metadata.name for item in informer.values()] == ["a", "c"]
    assert informer.get("default", "b") is None
    assert len(informer) == 2


async def test_on_change_sees_the_new_state_in_the_copy() -> None:
    server = ScriptedServer(listing(1, pod("a", 1)), [deleted(pod("a", 2)), Wait(1e9)])
    seen: list[tuple[Pod | None, Pod | None]] = []

    def compare(old: Pod | None, new: Pod | None) -> None:
        seen.append((informer.get("default", "a"), new))

    informer = inform(server, compare)
    await follow(informer)

    assert len(seen) == 2
    assert all(held is new for held, new in seen)


async def test_others_run_while_a_burst_of_changes_is_applied() -> None:
    burst = [added(pod(f"pod-{version}", version)) for version in range(2, 102)]
    told = Told()
    informer = inform(ScriptedServer(listing(1), [*burst, Wait(1e9)]), told)
    following = asyncio.create_task(follow(informer))
    turns = [0]

    while turns[-1] < len(burst):
        await asyncio.sleep(0)
        turns.append(len(told.changes))
    following.cancel()

    assert max(after - before for before, after in pairwise(turns)) <= 8


async def test_a_stream_that_ends_is_continued_from_the_last_version_without_a_list() -> None:
    server = ScriptedServer(listing(1), [Wait(300), added(pod("a", 7))], [Wait(300)])
    await follow(inform(server, Told()), 700)

    assert server.requests == [(0, "list"), (0, "watch 1"), (300, "watch 7"), (600, "watch 7")]


async def test_a_stream_that_breaks_is_continued_after_a_pause() -> None:
    server = ScriptedServer(listing(1), [added(pod("a", 7)), Wait(10), OutcomeUnknown("connection reset")])
    await follow(inform(server, Told()))

    assert server.requests == [(0, "list"), (0, "watch 1"), (11, "watch 7")]


async def test_a_bookmark_moves_the_version_and_reports_nothing() -> None:
    server = ScriptedServer(listing(1), [bookmark(40), Wait(60), bookmark(90), Wait(60)])
    told = Told()
    await follow(inform(server, told))

    assert server.requests[-1] == (120, "watch 90")
    assert told.changes == []


async def test_streams_that_end_at_once_are_asked_for_less_and_less_often() -> None:
    server = ScriptedServer(listing(1), [], [bookmark(2)], [], [], [], [])
    await follow(inform(server, Told()), 60)

    assert [time for time, _ in server.requests[1:]] == [0, 1, 3, 7, 15, 23, 31]


async def test_interruptions_are_counted_by_cause() -> None:
    server = ScriptedServer(
        Forbidden(403, "Forbidden", "not yet"),
        listing(3),
        [Wait(5)],
        [OutcomeUnknown("lost")],
        [],
        [GONE],
        listing(9),
    )
    informer = inform(server, Told())

    await follow(informer)

    assert informer.interruptions == {
        "Forbidden": 1,
        "Ended": 1,
        "OutcomeUnknown": 1,
        "EndedAtOnce": 1,
        "Expired": 1,
    }


async def test_an_expired_version_leads_to_a_list_whose_differences_are_reported() -> None:
    server = ScriptedServer(
        listing(3, pod("same", 1), pod("changed", 2), pod("gone", 3), pod("replaced", 3, uid="first")),
        [Wait(60), GONE],
        listing(9, pod("changed", 8), pod("same", 1), pod("new", 7), pod("replaced", 9, uid="second")),
    )
    told = Told()
    await follow(inform(server, told))

    assert told.changes[4:] == [
        ("gone", ("3", None)),
        ("changed", ("2", "8")),
        ("new", (None, "7")),
        ("replaced", ("3", None)),
        ("replaced", (None, "9")),
    ]
    assert server.requests[2:] == [(61, "list"), (61, "watch 9")]


async def test_a_watch_without_bookmarks_leads_to_a_list() -> None:
    # So is the watch of a version that the server does not have yet, because its store was restored from a backup.
    silent = Silent("WATCH pods", "https://server", "nothing came within 150 s")
    server = ScriptedServer(listing(90, pod("lost", 80)), [Wait(150), silent], listing(30, pod("old", 20)))
    told = Told()
    await follow(inform(server, told))

    assert told.changes == [("lost", (None, "80")), ("lost", ("80", None)), ("old", (None, "20"))]
    assert server.requests[2:] == [(151, "list"), (151, "watch 30")]


async def test_a_cache_follows_a_store_that_was_restored_from_a_backup() -> None:
    server, backup = MemoryServer(), MemoryServer()
    for store, names in ((server, ("kept", "lost", "lost-too")), (backup, ("kept",))):
        for name in names:
            await store.client().create(PODS, {"metadata": {"name": name}, "spec": {}}, "default")
    restored = Client(server.client())
    informer = Informer(restored, PODS, backoff=STEADY)
    running = asyncio.create_task(informer.run())
    await asyncio.sleep(1)

    restored._transport = backup.client()
    server.end_watches()
    await asyncio.sleep(600)

    assert [pod.metadata.name for pod in informer.values()] == ["kept"]
    running.cancel()


async def test_what_a_list_has_found_is_told_from_what_was_watched() -> None:
    server = ScriptedServer(
        listing(3, pod("gone", 3)),
        [added(pod("watched", 4)), deleted(pod("watched", 5)), GONE],
        listing(9, pod("new", 7)),
    )
    listed: list[tuple[str, bool]] = []

    def changed(old: Pod | None, new: Pod | None) -> None:
        item = new or old
        assert item is not None
        listed.append((item.metadata.name, informer.listing))

    informer = inform(server, changed)
    await follow(informer)

    assert listed == [("gone", True), ("watched", False), ("watched", False), ("gone", True), ("new", True)]


async def test_a_server_that_expires_every_version_is_not_hammered() -> None:
    server = ScriptedServer(listing(1), GONE, listing(2), GONE, listing(3), GONE, listing(4))
    await follow(inform(server, Told()))

    assert [time for time, asked in server.requests if asked == "list"] == [0, 1, 3, 7]


async def test_a_refused_list_is_tried_again_until_it_is_allowed() -> None:
    refused = Forbidden(403, "Forbidden", 'pods is forbidden: User "parley" cannot list resource "pods"')
    server = ScriptedServer(refused, refused, OutcomeUnknown("timed out"), listing(5, pod("a", 1)))
    informer = inform(server, Told())
    await follow(informer)

    assert server.requests == [(0, "list"), (1, "list"), (3, "list"), (7, "list"), (7, "watch 5")]
    assert informer.synced.is_set()


async def test_a_server_that_asks_to_slow_down_is_obeyed() -> None:
    busy = TooManyRequests(429, "TooManyRequests", "the server is busy", retry_after=20)
    server = ScriptedServer(busy, listing(1), busy)
    await follow(inform(server, Told()))

    assert server.requests == [(0, "list"), (20, "list"), (20, "watch 1"), (40, "watch 1")]


async def test_no_server_keeps_a_cache_from_being_read_for_longer_than_a_minute() -> None:
    for_ever = TooManyRequests(429, "TooManyRequests", "maintenance", retry_after=1e300)
    server = ScriptedServer(for_ever, listing(1))
    await follow(inform(server, Told()))

    assert server.requests == [(0, "list"), (60, "list"), (60, "watch 1")]


async def test_a_change_after_failures_makes_the_next_pause_short_again() -> None:
    cut = OutcomeUnknown("connection reset")
    server = ScriptedServer(listing(1), cut, cut, cut, [added(pod("a", 2)), cut])
    await follow(inform(server, Told()))

    assert [time for time, _ in server.requests] == [0, 0, 1, 3, 7, 8]


async def test_a_watch_that_was_open_for_long_and_breaks_has_worked() -> None:
    # As behind a load balancer that cuts what was quiet for 35 s: kubeadm's guide has HAProxy do so.
    cut: Stream = [Wait(35), OutcomeUnknown("cut")]
    server = ScriptedServer(listing(1), *[cut] * 6)
    await follow(inform(server, Told()), 220)

    assert [time for time, _ in server.requests[1:]] == [0, 36, 72, 108, 144, 180, 216]


async def test_an_object_of_the_same_name_with_another_uid_is_another_object() -> None:
    server = ScriptedServer(listing(1, pod("a", 1, uid="first")), [added(pod("a", 5, uid="second")), Wait(1e9)])
    told = Told()
    await follow(inform(server, told))

    assert told.changes[1:] == [("a", ("1", None)), ("a", (None, "5"))]


async def test_a_state_that_is_known_already_is_not_reported_again() -> None:
    server = ScriptedServer(
        listing(1, pod("a", 1)), [added(pod("a", 1)), deleted(pod("never seen", 3)), Wait(1e9)]
    )
    told = Told()
    await follow(inform(server, told))

    assert told.changes == [("a", (None, "1"))]


async def test_an_error_of_on_change_ends_the_run_and_closes_the_stream() -> None:
    def fail(old: Pod | None, new: Pod | None) -> None:
        raise ValueError("a sum over the pods went below zero")

    server = ScriptedServer(listing(1), [added(pod("a", 2)), Wait(1e9)])
    with pytest.raises(ValueError, match="went below zero"):
        await inform(server, fail).run()
    assert server.open_streams == 0


async def test_cancelling_closes_the_stream() -> None:
    server = ScriptedServer(listing(1))
    informer = inform(server, Told())
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    await asyncio.sleep(1)
    assert server.open_streams == 1

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.open_streams == 0


async def test_an_index_follows_the_objects() -> None:
    server = ScriptedServer(
        listing(3, pod("a", 1, node="n1"), pod("b", 2, node="n1"), pod("waiting", 3)),
        [Wait(1), modified(pod("waiting", 4, node="n2")), Wait(1), deleted(pod("a", 5)), Wait(1e9)],
    )
    informer = inform(server, Told())
    informer.index("node", lambda item: [item.spec.node_name] if item.spec.node_name else [])
    task = asyncio.create_task(informer.run())

    def names(node: str) -> list[str]:
        return [item.metadata.name for item in informer.by_index("node", node)]

    await informer.synced.wait()
    assert (names("n1"), names("n2"), names("")) == (["a", "b"], [], [])
    await asyncio.sleep(1.5)
    assert names("n2") == ["waiting"]
    await asyncio.sleep(1)
    assert names("n1") == ["b"]
    task.cancel()


async def test_an_index_made_late_finds_what_is_there_and_an_unknown_one_is_an_error() -> None:
    informer = inform(ScriptedServer(listing(1, pod("a", 1, node="n1"))), Told())
    await follow(informer, 1)
    informer.index("node", lambda item: [item.spec.node_name])

    assert len(informer.by_index("node", "n1")) == 1
    with pytest.raises(KeyError, match="phase"):
        informer.by_index("phase", "Running")


async def test_transform_decides_what_is_kept_of_what_is_listed_and_watched() -> None:
    client = MemoryServer().client()
    told = Told()
    informer = Informer(client, PODS, on_change=told, transform=lambda item: Pod(metadata=item.metadata))
    watching = asyncio.create_task(informer.run())
    for name in ("listed", "watched"):
        body = {"metadata": {"name": name}, "spec": {"nodeName": "n1", "containers": [{"name": "main"}]}}
        await client.create(PODS, body, "default")
        await asyncio.sleep(1)
    watching.cancel()

    assert [kept.spec.node_name for kept in informer.values()] == ["", ""]
    assert (await client.get(PODS, "watched", "default")).spec.node_name == "n1"


async def test_plain_dictionaries_are_kept_by_their_metadata() -> None:
    def raw(name: str, version: str, uid: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "resourceVersion": version, "uid": uid}}

    class Server(ScriptedServer):
        async def list(self, *_: Any, **__: Any) -> Any:
            return Listing((raw("node-1", "1", "u"),), "1")

    informer = Informer(cast(Client, Server()), PODS.untyped())
    with suppress(TimeoutError):
        await asyncio.wait_for(informer.run(), 1)
    assert informer.get("", "node-1") == raw("node-1", "1", "u")


async def test_no_two_pauses_need_be_alike() -> None:
    numbers = iter([0.0, 0.5])
    jittery = Backoff(first=1, longest=8, jitter=0.5, random=lambda: next(numbers))
    server = ScriptedServer(OutcomeUnknown("refused"), OutcomeUnknown("refused"), listing(1))
    informer = Informer(cast(Client, server), PODS, backoff=jittery)
    await follow(informer)

    assert [time for time, asked in server.requests if asked == "list"] == [0, 1, 2.5]
