"""A server that answers lists and watches by a script, and an informer of its pods."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from parley.api.builtin import ObjectMeta, Pod, PodSpec
from parley.api.resources import PODS, Resource
from parley.kube.backoff import Backoff
from parley.kube.client import (
    Client,
    EventType,
    Listing,
    WatchEvent,
)
from parley.kube.informer import Informer

STEADY = Backoff(first=1, longest=8)


def pod(name: str, version: int, uid: str = "", node: str = "") -> Pod:
    meta = ObjectMeta(namespace="default", name=name, uid=uid or name, resource_version=str(version))
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


def event(kind: EventType, item: Pod) -> WatchEvent[Pod]:
    return WatchEvent(kind, item, item.metadata.resource_version)


def added(item: Pod) -> WatchEvent[Pod]:
    return event(EventType.ADDED, item)


def modified(item: Pod) -> WatchEvent[Pod]:
    return event(EventType.MODIFIED, item)


def deleted(item: Pod) -> WatchEvent[Pod]:
    return event(EventType.DELETED, item)


def bookmark(version: int) -> WatchEvent[Pod]:
    return WatchEvent(EventType.BOOKMARK, None, str(version))


def listing(version: int, *pods: Pod) -> Listing[Pod]:
    return Listing(pods, str(version))


@dataclass(frozen=True)
class Wait:
    """The stream stays silent for so long."""

    seconds: float


Stream = list[WatchEvent[Pod] | Wait | Exception]


class ScriptedServer:
    """Answers lists and watches in the order of its script, then keeps a stream open for ever.

    `requests` records when something was asked, and from which version; `open_streams` those not yet closed.
    """

    def __init__(self, *script: Listing[Pod] | Exception | Stream) -> None:
        self._script = list(script)
        self.requests: list[tuple[float, str]] = []
        self.open_streams = 0

    def _next(self, request: str) -> Listing[Pod] | Exception | Stream:
        self.requests.append((asyncio.get_running_loop().time(), request))
        return self._script.pop(0) if self._script else [Wait(1e9)]

    async def list(self, resource: Resource[Pod], namespace: str | None = None, **_: str) -> Listing[Pod]:
        answer = self._next("list")
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Listing), "the script expects a watch here"
        return answer

    async def watch(
        self, resource: Resource[Pod], namespace: str | None = None, *, resource_version: str, **_: str
    ) -> AsyncIterator[WatchEvent[Pod]]:
        answer = self._next(f"watch {resource_version}")
        self.open_streams += 1
        try:
            for step in answer if isinstance(answer, list) else [answer]:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                elif isinstance(step, WatchEvent):
                    yield step
        finally:
            self.open_streams -= 1


Change = tuple[str | None, str | None]


class Told:
    """What `on_change` heard: resourceVersions of the old and the new state, with the pod's name."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, Change]] = []

    def __call__(self, old: Pod | None, new: Pod | None) -> None:
        item = new or old
        assert item is not None
        versions = tuple(state.metadata.resource_version if state else None for state in (old, new))
        self.changes.append((item.metadata.name, cast(Change, versions)))


def inform(
    server: ScriptedServer, on_change: Callable[[Pod | None, Pod | None], None], **options: Any
) -> Informer[Pod]:
    return Informer(cast(Client, server), PODS, on_change=on_change, backoff=STEADY, **options)


async def follow(informer: Informer[Pod], seconds: float = 600) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(informer.run(), seconds)
