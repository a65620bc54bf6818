"""Faults on demand: a client around a client, for tests that kill or cut a controller at a given call.

    client = FaultClient(server.client(), before=kill_at(3, Killed()))      # dies instead of the third write
    client = FaultClient(server.client(), after=kill_at(3, Killed()))       # the third write happens, unheard

The hooks may raise anything, a BaseException for the death of the process included. Loops over all writes of a
scenario run it once without a fault and take `writes` as the number of places to die at.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from parley.api.resources import Resource
from parley.kube.client import Body, Client, Listing, PatchType, WatchEvent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client. `write` counts the writes from 1 on, and is 0 for a read; `body` is what is sent."""

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


Hook = Callable[[Call], None]


def nothing(_: Call) -> None:
    """The hook that lets every call pass."""


def kill_at(write: int, error: BaseException) -> Hook:
    """A hook that raises `error` at the write of that number."""

    def raise_at(call: Call) -> None:
        if call.write == write:
            raise error

    return raise_at


class FaultClient(Client):
    """Calls `before` ahead of each call and `after` once the server did it, with the same `Call`.

    What `before` raises comes instead of the call; what `after` raises comes instead of its answer. A watch is
    one call, made when it is first waited for, and `after` is called when it ends by itself.
    """

    def __init__(self, client: Client, *, before: Hook = nothing, after: Hook = nothing) -> None:
        self._client = client
        self._before = before
        self._after = after
        self.calls: list[Call] = []
        """All calls so far, refused ones included."""
        self._writes = 0

    @property
    def writes(self) -> int:
        """How many writes were asked for so far."""
        return self._writes

    def _begin(
        self,
        verb: str,
        resource: Resource[Any],
        namespace: str | None,
        name: str = "",
        subresource: str = "",
        body: Any = None,
        *,
        write: bool = False,
    ) -> Call:
        self._writes += write
        call = Call(verb, resource, namespace, name, subresource, self._writes if write else 0, body)
        self.calls.append(call)
        self._before(call)
        return call

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        call = self._begin("get", resource, namespace, name)
        answer = await self._client.get(resource, name, namespace)
        self._after(call)
        return answer

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        call = self._begin("list", resource, namespace)
        answer = await self._client.list(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
        )
        self._after(call)
        return answer

    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        call = self._begin("watch", resource, namespace)
        events = self._client.watch(
            resource,
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
        )
        async for event in events:
            yield event
        self._after(call)

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str = "",
    ) -> T:
        call = self._begin("create", resource, namespace, _name(body), body=body, write=True)
        answer = await self._client.create(resource, body, namespace, field_manager=field_manager)
        self._after(call)
        return answer

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
        call = self._begin("patch", resource, namespace, name, subresource, body, write=True)
        answer = await self._client.patch(
            resource,
            name,
            body,
            namespace,
            patch_type=patch_type,
            subresource=subresource,
            field_manager=field_manager,
            force=force,
        )
        self._after(call)
        return answer

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
        call = self._begin("delete", resource, namespace, name, write=True)
        await self._client.delete(
            resource,
            name,
            namespace,
            uid=uid,
            resource_version=resource_version,
            grace_period_seconds=grace_period_seconds,
        )
        self._after(call)

    async def create_subresource(
        self,
        resource: Resource[T],
        name: str,
        subresource: str,
        body: Body,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        call = self._begin("create", resource, namespace, name, subresource, body, write=True)
        answer = await self._client.create_subresource(resource, name, subresource, body, namespace)
        self._after(call)
        return answer

    async def close(self) -> None:
        """Close the client inside."""
        await self._client.close()


def _name(body: Body) -> str:
    """What a created object is to be called; its `generateName` if the server is to complete it."""
    metadata = body.get("metadata", {})
    return str(metadata.get("name") or metadata.get("generateName", ""))
