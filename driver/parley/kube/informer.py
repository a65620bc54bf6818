"""An informer: a cache of one kind of object, kept up to date by listing once and watching from there.

    list -> synced -> watch --(stream ends or breaks)--> watch from the last version seen
      ^                 |
      +-(410, silence)--+  the differences, deletions included, are reported like watched changes

An object that can't be decoded has a tombstone, and the informer continues. Its last decodable state stays in the
cache, because its resources may still be held, and a counted pod may still run. The state is removed when the
object is deleted, or when another object has its name.

A watch that ends is continued from the last resource version, bookmarks included; a version that the server no
longer has (410), or not yet (silence: its store was restored from a backup), leads to a relist; after any other
refusal or break the informer waits with back-off, at least as long as the server asked, up to a minute. A watch
that ends within a second counts as a failure, so that a server which closes at once is not hammered. A watch that
breaks after it was open for long resets the failures, even if no event came: load balancers cut connections that
were quiet for half a minute, again and again.
Exceptions of `on_change` are not caught: a half-handled change must end the process.

The informer decides nothing about the objects: that is left to `on_change`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, ValuesView
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

import structlog

from parley.api.resources import Resource
from parley.kube.backoff import LONGEST_ASKED, Backoff
from parley.kube.cache import Cache, IndexKeys, Key, identity
from parley.kube.client import ApiError, Client, EventType, Expired, Listing, OutcomeUnknown, Tombstone, WatchEvent
from parley.kube.errors import Silent
from parley.kube.freshness import Freshness, Outage

T = TypeVar("T")

OnChange = Callable[[T | None, T | None], None]
"""The event handler, called with the old and the new state (`None`: absent) after the cache has the new one."""

OnTombstone = Callable[[Tombstone], None]
"""The handler of tombstones, called once for each state of an object that can't be decoded."""

RELISTS = Backoff(first=0.2, longest=30, jitter=0.5)
SHORT_LIVED = 1.0
"""Seconds: a watch that ends sooner counts as a failure."""

AT_ONCE = 8
"""The most events that are applied before other tasks may run: reading a busy stream never waits, and each event
can wake hundreds of pods. Without this a leader may fail to renew its lease."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects objects of a kind: those of one namespace or of all, by label and field selectors."""

    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""

    @property
    def selectors(self) -> dict[str, str]:
        """The selectors as arguments of a client's `list` and `watch`."""
        return {"label_selector": self.label_selector, "field_selector": self.field_selector}


EVERYTHING = Selection()


class Informer(Generic[T]):
    """Lists and watches the selected objects of one kind into a cache with indexes, and calls event handlers.

    `synced` is set once the first list is in the cache and was reported. `transform` is applied to each decoded
    object (to drop fields that nobody reads); it must keep name, namespace, UID and resourceVersion.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        selection: Selection = EVERYTHING,
        *,
        on_change: OnChange[T] | None = None,
        on_tombstone: OnTombstone | None = None,
        transform: Callable[[T], T] | None = None,
        backoff: Backoff = RELISTS,
    ) -> None:
        self._client = client
        self.resource = resource
        self._selection = selection
        self._on_change = on_change
        self._on_tombstone = on_tombstone
        self._read = resource.read_through(transform) if transform else resource
        self._backoff = backoff
        self._failures = 0
        self._version: str | None = None
        self._cache: Cache[T] = Cache()
        self._tombstones: dict[Key, Tombstone] = {}
        self._freshness = Freshness()
        self.synced = asyncio.Event()
        self.listing = False
        """Whether the changes reported now come from a list: the last states of deleted objects may be unknown."""
        self.lists = 0
        """The number of lists so far: an object that existed only between two of them may never be reported."""
        self.interruptions: Counter[str] = Counter()
        """How often listing or watching ended, by cause: the error's class, "Ended" or "EndedAtOnce"."""

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def tombstones(self) -> ValuesView[Tombstone]:
        """The existing objects that can't be decoded; a view."""
        return self._tombstones.values()

    def outage(self) -> Outage | None:
        """Why and for how long the cache has not been up to date; None if it is."""
        return self._freshness.outage()

    def get(self, namespace: str, name: str) -> T | None:
        """The object, if there is one. `namespace` is "" for cluster-wide kinds."""
        return self._cache.get((namespace, name))

    def values(self) -> ValuesView[T]:
        """All objects; a view, so copy it before anything awaits."""
        return self._cache.values()

    def index(self, name: str, keys: IndexKeys[T]) -> None:
        """Adds an index by `keys`, a function that returns any number of keys for an object."""
        self._cache.index(name, keys)

    def by_index(self, name: str, key: Hashable) -> tuple[T, ...]:
        """The objects with that key in the index `name`."""
        return self._cache.by_index(name, key)

    def indexed(self, name: str, key: Hashable) -> Mapping[Key, T]:
        """The objects with that key in the index, by namespace and name; a view, so copy it before any await."""
        return self._cache.indexed(name, key)

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        self._freshness.begin(asyncio.get_running_loop().time)
        while True:
            pause = await self._follow()
            if pause:
                await asyncio.sleep(pause)

    async def _follow(self) -> float:
        """Lists if necessary, and watches until that ends; returns the seconds to wait before the next call."""
        loop = asyncio.get_running_loop()
        try:
            version = self._version or await self._list()
            started = loop.time()
            self._freshness.watch()
            await self._watch(version)
            if loop.time() - started >= SHORT_LIVED:
                self._freshness.ended()
                self._failures = 0
                self.interruptions["Ended"] += 1
                return 0
            return self._failed("the stream ended at once", "EndedAtOnce")
        except (Expired, Silent) as error:
            self._version = None
            return self._failed(error)
        except ApiError as error:
            return self._failed(error, asked=error.retry_after or 0)
        except OutcomeUnknown as error:
            return self._failed(error)

    def _failed(self, error: object, cause: str = "", asked: float = 0) -> float:
        if self._freshness.is_open():
            self._failures = 0  # the watch was open until now, though it may have been quiet
        self._failures += 1
        self._freshness.failed(str(error))
        self.interruptions[cause or type(error).__name__] += 1
        pause = max(self._backoff.delay(self._failures), min(asked, LONGEST_ASKED))
        log_it = log.info if self._failures == 1 else log.warning
        log_it(
            "watching interrupted",
            kind=self.resource.kind,
            group=self.resource.group,
            namespace=self._selection.namespace,
            failures=self._failures,
            pause=round(pause, 3),
            error=str(error),
        )
        return pause

    async def _list(self) -> str:
        chosen = self._selection
        listing = await self._client.list(self._read, chosen.namespace, **chosen.selectors)
        self.replace(listing)
        self._freshness.succeeded()
        self._version = listing.resource_version
        return listing.resource_version

    def replace(self, listing: Listing[T]) -> None:
        """Replaces the cache's content by the list, and reports the differences."""
        undecodable = {(stone.namespace, stone.name) for stone in listing.tombstones}
        present = {identity(item).key for item in listing.items} | undecodable
        self.listing = True
        self.lists += 1
        # Deletions come first: sums over the cache are then too low for a moment, never too high.
        for key in self._cache.absent(present):
            self._remove(key)
        for key in self._tombstones.keys() - undecodable:
            del self._tombstones[key]
        for item in listing.items:
            self._put(item)
        for stone in listing.tombstones:
            self._put_tombstone(stone)
        self.listing = False
        self.synced.set()

    async def _watch(self, version: str) -> None:
        stream = self._client.watch(
            self._read, self._selection.namespace, resource_version=version, **self._selection.selectors
        )
        async with aclosing(stream):  # closes it even if `on_change` raises, not at the next garbage collection
            applied = count(1)
            async for event in stream:
                self._apply(event)
                if next(applied) % AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _apply(self, event: WatchEvent[T]) -> None:
        self._freshness.succeeded()
        if event.object is not None or event.tombstone is not None:
            self._failures = 0
        if event.tombstone is not None:
            if event.type is EventType.DELETED:
                self._remove((event.tombstone.namespace, event.tombstone.name))
            else:
                self._put_tombstone(event.tombstone)
        elif event.object is not None:
            if event.type is EventType.DELETED:
                self._remove(identity(event.object).key)
            else:
                self._put(event.object)
        self._version = event.resource_version

    def _put_tombstone(self, stone: Tombstone) -> None:
        key = (stone.namespace, stone.name)
        old = self._cache.get(key)
        if old is not None and identity(old).uid != stone.uid:
            self._remove(key)
        known = self._tombstones.get(key)
        self._tombstones[key] = stone
        if known is not None and (known.uid, known.resource_version) == (stone.uid, stone.resource_version):
            return
        log_it = log.debug if known is not None and known.uid == stone.uid else log.warning
        log_it(
            "object can't be decoded",
            kind=self.resource.kind,
            group=self.resource.group,
            object="/".join(part for part in key if part),
            error=stone.reason,
        )
        if self._on_tombstone is not None:
            self._on_tombstone(stone)

    def _put(self, item: T) -> None:
        key, uid, resource_version = identity(item)
        self._tombstones.pop(key, None)
        old = self._cache.get(key)
        if old is not None:
            known = identity(old)
            if known.uid != uid:
                # The old object was deleted between two lists: this is another object of the same name.
                self._remove(key)
                old = None
            elif known.resource_version == resource_version:
                return
        self._cache.put(key, item)
        self._report(old, item)

    def _remove(self, key: Key) -> None:
        self._tombstones.pop(key, None)
        old = self._cache.get(key)
        if old is None:
            return
        self._cache.remove(key)
        self._report(old, None)

    def _report(self, old: T | None, new: T | None) -> None:
        if self._on_change is not None:
            self._on_change(old, new)
