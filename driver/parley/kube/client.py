"""A client of an API server: the typed verbs of the API, on top of a transport.

Reads return objects of `Resource.type`. Writes are plain JSON, so that fields that are unknown here are not lost.
Each object is decoded by itself (`responses`): one that can't be decoded is a tombstone among the others.

A client is itself a transport, so clients nest: the outer one sees each request as a `Call`.

To intercept requests, override `request` and `stream`: the typed verbs of an inner client are not called.

    class SlowBindings(Client):
        async def request(self, call: Call) -> bytes:
            if call.subresource == "binding":
                await asyncio.sleep(3)
            return await super().request(call)

    client = SlowBindings(HttpClient.from_kubeconfig())
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from parley.api.resources import Resource
from parley.kube import responses
from parley.kube.errors import (
    REFUSALS,
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    PageTooLong,
    ServerError,
    TooLarge,
    TooManyRequests,
    Unauthorized,
)
from parley.kube.responses import Listing, Tombstone, WatchEvent
from parley.kube.transport import APPLY_PATCH, LONGEST_PAGE, MERGE_PATCH, Call, EventType, RawEvent, Transport

__all__ = [
    "REFUSALS",
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Body",
    "Call",
    "Client",
    "Conflict",
    "EventType",
    "Expired",
    "Forbidden",
    "Invalid",
    "Listing",
    "NotFound",
    "OutcomeUnknown",
    "RawEvent",
    "ServerError",
    "Tombstone",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "WatchEvent",
]

T = TypeVar("T")
Body = Mapping[str, Any]

PAGE = 500
"""The most objects in one page of a list; all pages together are as consistent as one."""


class Client:
    """A client of an API server. Every method raises ApiError or OutcomeUnknown; none retries by itself."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def check_lease(self) -> None:
        """Raises LeaseLost if the lease is lost: no write is sent, and others must not act on our answers."""
        if isinstance(self._transport, Client):
            self._transport.check_lease()

    async def request(self, call: Call) -> bytes:
        """Sends any request; all typed verbs below but `watch` use it."""
        return await self._transport.request(call)

    def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        """The events of any watch; `watch` uses it."""
        return self._transport.stream(call)

    async def close(self) -> None:
        """Releases connections. Idempotent."""
        await self._transport.close()

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """The present object."""
        return await self._object(resource, Call("get", resource, namespace, name))

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        """All objects of that kind, of one namespace or of all.

        Reads pages, so that a long list is never in memory as a whole before it is decoded. They are shorter where
        objects are huge.
        """
        items: list[T] = []
        tombstones: list[Tombstone] = []
        rest, limit = "", PAGE
        while True:
            query = _given(
                labelSelector=label_selector, fieldSelector=field_selector, limit=str(limit), **{"continue": rest}
            )
            call = Call("list", resource, namespace, query=query)
            try:
                content = await self.request(call)
            except PageTooLong:
                limit = max(1, limit // 8)
                continue
            if len(content) < LONGEST_PAGE // 4:
                limit = min(PAGE, limit * 2)
            try:
                page, rest = await responses.page(resource, content)
            except ValueError as error:
                raise responses.unreadable(call, error) from error
            items += page.items
            tombstones += page.tombstones
            if not rest:
                return Listing(tuple(items), page.resource_version, tuple(tombstones))

    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after `resource_version`, with bookmarks, until the server ends the stream.

        Raises Expired when that version is too old. An object that starts or ceases to match the selectors
        is reported as ADDED or DELETED.
        """
        query = _given(
            resourceVersion=resource_version, labelSelector=label_selector, fieldSelector=field_selector
        )
        call = Call("watch", resource, namespace, query=query)
        async with aclosing(self.stream(call)) as events:
            async for raw in events:
                try:
                    event = responses.event(resource, raw)
                except ValueError as error:
                    raise responses.unreadable(call, error) from error
                yield event

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str = "",
    ) -> T:
        """Creates the object; supports `metadata.generateName`. A status that is a subresource is dropped."""
        query = _given(fieldManager=field_manager)
        call = Call("create", resource, namespace, _name(body), query=query, body=_with_kind(resource, body))
        return await self._object(resource, call)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        namespace: str | None = None,
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> T:
        """Changes the object by a merge patch. A `metadata.resourceVersion` in it is a precondition (Conflict).

        A `metadata.uid` that differs is refused as Invalid ("field is immutable"); in the status of a custom
        resource it is ignored. With `dry_run` nothing is stored: returns the object that would be.
        """
        query = _given(fieldManager=field_manager, dryRun="All" if dry_run else "")
        call = Call("patch", resource, namespace, name, subresource, query, body, MERGE_PATCH)
        return await self._object(resource, call)

    async def apply(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        namespace: str | None = None,
        *,
        field_manager: str,
        subresource: str = "",
        force: bool = False,
    ) -> T:
        """Server-side apply: sets the fields in the body, and removes those that this manager applied before and
        no other manager owns. Creates a missing object; `force` takes over fields of other managers."""
        query = _given(fieldManager=field_manager, force="true" if force else "")
        sent = _with_kind(resource, body)
        call = Call("patch", resource, namespace, name, subresource, query, sent, APPLY_PATCH)
        return await self._object(resource, call)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        propagation_policy: str = "Background",
    ) -> None:
        """Deletes the object, or marks it if it has finalizers. `uid` and `resource_version` are preconditions.
        With "" as `propagation_policy` an earlier deletion's policy for the object's dependents stays."""
        options: dict[str, Any] = _given(propagationPolicy=propagation_policy)
        if required := _given(uid=uid, resourceVersion=resource_version):
            options["preconditions"] = required
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        call = Call("delete", resource, namespace, name, body=options)
        responses.check_deletion(call, await self.request(call))

    async def create_subresource(
        self,
        resource: Resource[T],
        name: str,
        subresource: str,
        body: Body,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        """POST to a subresource, such as a pod's `binding` or `eviction`, or a service account's `token`."""
        call = Call("create", resource, namespace, name, subresource, body=body)
        return await self._object(resource.untyped(), call)

    async def _object(self, resource: Resource[T], call: Call) -> T:
        """Sends the call, and decodes the one object in the answer."""
        content = await self.request(call)
        try:
            found = resource.decode(content)
            responses.check_object(call, found)
        except ValueError as error:
            raise responses.unreadable(call, error) from error
        return found


def _given(**parameters: str) -> dict[str, str]:
    """The parameters that are not empty."""
    return {name: value for name, value in parameters.items() if value}


def _name(body: Body) -> str:
    """The name of an object to create; its `generateName` if the server is to complete it."""
    metadata = body.get("metadata", {})
    return str(metadata.get("name") or metadata.get("generateName", ""))


def _with_kind(resource: Resource[Any], body: Body) -> dict[str, Any]:
    """The body with `apiVersion` and `kind`, which the server requires although the path implies them."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
