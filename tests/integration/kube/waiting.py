"""Waiting, by list and watch, for what a server does in the background."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from parley.api.resources import Resource
from parley.kube.client import Client, EventType, WatchEvent

LIMIT = 120.0
"""Seconds that a slow machine may take."""

Objects = Mapping[str, dict[str, Any]]


async def until(
    client: Client, resource: Resource[Any], namespace: str | None, holds: Callable[[Objects], bool]
) -> Objects:
    """The kind's objects by name, as soon as `holds` is true of them."""
    listing = await client.list(resource.untyped(), namespace)
    seen = {item["metadata"]["name"]: item for item in listing.items}
    async with asyncio.timeout(LIMIT):
        while not holds(seen):
            version = listing.resource_version
            stream = client.watch(resource.untyped(), namespace, resource_version=version)
            async with aclosing(stream) as events:
                async for event in events:
                    _follow(seen, event)
                    if holds(seen):
                        break
    return seen


def _follow(seen: dict[str, dict[str, Any]], event: WatchEvent[dict[str, Any]]) -> None:
    if event.object is None:
        return
    name = event.object["metadata"]["name"]
    if event.type is EventType.DELETED:
        seen.pop(name, None)
    else:
        seen[name] = event.object


async def next_events(
    client: Client, resource: Resource[Any], namespace: str | None, version: str, count: int, **selectors: str
) -> list[WatchEvent[dict[str, Any]]]:
    """The first `count` events after `version`, bookmarks left out."""
    stream = client.watch(resource.untyped(), namespace, resource_version=version, **selectors)
    found: list[WatchEvent[dict[str, Any]]] = []
    async with asyncio.timeout(LIMIT), aclosing(stream) as events:
        async for event in events:
            if event.object is not None:
                found.append(event)
            if len(found) == count:
                break
    return found
