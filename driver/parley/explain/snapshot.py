"""A snapshot of a cluster: read once, with the state that a controller would rebuild from it at that moment.

The lists are put into the controller's own caches, ledger and drivers by its own code: so a pod is explained from
what the controller decides from, without asking it. A user who may not list a kind in all namespaces gets one
namespace only, and a list of what could not be read.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from parley.api import meta
from parley.api.builtin import BuiltinClaim, Namespace, Node, Pod, ResourceSlice
from parley.api.exits import Exit
from parley.api.models import PodScheduling, ResourceClass
from parley.api.names import DRIVERS_LABEL, GROUP, STANDALONE
from parley.api.reasons import CLASS_NOT_FOUND
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.api.selectors import matches, selector_of
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import Problem
from parley.control.decision.sight import pods_are_seen, show_cluster
from parley.control.immediate import count_accepted
from parley.control.ledger import Ledger
from parley.control.limits import Limits
from parley.control.objects.pod import is_terminal
from parley.control.restoring import count_unbound, restore
from parley.control.state import State
from parley.drivers import built_in
from parley.explain.errors import Unanswerable
from parley.explain.references import SnapshotReferences
from parley.explain.times import seconds_since
from parley.kube.cache import Key
from parley.kube.client import Client, Forbidden, Listing, NotFound, Tombstone
from parley.sdk.embedded import EmbeddedDriver

T = TypeVar("T")

_NOT_INSTALLED = (
    "Parley is not installed in this cluster, or not completely: the API server knows no {plural}.parley.dev. "
    "Install it with helm or kustomize (docs/install.md), or choose another cluster with --context"
)
_CLUSTER_SCOPED: tuple[Resource[Any], ...] = (CLASSES, NODES, RESOURCE_SLICES, CLAIM_RELEASES)
_NAMESPACED: tuple[Resource[Any], ...] = (
    PODS,
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIMS,
    TEMPLATES,
    POD_SCHEDULINGS,
)
_SHOWN = 5
"""The most objects of a kind that are named if they can't be decoded."""

KINDS = (*_CLUSTER_SCOPED, *_NAMESPACED)
"""The kinds that are listed for a snapshot."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at the time `now`. The drivers in `state` are those that come with Parley, with all holdings
    restored. `unread` lists what could not be read, for users; `incomplete_kinds` are the kinds of which some
    objects could not be read, `unread_kinds` those of which none could be. `undecodable_schedulings` are
    PodSchedulings that can't be decoded, and why."""

    now: datetime
    state: State
    pods: Mapping[Key, Pod]
    nodes: Sequence[Node]
    classes: Sequence[ResourceClass]
    mirrors: Mapping[Key, BuiltinClaim]
    schedulings: Mapping[Key, PodScheduling]
    slices: Sequence[ResourceSlice]
    on_node: Mapping[str, Sequence[Pod]]
    unread: tuple[str, ...] = ()
    incomplete_kinds: frozenset[Resource[Any]] = frozenset()
    unread_kinds: frozenset[Resource[Any]] = frozenset()
    undecodable_schedulings: Mapping[Key, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether everything was read that the controller decides from. If not, nodes would be evaluated wrongly,
        and only what the controller and the drivers recorded can be shown."""
        return self.incomplete_kinds <= {TEMPLATES, BUILTIN_TEMPLATES, POD_SCHEDULINGS}

    @property
    def knows_claims(self) -> bool:
        """Whether claims and templates that are not in the snapshot do not exist in the cluster either."""
        return self.unread_kinds <= {CLASSES, NODES, RESOURCE_SLICES, CLAIM_RELEASES, PODS, POD_SCHEDULINGS}

    def is_certain(self, problem: Problem) -> bool:
        """Whether a claim has the problem in the cluster, too, and not only because something was not read."""
        return self.knows_claims and not (problem.code == CLASS_NOT_FOUND and CLASSES in self.unread_kinds)

    def hides_scheduling(self, pod: Key) -> bool:
        """Whether the pod may have a PodScheduling that could not be read."""
        return POD_SCHEDULINGS in self.unread_kinds or pod in self.undecodable_schedulings

    def is_negotiated(self, pod: Key) -> bool:
        """Whether the pod has a PodScheduling, readable or not."""
        return pod in self.schedulings or pod in self.undecodable_schedulings

    def seconds_since(self, time: str) -> float | None:
        """How many seconds ago an API timestamp was; None if there is none."""
        return seconds_since(time, self.now)

    def nodes_matching(self, selector: meta.NodeSelector) -> list[str]:
        """The nodes that a selector of Parley's kinds selects."""
        wanted = selector_of(selector)
        return [node.metadata.name for node in self.nodes if matches(wanted, node)]


async def read(client: Client, now: datetime, namespace: str, *, everywhere: bool = True) -> Snapshot:
    """Reads the cluster; namespaced kinds only in `namespace` unless `everywhere`.

    Raises Unanswerable if Parley's kinds do not exist, and what the client raises.
    """
    reader = _Reader(client, namespace)
    await asyncio.gather(
        *(reader.list(resource, None) for resource in _CLUSTER_SCOPED),
        *(reader.list(resource, None if everywhere else namespace) for resource in _NAMESPACED),
    )
    references = SnapshotReferences()
    drivers = {driver.name: EmbeddedDriver(driver, references) for driver in built_in()}
    cluster = _filled_cache(client, reader.listings, pods_seen=pods_are_seen(drivers))
    if any(class_.selects_namespaces for class_ in cluster.classes()):
        cluster.replace_namespaces(await reader.namespaces())
    ledger = Ledger(Limits(labels=lambda name: cluster.namespace_labels(name) or {}))
    await references.read(client, cluster, drivers)
    for driver in drivers.values():
        for resource in driver.driver.watches:
            for found in reader.items(resource):
                driver.observe(None, found)
    state = State(cluster, ledger, drivers)
    show_cluster(state)
    restore(state)
    count_unbound(state)
    count_accepted(state)
    return Snapshot(
        now,
        state,
        pods={_key(pod): pod for pod in reader.items(PODS)},
        nodes=reader.items(NODES),
        classes=reader.items(CLASSES),
        mirrors={_key(claim): claim for claim in reader.items(BUILTIN_CLAIMS)},
        schedulings={_key(scheduling): scheduling for scheduling in reader.items(POD_SCHEDULINGS)},
        slices=reader.items(RESOURCE_SLICES),
        on_node=_by_node(reader.items(PODS)),
        unread=tuple(reader.unread),
        incomplete_kinds=frozenset(reader.incomplete_kinds),
        unread_kinds=frozenset(reader.unread_kinds),
        undecodable_schedulings={
            (one.namespace, one.name): one.reason for one in reader.tombstones[POD_SCHEDULINGS]
        },
    )


def _key(item: Any) -> Key:
    return item.metadata.namespace, item.metadata.name


def _by_node(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    """The bound pods that are not terminal, by node."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and not is_terminal(pod):
            found.setdefault(pod.spec.node_name, []).append(pod)
    return found


class _Reader:
    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.listings: dict[tuple[str, str], Listing[Any]] = {}
        self.tombstones: dict[Resource[Any], Sequence[Tombstone]] = {}
        self.unread: list[str] = []
        self.incomplete_kinds: list[Resource[Any]] = []
        self.unread_kinds: list[Resource[Any]] = []

    def items(self, resource: Resource[T]) -> tuple[T, ...]:
        return self.listings[resource.group, resource.plural].items

    async def list(self, resource: Resource[Any], namespace: str | None) -> None:
        try:
            found = await self._client.list(resource, namespace)
        except NotFound:
            if resource.group == GROUP:
                raise Unanswerable(_NOT_INSTALLED.format(plural=resource.plural), Exit.NOT_FOUND) from None
            self.unread.append(f"the API server knows no {resource.plural}.{resource.group}")
            self.incomplete_kinds.append(resource)
            self.unread_kinds.append(resource)
            found = Listing((), "")
        except Forbidden as error:
            self.unread.append(error.message)
            self.incomplete_kinds.append(resource)
            if resource.namespaced and namespace is None:
                await self.list(resource, self._namespace)
                return
            self.unread_kinds.append(resource)
            found = Listing((), "")
        self.tombstones[resource] = found.tombstones
        self.unread += _undecodable(resource, found.tombstones)
        self.listings[resource.group, resource.plural] = Listing(found.items, found.resource_version)

    async def namespaces(self) -> Listing[Namespace]:
        """The namespaces, for limits that select them by labels. A user who may not list them may often get the
        one that was asked about."""
        try:
            return await self._client.list(NAMESPACES)
        except Forbidden as error:
            self.unread.append(error.message)
        with suppress(Forbidden, NotFound):
            return Listing((await self._client.get(NAMESPACES, self._namespace),), "")
        return Listing((), "")


def _undecodable(resource: Resource[Any], stones: Sequence[Tombstone]) -> Iterator[str]:
    for stone in stones[:_SHOWN]:
        name = "/".join(filter(None, (stone.namespace, stone.name)))
        yield f"{resource.kind} {name} can't be read: {stone.reason}"
    if len(stones) > _SHOWN:
        yield f"{len(stones) - _SHOWN} more of {resource.kind} can't be read"


def _filled_cache(
    client: Client, listings: Mapping[tuple[str, str], Listing[Any]], *, pods_seen: bool
) -> ClusterCache:
    """The controller's caches, filled with what was listed; their informers are never run."""
    cluster = ClusterCache(client, pods_seen=pods_seen)
    for cache in cluster.caches:
        found = listings[cache.resource.group, cache.resource.plural]
        if cache.resource == POD_SCHEDULINGS:
            found = replace(found, items=tuple(filter(_asks_standalone, found.items)))
        cache.replace(found)
    return cluster


def _asks_standalone(scheduling: PodScheduling) -> bool:
    """Whether the PodScheduling asks standalone drivers; the controller watches no others."""
    return scheduling.metadata.labels.get(DRIVERS_LABEL) == STANDALONE
