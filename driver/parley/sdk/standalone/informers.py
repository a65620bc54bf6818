"""A standalone driver's informers, with its own writes overlaid on the caches. Decides nothing.

A write shows here at once, before the watch delivers it, so that code reads its own writes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from parley.api.builtin import Node, NodeStatus
from parley.api.models import PodScheduling, ResourceClaim, ResourceClass, ScheduledClaim
from parley.api.names import DRIVERS_LABEL, STANDALONE
from parley.api.resources import CLAIMS, CLASSES, NODES, POD_SCHEDULINGS, Resource
from parley.kube.cache import Key, identity
from parley.kube.client import Client
from parley.kube.informer import Informer, OnChange, Selection

T = TypeVar("T")

_BY_CLAIM = "claim"
_BY_CLASS = "class"


class ChangeListener(Protocol):
    """Event handlers, called with each change once the caches have it. None means that the object is absent."""

    def scheduling_changed(self, old: PodScheduling | None, new: PodScheduling | None) -> None: ...
    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None: ...
    def class_changed(self, old: ResourceClass | None, new: ResourceClass | None) -> None: ...
    def node_changed(self, old: Node | None, new: Node | None) -> None: ...


class Informers:
    """The caches. Run `all` of them; make no decision before each is `synced`."""

    def __init__(self, client: Client, driver: str, listener: ChangeListener) -> None:
        self.driver = driver
        selector = f"{DRIVERS_LABEL}={STANDALONE}"
        self._written: dict[tuple[type, Key], Any] = {}
        self._lost: set[str] = set()
        self._schedulings = Informer(
            client,
            POD_SCHEDULINGS,
            Selection(label_selector=selector),
            on_change=self._follow(listener.scheduling_changed),
        )
        self._claims = Informer(client, CLAIMS, on_change=self._follow(listener.claim_changed))
        self._classes = Informer(client, CLASSES, on_change=listener.class_changed)
        self._nodes = Informer(client, NODES, on_change=listener.node_changed, transform=_without_status)
        self._schedulings.index(_BY_CLAIM, self.claim_keys)
        self._claims.index(_BY_CLASS, lambda claim: [claim.spec.resource_class_name])

    @property
    def all(self) -> Sequence[Informer[Any]]:
        """The informers of all kinds, to be run."""
        return (self._classes, self._nodes, self._claims, self._schedulings)

    def claims_of(self, scheduling: PodScheduling) -> tuple[ScheduledClaim, ...]:
        """The claims of this driver in the PodScheduling's question."""
        return tuple(claim for claim in scheduling.spec.claims if claim.driver_name == self.driver)

    def claim_keys(self, scheduling: PodScheduling) -> list[Key]:
        """Namespaces and names of this driver's claims in the PodScheduling's question."""
        namespace = scheduling.metadata.namespace
        return [(namespace, claim.resource_claim_name) for claim in self.claims_of(scheduling)]

    def scheduling(self, key: Key) -> PodScheduling | None:
        newest = self._newest(self._schedulings.get(*key))
        return None if newest is None or newest.metadata.uid in self._lost else newest

    def schedulings(self) -> list[PodScheduling]:
        """All PodSchedulings with questions for standalone drivers, including other drivers."""
        return list(self._schedulings.values())

    def schedulings_of(self, claim: Key) -> list[PodScheduling]:
        """The PodSchedulings that ask this driver about the claim."""
        return [self._newest(cached) for cached in self._schedulings.by_index(_BY_CLAIM, claim)]

    def claim(self, key: Key) -> ResourceClaim | None:
        newest = self._newest(self._claims.get(*key))
        return None if newest is None or newest.metadata.uid in self._lost else newest

    def claims(self) -> list[ResourceClaim]:
        """All claims, including those whose deletion the watch has not delivered yet."""
        return [self._newest(cached) for cached in self._claims.values()]

    def claims_of_class(self, name: str) -> Sequence[ResourceClaim]:
        return self._claims.by_index(_BY_CLASS, name)

    def class_of(self, claim: ResourceClaim) -> ResourceClass | None:
        return self._classes.get("", claim.spec.resource_class_name)

    def own_classes(self) -> list[ResourceClass]:
        """The classes of this driver."""
        return [class_ for class_ in self._classes.values() if class_.driver_name == self.driver]

    def node(self, name: str) -> Node | None:
        return self._nodes.get("", name)

    def nodes(self) -> list[Node]:
        """All nodes, without their status."""
        return list(self._nodes.values())

    def note_written(self, item: PodScheduling | ResourceClaim) -> None:
        """Overlays the object that the API server returned for a write of this process, or for a live read."""
        place = (type(item), identity(item).key)
        if place in self._written and not _newer(item, self._written[place]):
            return
        cached = self._cache(type(item)).get(*place[1])
        if cached is not None and _newer(item, cached):
            self._written[place] = item

    def note_deleted(self, kind: Resource[Any], key: Key, uid: str) -> None:
        """Hides an object that the API server does not have any more; the watch may be behind."""
        cached = self._cache(kind.type).get(*key)
        if cached is not None and cached.metadata.uid == uid:
            self._lost.add(uid)

    def _follow(self, notify: Callable[[T | None, T | None], None]) -> OnChange[Any]:
        """An event handler that drops the overlay of an object once the watch has caught up, then notifies."""

        def changed(old: Any | None, new: Any | None) -> None:
            item: Any = new if new is not None else old
            place = (type(item), identity(item).key)
            if new is None:
                self._lost.discard(item.metadata.uid)
                self._written.pop(place, None)
            elif place in self._written and not _newer(self._written[place], new):
                del self._written[place]
            notify(old, new)

        return changed

    def _cache(self, kind: type) -> Informer[Any]:
        return self._claims if kind is ResourceClaim else self._schedulings

    def _newest(self, cached: T) -> T:
        if cached is None:
            return cached
        written = self._written.get((type(cached), identity(cached).key))
        return written if written is not None and _newer(written, cached) else cached


def _newer(written: Any, cached: Any) -> bool:
    ours, theirs = identity(written), identity(cached)
    return ours.uid == theirs.uid and int(ours.resource_version) > int(theirs.resource_version)


def _without_status(node: Node) -> Node:
    """The node without its status, which kubelets write all the time and nothing here reads."""
    return msgspec.structs.replace(node, status=NodeStatus())
