"""A client around a client: every call passes three hooks, so that who watches or spoils calls writes only those.

It changes nothing by itself. What a subclass does with a call is its own; it may leave the request out, repeat it
or raise in place of its answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from parley.api.resources import Resource
from parley.kube.client import Body, Client, Listing, PatchType, WatchEvent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client. `write` counts the writes from 1 on where somebody counts them, and is 0 for a read;
    `body` is what is sent."""

    verb: str
    resource: Resource[Any]
    namespace: str | None
    name: str = ""
    subresource: str = ""
    write: int = 0
    body: Any = None

    def __str__(self) -> str:
        place = "/".join(part for part in (self.namespace, self.name, self.subresource) if part)
        number = f"write {self.write}: " if self.write else ""
        return f"{number}{self.verb} {self.resource.plural} {place}".rstrip()


class AroundClient(Client):
    """Passes calls on to the client inside, each through `read`, `write` or `follow`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - for subclasses
        """Do a get or list: `request()` sends it, and gives the answer."""
        return await request()

    async def write(self, call: Call, request: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - for subclasses
        """Do a create, patch or delete: `request()` sends it, and gives the answer."""
        return await request()

    def follow(
        self,
        call: Call,  # noqa: ARG002 - for subclasses
        request: Callable[[], AsyncIterator[WatchEvent[T]]],
    ) -> AsyncIterator[WatchEvent[T]]:
        """Do a watch: `request()` makes the stream."""
        return request()

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        call = Call("get", resource, namespace, name)
        return await self.read(call, lambda: self._client.get(resource, name, namespace))

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        return await self.read(
            Call("list", resource, namespace),
            lambda: self._client.list(
                resource, namespace, label_selector=label_selector, field_selector=field_selector
            ),
        )

    def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        return self.follow(
            Call("watch", resource, namespace),
            lambda: self._client.watch(
                resource,
                namespace,
                resource_version=resource_version,
                label_selector=label_selector,
                field_selector=field_selector,
            ),
        )

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str = "",
    ) -> T:
        return await self.write(
            Call("create", resource, namespace, _name(body), body=body),
            lambda: self._client.create(resource, body, namespace, field_manager=field_manager),
        )

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
        return await self.write(
            Call("patch", resource, namespace, name, subresource, body=body),
            lambda: self._client.patch(
                resource,
                name,
                body,
                namespace,
                patch_type=patch_type,
                subresource=subresource,
                field_manager=field_manager,
                force=force,
            ),
        )

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
        await self.write(
            Call("delete", resource, namespace, name),
            lambda: self._client.delete(
                resource,
                name,
                namespace,
                uid=uid,
                resource_version=resource_version,
                grace_period_seconds=grace_period_seconds,
            ),
        )

    async def create_subresource(
        self,
        resource: Resource[T],
        name: str,
        subresource: str,
        body: Body,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        return await self.write(
            Call("create", resource, namespace, name, subresource, body=body),
            lambda: self._client.create_subresource(resource, name, subresource, body, namespace),
        )

    async def close(self) -> None:
        """Close the client inside."""
        await self._client.close()


def _name(body: Body) -> str:
    """What a created object is to be called; its `generateName` if the server is to complete it."""
    metadata = body.get("metadata", {})
    return str(metadata.get("name") or metadata.get("generateName", ""))
