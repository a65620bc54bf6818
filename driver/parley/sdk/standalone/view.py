"""What the API server has of what a driver reads, and what the driver itself wrote since. Decides nothing.

A write shows here at once, before the watch brings it back: whoever looks again right after a write sees it.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from parley.api.builtin import Node, NodeStatus
from parley.api.models import PodScheduling, ResourceClaim, ResourceClass, ScheduledClaim
from parley.api.names import DRIVERS_LABEL, STANDALONE
from parley.api.resources import CLAIMS, CLASSES, NODES, POD_SCHEDULINGS, Resource
from parley.kube.cache import Key, identity
from parley.kube.client import Client
from parley.kube.informer import Informer, Selection

T = TypeVar("T")

_BY_CLAIM = "claim"
_BY_CLASS = "class"


class ViewListener(Protocol):
    """Hears of changes, after the view has them. `None` stands for "not there"."""

    def scheduling_changed(self, old: PodScheduling | None, new: PodScheduling | None) -> None: ...
    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None: ...
    def class_changed(self, old: ResourceClass | None, new: ResourceClass | None) -> None: ...
    def node_changed(self, old: Node | None, new: Node | None) -> None: ...


class View:
    """The copies. Run `informers`; nothing may be decided before each is `synced`."""

    def __init__(self, client: Client, driver: str, listener: ViewListener) -> None:
        self.driver = driver
        selector = f"{DRIVERS_LABEL}={STANDALONE}"
        self._schedulings = Informer(
            client, POD_SCHEDULINGS, Selection(label_selector=selector), on_change=listener.scheduling_changed
        )
        self._claims = Informer(client, CLAIMS, on_change=listener.claim_changed)
        self._classes = Informer(client, CLASSES, on_change=listener.class_changed)
        self._nodes = Informer(client, NODES, on_change=listener.node_changed, transform=_without_status)
        self._schedulings.index(_BY_CLAIM, self.claim_keys)
        self._claims.index(_BY_CLASS, lambda claim: [claim.spec.resource_class_name])
        self._written: dict[tuple[type, Key], Any] = {}
        self._lost: set[str] = set()

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """To be run, all of them."""
        return (self._classes, self._nodes, self._claims, self._schedulings)

    def asked(self, scheduling: PodScheduling) -> tuple[ScheduledClaim, ...]:
        """The claims in the question that are this driver's."""
        return tuple(claim for claim in scheduling.spec.claims if claim.driver_name == self.driver)

    def claim_keys(self, scheduling: PodScheduling) -> list[Key]:
        """Namespaces and names of this driver's claims in the question."""
        namespace = scheduling.metadata.namespace
        return [(namespace, claim.resource_claim_name) for claim in self.asked(scheduling)]

    def scheduling(self, key: Key) -> PodScheduling | None:
        found = self._newest(self._schedulings.get(*key))
        return None if found is None or found.metadata.uid in self._lost else found

    def schedulings(self) -> list[PodScheduling]:
        """Those with questions for standalone drivers, other drivers' included."""
        return list(self._schedulings.values())

    def schedulings_of(self, claim: Key) -> list[PodScheduling]:
        """Those that ask this driver for the claim."""
        return [self._newest(found) for found in self._schedulings.by_index(_BY_CLAIM, claim)]

    def claim(self, key: Key) -> ResourceClaim | None:
        found = self._newest(self._claims.get(*key))
        return None if found is None or found.metadata.uid in self._lost else found

    def claims(self) -> list[ResourceClaim]:
        return list(self._claims.values())

    def claims_of_class(self, name: str) -> Sequence[ResourceClaim]:
        return self._claims.by_index(_BY_CLASS, name)

    def class_of(self, claim: ResourceClaim) -> ResourceClass | None:
        return self._classes.get("", claim.spec.resource_class_name)

    def node(self, name: str) -> Node | None:
        return self._nodes.get("", name)

    def nodes(self) -> list[Node]:
        """All nodes, without their status."""
        return list(self._nodes.values())

    def wrote(self, item: PodScheduling | ResourceClaim) -> None:
        """The answer to a write of ours, or to a look past the copy."""
        place = (type(item), identity(item).key)
        if place in self._written and not _newer(item, self._written[place]):
            return
        cached = self._copy(type(item)).get(*place[1])
        if cached is not None and _newer(item, cached):
            self._written[place] = item

    def lost(self, kind: Resource[Any], key: Key, uid: str) -> None:
        """The server has no object of that UID any more; the watch may have yet to tell."""
        cached = self._copy(kind.type).get(*key)
        if cached is not None and cached.metadata.uid == uid:
            self._lost.add(uid)

    def caught_up(self, item: PodScheduling | ResourceClaim) -> None:
        """The watch brought a change: an own write that is not newer need not be remembered."""
        place = (type(item), identity(item).key)
        written = self._written.get(place)
        if written is not None and not _newer(written, item):
            del self._written[place]

    def forget(self, item: PodScheduling | ResourceClaim) -> None:
        """The watch brought that the object is gone."""
        self._lost.discard(item.metadata.uid)
        self._written.pop((type(item), identity(item).key), None)

    def _copy(self, kind: type) -> Informer[Any]:
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
    """Kubelets write there all the time, and nobody here reads it."""
    return msgspec.structs.replace(node, status=NodeStatus())


def schedulable(node: Node) -> bool:
    """Whether Kubernetes itself sends pods there: the node is not cordoned, unreachable, not ready or under
    pressure."""
    return not node.spec.unschedulable and not any(
        taint.key.startswith("node.kubernetes.io/") and taint.effect in ("NoSchedule", "NoExecute")
        for taint in node.spec.taints
    )
