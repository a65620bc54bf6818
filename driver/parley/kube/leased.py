"""A client that writes only while the lease is held, and never for longer than the lease allows for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, TypeVar

from parley.api.resources import Resource
from parley.kube.client import Body, Client, Listing, OutcomeUnknown, PatchType, WatchEvent
from parley.kube.lease import LeaseElector

T = TypeVar("T")


class LeasedClient(Client):
    """A `Client` around another one. Reads pass; a write without a valid lease raises LeaseLost and is not sent.

    A write that takes longer than the lease allows is given up with OutcomeUnknown. Over HTTP, give it
    `client.fenced(elector.held)`: that closes the gap between the check here and the sending.
    """

    def __init__(self, client: Client, elector: LeaseElector) -> None:
        self._client = client
        self._elector = elector

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        return await self._client.get(resource, name, namespace)

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        return await self._client.list(
            resource, namespace, label_selector=label_selector, field_selector=field_selector
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
        return self._client.watch(
            resource,
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            field_selector=field_selector,
        )

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str = "",
    ) -> T:
        self._elector.check()
        return await self._write(self._client.create(resource, body, namespace, field_manager=field_manager))

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
        self._elector.check()
        return await self._write(
            self._client.patch(
                resource,
                name,
                body,
                namespace,
                patch_type=patch_type,
                subresource=subresource,
                field_manager=field_manager,
                force=force,
            )
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
        self._elector.check()
        await self._write(
            self._client.delete(
                resource,
                name,
                namespace,
                uid=uid,
                resource_version=resource_version,
                grace_period_seconds=grace_period_seconds,
            )
        )

    async def create_subresource(
        self,
        resource: Resource[T],
        name: str,
        subresource: str,
        body: Body,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        self._elector.check()
        return await self._write(self._client.create_subresource(resource, name, subresource, body, namespace))

    async def close(self) -> None:
        await self._client.close()

    async def _write(self, request: Awaitable[T]) -> T:
        seconds = self._elector.times.write_seconds
        try:
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError as error:
            raise OutcomeUnknown(
                f"no answer within the {seconds:g} s that the lease leaves for a write"
            ) from error
