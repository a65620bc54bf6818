"""An informer: a cache of one kind of object, kept up to date by listing once and watching from there.

    list -> synced -> watch --(stream ends or breaks)--> watch from the last version seen
      ^                 |
      +--(410, relist)--+  the differences, deletions included, are reported like watched changes

An object that can't be decoded has a tombstone, and everything goes on. What was known of it before stays in the
cache: as far as anybody knows what it held is still held, and a pod that was counted is still there. It goes when
the object is deleted, or when another one has its name.

A stream that ends is continued from the last resource version, bookmarks included; a version that the server no
longer has (410) leads to a relist; any other refusal or silence waits with a backoff, at least as long as the
server asked, up to a minute. A stream that ends within a second counts as a failure, so that a server which
closes at once is not hammered. One that breaks after it was open for long ends a row of failures, even if
nothing came: load balancers cut what was quiet for half a minute, again and again. Errors of `on_change` are
not caught: a change that was half handled must end the process.

It decides nothing about the objects; what a change means is left to `on_change`.
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
from parley.kube.backoff import Backoff
from parley.kube.cache import Cache, IndexKeys, Key, identity
from parley.kube.client import ApiError, Client, EventType, Expired, Listing, OutcomeUnknown, Tombstone, WatchEvent
from parley.kube.freshness import Freshness, Outage

T = TypeVar("T")

OnChange = Callable[[T | None, T | None], None]
"""Called with the old and the new state, `None` for "not there", after the cache holds the new one."""

OnTombstone = Callable[[Tombstone], None]
"""Called once for each state of an object that can't be decoded."""

RELISTS = Backoff(first=0.2, longest=30, jitter=0.5)
SHORT_LIVED = 1.0
"""Seconds: a stream that ends sooner did not work."""

LONGEST_ASKED = 60.0
"""Seconds that a server may ask to wait: a proxy that says an hour while it is maintained is back before that."""

AT_ONCE = 8
"""So many changes are applied before others may run: a stream that has more of them never waits, and each can wake
hundreds of waiting pods. Without this a leader may be kept from renewing its lease."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: those of one namespace or of all, with these labels and fields."""

    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""

    @property
    def selectors(self) -> dict[str, str]:
        """As a client's `list` and `watch` take them."""
        return {"label_selector": self.label_selector, "field_selector": self.field_selector}


EVERYTHING = Selection()


class Informer(Generic[T]):
    """Lists and watches the selected objects of one kind into a cache with indexes, and calls handlers of changes.

    `synced` is set once the first list is in and reported. `transform` is applied to each object when it is
    decoded (to drop what nobody reads); it must leave name, namespace, UID and resourceVersion alone.
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
        """Whether what is reported now was found by a list: what became of an object before it went is unknown."""
        self.lists = 0
        """So many lists were read: what came and went between two of them may never have been reported."""
        self.interruptions: Counter[str] = Counter()
        """How often listing or watching ended, by cause: the error's class, "Ended" or "EndedAtOnce"."""

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def tombstones(self) -> ValuesView[Tombstone]:
        """The objects that are there and can't be decoded; a view."""
        return self._tombstones.values()

    def outage(self) -> Outage | None:
        """Why and since when the cache is not kept up to date; None while it is."""
        return self._freshness.outage()

    def get(self, namespace: str, name: str) -> T | None:
        """The object, if there is one. `namespace` is "" for cluster-wide kinds."""
        return self._cache.get((namespace, name))

    def values(self) -> ValuesView[T]:
        """All objects; a view, so copy it before anything awaits."""
        return self._cache.values()

    def index(self, name: str, keys: IndexKeys[T]) -> None:
        """Find objects by `keys` of them, which may be none or several for one object."""
        self._cache.index(name, keys)

    def by_index(self, name: str, key: Hashable) -> tuple[T, ...]:
        """The objects that have `key` in the index `name`."""
        return self._cache.by_index(name, key)

    def indexed(self, name: str, key: Hashable) -> Mapping[Key, T]:
        """The same, by namespace and name; a view, so copy it before anything awaits."""
        return self._cache.indexed(name, key)

    async def run(self) -> None:
        """List and watch until cancelled."""
        self._freshness.begin(asyncio.get_running_loop().time)
        while True:
            pause = await self._follow()
            if pause:
                await asyncio.sleep(pause)

    async def _follow(self) -> float:
        """List if need be and watch until that ends; returns the seconds to wait before the next time."""
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
        except Expired as error:
            self._version = None
            return self._failed(error)
        except ApiError as error:
            return self._failed(error, asked=error.retry_after or 0)
        except OutcomeUnknown as error:
            return self._failed(error)

    def _failed(self, error: object, cause: str = "", asked: float = 0) -> float:
        if self._freshness.is_open():
            self._failures = 0  # it had worked until now, if only to say that nothing had changed
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
        self._freshness.works()
        self._version = listing.resource_version
        return listing.resource_version

    def replace(self, listing: Listing[T]) -> None:
        """Have in the cache what was listed, and report how it differs from what was there."""
        buried = {(stone.namespace, stone.name) for stone in listing.tombstones}
        present = {identity(item).key for item in listing.items} | buried
        self.listing = True
        self.lists += 1
        # What is gone goes first: sums over the copy are then too low for a moment, never too high.
        for key in self._cache.absent(present):
            self._remove(key)
        for key in self._tombstones.keys() - buried:
            del self._tombstones[key]
        for item in listing.items:
            self._put(item)
        for stone in listing.tombstones:
            self._bury(stone)
        self.listing = False
        self.synced.set()

    async def _watch(self, version: str) -> None:
        stream = self._client.watch(
            self._read, self._selection.namespace, resource_version=version, **self._selection.selectors
        )
        async with aclosing(stream):  # also when `on_change` raises, not whenever the garbage collector comes by
            applied = count(1)
            async for event in stream:
                self._apply(event)
                if next(applied) % AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _apply(self, event: WatchEvent[T]) -> None:
        self._freshness.works()
        if event.object is not None or event.tombstone is not None:
            self._failures = 0
        if event.tombstone is not None:
            if event.type is EventType.DELETED:
                self._remove((event.tombstone.namespace, event.tombstone.name))
            else:
                self._bury(event.tombstone)
        elif event.object is not None:
            if event.type is EventType.DELETED:
                self._remove(identity(event.object).key)
            else:
                self._put(event.object)
        self._version = event.resource_version

    def _bury(self, stone: Tombstone) -> None:
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
                # Its deletion fell between two lists: another object of the same name, never a change of it.
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
