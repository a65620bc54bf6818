"""Waiting for what the API server shows, by list and watch: no pauses, no polling.

Every wait has a limit, which is generous because machines are slow; a test never asserts that it was not used.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from parley.api.resources import Resource
from parley.kube.client import Client, EventType, Expired, OutcomeUnknown

T = TypeVar("T")

LIMIT = 120.0
"""Seconds; leaves a busy machine's kubelet several tries to prepare a claim."""

Identity = tuple[str, str]
"""Namespace and name."""


async def collections(
    client: Client, resource: Resource[T], namespace: str | None = None, *, field_selector: str = ""
) -> AsyncGenerator[Mapping[Identity, T], None]:
    """All objects as they are now, and again after each change, without end."""
    while True:
        listing = await client.list(resource, namespace, field_selector=field_selector)
        known = {identity(item): item for item in listing.items}
        yield known
        version = listing.resource_version
        try:
            stream = client.watch(resource, namespace, resource_version=version, field_selector=field_selector)
            async with closing(stream) as events:
                async for event in events:
                    if event.object is None:
                        continue
                    if event.type is EventType.DELETED:
                        known.pop(identity(event.object), None)
                    else:
                        known[identity(event.object)] = event.object
                    yield known
        except (Expired, OutcomeUnknown):
            continue


@asynccontextmanager
async def closing(stream: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T], None]:
    """Ends the stream with the block, if it can be ended."""
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def identity(item: Any) -> Identity:
    """Of a typed object or a plain dictionary."""
    if isinstance(item, dict):
        return item["metadata"].get("namespace", ""), item["metadata"]["name"]
    return item.metadata.namespace, item.metadata.name


class TooLate(AssertionError):
    """Raised when something awaited did not come; tells what was seen last."""


async def until(
    client: Client,
    resource: Resource[T],
    holds: Callable[[Mapping[Identity, T]], bool],
    what: str,
    *,
    namespace: str | None = None,
    field_selector: str = "",
    within: float = LIMIT,
) -> Mapping[Identity, T]:
    """The objects as soon as `holds` is true of them. Raises TooLate."""
    seen: Mapping[Identity, T] = {}
    try:
        async with asyncio.timeout(within):
            async with aclosing(collections(client, resource, namespace, field_selector=field_selector)) as states:
                async for seen in states:
                    if holds(seen):
                        return dict(seen)
    except TimeoutError:
        pass
    shown = "\n  ".join(str(item) for item in seen.values()) or "nothing"
    raise TooLate(f"not within {within:g} s: {what}. {resource.kind} objects seen last:\n  {shown}")


async def until_one(
    client: Client,
    resource: Resource[T],
    name: str,
    holds: Callable[[T], bool],
    what: str,
    *,
    namespace: str | None = None,
    within: float = LIMIT,
) -> T:
    """The object of that name as soon as it is there and `holds` is true of it. Raises TooLate."""
    key = (namespace or "", name)
    seen = await until(
        client,
        resource,
        lambda objects: key in objects and holds(objects[key]),
        f"{resource.kind} {name} {what}",
        namespace=namespace,
        field_selector=f"metadata.name={name}",
        within=within,
    )
    return seen[key]
