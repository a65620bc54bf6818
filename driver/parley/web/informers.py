"""Informers for the kinds that explanations are made from, as far as the user's permissions allow.

A kind that may not be read everywhere is read in one namespace, or not at all. Why a kind can't be read or watched
is kept, so that the page can show it. Decides nothing about objects; only drops what no page shows.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from parley.api.builtin import Node, NodeStatus, Pod
from parley.api.models import PodScheduling, PodSchedulingSpec, PodSchedulingStatus
from parley.api.resources import CLAIMS, NODES, POD_SCHEDULINGS, PODS, RESOURCE_SLICES, TEMPLATES, Resource
from parley.control.caches import kept
from parley.control.caches.shortened import few_labels
from parley.explain.snapshot import KINDS
from parley.kube.client import (
    ApiError,
    Call,
    Client,
    Expired,
    Forbidden,
    Listing,
    NotFound,
    OutcomeUnknown,
    WatchEvent,
)
from parley.kube.freshness import OPEN
from parley.kube.informer import Informer, Selection

T = TypeVar("T")

Trouble = ApiError | OutcomeUnknown


def _pod(whole: Pod) -> Pod:
    """The fields of a pod that the controller caches; for pods with claims also labels, for selectors, and the
    scheduler's condition."""
    left = kept.pod(whole)
    if not whole.spec.resource_claims:
        return left
    conditions = [condition for condition in whole.status.conditions if condition.type == "PodScheduled"]
    meta = replace(left.metadata, labels=few_labels(whole.metadata.labels))
    return replace(left, metadata=meta, status=replace(left.status, conditions=conditions))


def _node(whole: Node) -> Node:
    """The node without its conditions, which change with every heartbeat and are not used by explanations."""
    return replace(whole, status=NodeStatus(allocatable=whole.status.allocatable))


def _scheduling(whole: PodScheduling) -> PodScheduling:
    """The PodScheduling; for a pod that waits for nothing only its counts: the pod's own page reads it again."""
    if whole.status.waiting_for:
        return whole
    spec = PodSchedulingSpec(round=whole.spec.round, selected_node=whole.spec.selected_node)
    status = PodSchedulingStatus(candidates=whole.status.candidates, viable=whole.status.viable)
    return whole.model_copy(update={"spec": spec, "status": status})


_SHORTENED: Mapping[Resource[Any], Callable[[Any], Any]] = {
    PODS: _pod,
    NODES: _node,
    RESOURCE_SLICES: kept.resource_slice,
    POD_SCHEDULINGS: _scheduling,
    CLAIMS: kept.claim,
    TEMPLATES: kept.template,
}


class _Denied(Exception):
    """Raised through an informer to stop it: it would retry a forbidden list for ever."""


class _ReportingClient(Client):
    """A client that reports whether its lists and watches work."""

    def __init__(self, client: Client, works: Callable[[], None], failed: Callable[[Trouble], None]) -> None:
        super().__init__(client)
        self._works = works
        self._failed = failed

    async def list(self, resource: Resource[T], namespace: str | None = None, **selectors: str) -> Listing[T]:
        try:
            found = await super().list(resource, namespace, **selectors)
        except (ApiError, OutcomeUnknown) as error:
            self._failed(error)
            raise
        self._works()
        return found

    async def watch(
        self, resource: Resource[T], namespace: str | None = None, *, resource_version: str, **selectors: str
    ) -> AsyncGenerator[WatchEvent[T], None]:
        soon = asyncio.get_running_loop().call_later(OPEN, self._works)
        stream = super().watch(resource, namespace, resource_version=resource_version, **selectors)
        try:
            async with aclosing(stream):
                async for event in stream:
                    self._works()
                    yield event
        except (ApiError, OutcomeUnknown) as error:
            if not isinstance(error, Expired):
                self._failed(error)
            raise
        finally:
            soon.cancel()


class WatchedKind(Generic[T]):
    """The cache of one kind, and the error if it can't be read."""

    def __init__(self, client: Client, resource: Resource[T], namespace: str, changed: Callable[[], None]) -> None:
        self._client = _ReportingClient(client, self._works, self._failed)
        self._resource = resource
        self._namespace = namespace
        self._changed = changed
        self._copy = self._informer(None)
        self._denied: list[Forbidden] = []
        self.trouble: Trouble | None = None
        """Why the copy may be old."""
        self.answered = asyncio.Event()
        """Set when it is known whether there is a copy."""

    async def run(self) -> None:
        """Keep the cache up to date until cancelled, or until it turns out that the kind can't be read."""
        for namespace in (None, self._namespace) if self._resource.namespaced else (None,):
            self._copy = self._informer(namespace)
            try:
                await self._copy.run()
            except _Denied:
                self._changed()
        self.answered.set()

    def listing(self, namespace: str | None) -> Listing[T]:
        """The cache's content as a client lists it; raises the server's error if it can't be read."""
        if namespace is None and self._denied:
            raise self._denied[0]
        if len(self._denied) > 1:
            raise self._denied[1]
        if not self._copy.synced.is_set() and self.trouble is not None:
            raise self.trouble
        return Listing(tuple(self._copy.values()), "", tuple(self._copy.tombstones))

    def _informer(self, namespace: str | None) -> Informer[T]:
        shorten = _SHORTENED.get(self._resource)
        return Informer(
            self._client,
            self._resource,
            Selection(namespace),
            on_change=self._compare,
            on_tombstone=lambda _: self._changed(),
            transform=shorten,
        )

    def _compare(self, old: T | None, new: T | None) -> None:
        if old is None or new is None or not _alike(old, new):
            self._changed()

    def _works(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            self._changed()
        self.answered.set()

    def _failed(self, error: Trouble) -> None:
        if isinstance(error, Forbidden):
            self._denied.append(error)
            raise _Denied from error
        if self.trouble is None:
            self._changed()
        self.trouble = error
        self.answered.set()


def _alike(old: Any, new: Any) -> bool:
    """Whether two objects differ only in their resource version, for kinds that are written often without
    changes."""
    if not isinstance(old, Pod | Node):
        return False
    meta = replace(new.metadata, resource_version=old.metadata.resource_version)
    return bool(replace(new, metadata=meta) == old)


class WatchedKinds:
    """The caches of all kinds, watched while `run` runs. `changed` is called after each change."""

    def __init__(self, client: Client, namespace: str, changed: Callable[[], None]) -> None:
        self._kinds: dict[Resource[Any], WatchedKind[Any]] = {
            resource: WatchedKind(client, resource, namespace, changed) for resource in KINDS
        }

    async def run(self) -> None:
        """Watch all kinds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds.values():
                tasks.create_task(kind.run())

    async def answered(self) -> None:
        """Return when each kind has been listed, or could not be."""
        for kind in self._kinds.values():
            await kind.answered.wait()

    @property
    def trouble(self) -> Trouble | None:
        """The error why some cache may be outdated; None if there is none."""
        troubles = (kind.trouble for kind in self._kinds.values())
        return next((trouble for trouble in troubles if not isinstance(trouble, NotFound | None)), None)

    def cached_client(self, client: Client) -> Client:
        """A client that lists the caches' current content."""
        return _CacheClient(client, self._kinds)


class _CacheClient(Client):
    """Lists what the caches had when it was made. Everything else is asked of the server in the event loop of
    that moment, which its connections belong to, whichever thread asks."""

    def __init__(self, client: Client, kinds: Mapping[Resource[Any], WatchedKind[Any]]) -> None:
        super().__init__(client)
        self._loop = asyncio.get_running_loop()
        self._lists = {resource: (_answer(kind, None), _answer(kind, "")) for resource, kind in kinds.items()}

    async def list(self, resource: Resource[T], namespace: str | None = None, **selectors: str) -> Listing[T]:
        if resource not in self._lists:
            return await super().list(resource, namespace, **selectors)
        answer = self._lists[resource][namespace is not None]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def request(self, call: Call) -> bytes:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(super().request(call), self._loop))


def _answer(kind: WatchedKind[T], namespace: str | None) -> Listing[T] | Exception:
    try:
        return kind.listing(namespace)
    except (ApiError, OutcomeUnknown) as error:
        return error
