"""The client of the server in memory: JSON in, JSON out, and a turn of the event loop for each request.

The turn comes before the request takes effect, so that others get theirs, as with a real server. What a request
does then happens at once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from parley.api.resources import Resource, Undecodable
from parley.kube import answers
from parley.kube.client import Body, Client, EventType, Listing, OutcomeUnknown, PatchType, WatchEvent
from parley.kube.memory.history import Change, History, Stored
from parley.kube.memory.kinds import Json
from parley.kube.memory.refusals import no_version
from parley.kube.memory.selectors import Predicate, selector

if TYPE_CHECKING:
    from parley.kube.memory.server import MemoryServer

T = TypeVar("T")


class MemoryClient(Client):
    """See `MemoryServer.client`."""

    def __init__(self, server: "MemoryServer", name: str) -> None:
        self._server = server
        self._name = name

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        await asyncio.sleep(0)
        return _decoded(resource, self._server.get(resource, name, namespace))

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        await asyncio.sleep(0)
        selected = selector(resource, label_selector, field_selector)
        found = self._server.store.collection(resource).within(namespace)
        chosen = [stored.data for stored in found if selected is None or selected(stored.body)]
        return answers.listing(resource, chosen, str(self._server.resource_version))

    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.sleep(0)
        selected = _within(namespace, selector(resource, label_selector, field_selector))
        server, seen = self._server, _version(resource_version)
        history, watch_round = server.store.collection(resource).history, server.watch_round
        while server.watch_round == watch_round:
            changes = history.after(seen)
            for change in changes:
                seen = change.version
                for event, body in _seen(change, selected):
                    yield answers.change(resource, event, body)
            if not changes and not await _woken(history, server.bookmark_interval) and not history.after(seen):
                seen = server.resource_version
                yield WatchEvent(EventType.BOOKMARK, None, str(seen))

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str = "",
    ) -> T:
        given = _copied(body)
        await asyncio.sleep(0)
        stored = self._server.create(resource, given, namespace, field_manager or self._name)
        return _decoded(resource, stored)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body | Sequence[Any],
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        given = _copied(body)
        manager = field_manager if patch_type is PatchType.APPLY else field_manager or self._name
        await asyncio.sleep(0)
        stored = self._server.patch(resource, name, given, namespace, patch_type, subresource, manager, force)
        return _decoded(resource, stored)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
    ) -> None:
        await asyncio.sleep(0)
        self._server.delete(resource, name, namespace, uid, resource_version, grace_period_seconds)

    async def create_subresource(
        self,
        resource: Resource[T],
        name: str,
        subresource: str,
        body: Body,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        given = _copied(body)
        await asyncio.sleep(0)
        return self._server.post(resource, name, subresource, given, namespace)

    async def close(self) -> None:
        """There is nothing to release."""


def _decoded(resource: Resource[T], stored: Stored) -> T:
    try:
        return resource.decode(stored.data)
    except Undecodable as error:
        raise OutcomeUnknown(f"the answer cannot be read as {resource.kind}: {error}") from error


def _copied(body: Any) -> Any:
    """As a server reads it: half a surrogate pair is no character. A fragment is text that nobody looks into."""
    if isinstance(body, Mapping):
        return {_copied(str(name)): _copied(value) for name, value in body.items()}
    if isinstance(body, list | tuple):
        return [_copied(value) for value in body]
    if isinstance(body, str):
        return body if body.isascii() else _HALF.sub("\ufffd", body)
    return body if isinstance(body, orjson.Fragment) else orjson.loads(orjson.dumps(body))


_HALF = re.compile("[\ud800-\udfff]")


async def _woken(history: History, limit: float) -> bool:
    """Wait for a change, but not longer than `limit` seconds; returns whether there was one."""
    try:
        async with asyncio.timeout(limit):
            await history.wait()
    except TimeoutError:
        return False
    return True


def _version(text: str) -> int:
    if not text.isdigit():
        raise no_version(text)
    return int(text)


def _within(namespace: str | None, selected: Predicate | None) -> Predicate:
    def admits(body: Json) -> bool:
        return (not namespace or body["metadata"].get("namespace") == namespace) and (
            selected is None or selected(body)
        )

    return admits


def _seen(change: Change, selected: Predicate) -> Iterator[tuple[EventType, bytes]]:
    """What who watches a selection sees of the change: at most one event."""
    before = change.old is not None and selected(change.old.body)
    after = change.new is not None and selected(change.new.body)
    if after:
        yield (EventType.MODIFIED if before else EventType.ADDED), change.last.data
    elif before and change.new is None:
        yield EventType.DELETED, change.last.data
    elif before and change.old is not None:
        yield EventType.DELETED, _at_version(change.old, change.version)


def _at_version(stored: Stored, version: int) -> bytes:
    """The object as it was when it was last selected, with the version of the change that ended that."""
    meta = {**stored.meta, "resourceVersion": str(version)}
    return orjson.dumps({**stored.body, "metadata": meta})
