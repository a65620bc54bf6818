"""The transport to the server in memory: JSON in, JSON out, and one iteration of the event loop for each request.

The event loop runs before the request takes effect, so that other tasks proceed, as with a real server. The
request itself is then processed without interruption.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from parley.kube.errors import Silent
from parley.kube.memory.errors import no_version
from parley.kube.memory.kinds import Json
from parley.kube.memory.managed_fields import APPLY, UPDATE, Manager
from parley.kube.memory.selectors import Predicate, selector
from parley.kube.memory.watch_cache import Change, Stored
from parley.kube.transport import APPLY_PATCH, Call, EventType, RawEvent

if TYPE_CHECKING:
    from parley.kube.memory.server import MemoryServer


class MemoryTransport:
    """See `MemoryServer.client`. `name` is the field manager of writes that specify none."""

    def __init__(self, server: "MemoryServer", name: str) -> None:
        self._server = server
        self._name = name

    async def request(self, call: Call) -> bytes:
        """Process the request; returns the object, the list or a Status as JSON."""
        body = _copied(call.body)
        await asyncio.sleep(0)
        match call.verb:
            case "get":
                return self._server.get(call.resource, call.name, call.namespace).data
            case "list":
                return self._list(call)
            case "create" if call.subresource:
                return orjson.dumps(
                    self._server.post(call.resource, call.name, call.subresource, body, call.namespace)
                )
            case "create":
                return self._server.create(call.resource, body, call.namespace, self._manager(call).name).data
            case "patch":
                return self._patch(call, body).data
            case "delete":
                return self._delete(call, body)
        raise ValueError(f"an API server has no verb {call.verb!r}")

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        """The changes after the resourceVersion of the call, and bookmarks while there are none. Raises Silent if
        the server has not reached that version, as `http` does some time later."""
        await asyncio.sleep(0)
        selected, server = _watched(call), self._server
        seen = _version(call.query.get("resourceVersion", ""))
        history, watch_round = server.store.collection(call.resource).history, server.watch_round
        while server.watch_round == watch_round:
            changes = history.after(seen)
            for change in changes:
                seen = change.version
                for event in _events(change, selected):
                    yield event
            if not changes and not await history.changed(server.bookmark_interval) and not history.after(seen):
                if server.resource_version < seen:
                    raise Silent(str(call), "memory", "the server has not reached that resourceVersion")
                seen = server.resource_version
                yield RawEvent(EventType.BOOKMARK, orjson.dumps({"metadata": {"resourceVersion": str(seen)}}))

    async def close(self) -> None:
        """Does nothing: there are no connections."""

    def _list(self, call: Call) -> bytes:
        """The list, in one page."""
        selected = _selector(call)
        found = self._server.store.collection(call.resource).within(call.namespace)
        items = b",".join(stored.data for stored in found if selected is None or selected(stored.body))
        return b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (self._server.resource_version, items)

    def _patch(self, call: Call, body: Any) -> Stored:
        server, manager = self._server, self._manager(call)
        if call.content_type == APPLY_PATCH:
            force = call.query.get("force") == "true"
            return server.apply(call.resource, call.name, body, call.namespace, manager, force=force)
        dry = bool(call.query.get("dryRun"))
        return server.patch(call.resource, call.name, body, call.namespace, manager, dry=dry)

    def _delete(self, call: Call, options: Json) -> bytes:
        required = options.get("preconditions") or {}
        self._server.delete(
            call.resource,
            call.name,
            call.namespace,
            required.get("uid", ""),
            required.get("resourceVersion", ""),
            options.get("gracePeriodSeconds"),
            options.get("propagationPolicy", ""),
        )
        return _SUCCESS

    def _manager(self, call: Call) -> Manager:
        named = call.query.get("fieldManager", "")
        if call.content_type == APPLY_PATCH:
            return Manager(named, APPLY, call.subresource)
        return Manager(named or self._name, UPDATE, call.subresource)


_SUCCESS = orjson.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})


def _copied(body: Any) -> Any:
    """The body as a server reads it: unpaired surrogates are replaced. Fragments, which are raw JSON, are kept."""
    try:
        return orjson.loads(msgspec.json.encode(body))
    except (TypeError, ValueError, OverflowError):  # a fragment in it, an unpaired surrogate, or not JSON
        return _copied_by_parts(body)


def _copied_by_parts(body: Any) -> Any:
    if isinstance(body, Mapping):
        return {_copied_by_parts(str(name)): _copied_by_parts(value) for name, value in body.items()}
    if isinstance(body, list | tuple):
        return [_copied_by_parts(value) for value in body]
    if isinstance(body, str):
        return body if body.isascii() else _SURROGATE.sub("\ufffd", body)
    return body if isinstance(body, orjson.Fragment) else orjson.loads(orjson.dumps(body))


_SURROGATE = re.compile("[\ud800-\udfff]")


def _version(text: str) -> int:
    if not text.isdigit():
        raise no_version(text)
    return int(text)


def _selector(call: Call) -> Predicate | None:
    return selector(call.resource, call.query.get("labelSelector", ""), call.query.get("fieldSelector", ""))


def _watched(call: Call) -> Predicate:
    namespace, selected = call.namespace, _selector(call)

    def admits(body: Json) -> bool:
        return (not namespace or body["metadata"].get("namespace") == namespace) and (
            selected is None or selected(body)
        )

    return admits


def _events(change: Change, selected: Predicate) -> Iterator[RawEvent]:
    """The event, if any, that a watch of the selected objects gets for the change."""
    before = change.old is not None and selected(change.old.body)
    after = change.new is not None and selected(change.new.body)
    if after:
        yield RawEvent(EventType.MODIFIED if before else EventType.ADDED, change.last.data)
    elif before and change.new is None:
        yield RawEvent(EventType.DELETED, change.last.data)
    elif before and change.old is not None:
        yield RawEvent(EventType.DELETED, _at_version(change.old, change.version))


def _at_version(stored: Stored, version: int) -> bytes:
    """The object as last selected, with the resourceVersion of the change after which it no longer is."""
    meta = {**stored.meta, "resourceVersion": str(version)}
    return orjson.dumps({**stored.body, "metadata": meta})
