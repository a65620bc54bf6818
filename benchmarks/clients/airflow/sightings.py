"""What comes and goes in the cluster while a run lasts, over all API resources that can be watched.

Leases are left out: each component renews its own whether anybody runs anything or not. So are Events, which
are counted by themselves.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from parley.api.resources import Resource
from parley.kube.client import Client, EventType, Expired, OutcomeUnknown
from parley.kube.http import HttpClient
from parley_devcluster import Cluster

_LEFT_OUT = frozenset({"Lease"})
_VIEWS = frozenset({"events.k8s.io/v1", "metrics.k8s.io/v1beta1"})
"""The same objects as in the core group, or none that are stored."""

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Sighting:
    """An object that came, changed or went, at a moment of the monotonic clock."""

    at: float
    type: EventType
    kind: str
    object: Body

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])


class Sightings:
    """All of them since the watches began, in the order in which they came."""

    def __init__(self) -> None:
        self._all: list[Sighting] = []
        self._came = asyncio.Event()

    def add(self, sighting: Sighting) -> None:
        self._all.append(sighting)
        self._came.set()

    def since(self, moment: float) -> Iterator[Sighting]:
        return (sighting for sighting in self._all if sighting.at >= moment)

    def created(self, moment: float) -> Mapping[str, int]:
        """How many objects of each kind have come since."""
        uids = {sighting.uid: sighting.kind for sighting in self.since(moment) if sighting.type is EventType.ADDED}
        return dict(sorted(Counter(uids.values()).items()))

    def names(self, moment: float, kind: str) -> Sequence[str]:
        """Of the objects of that kind that have come since."""
        return [s.name for s in self.since(moment) if s.kind == kind and s.type is EventType.ADDED]

    def left(self, moment: float) -> Sequence[str]:
        """What has come since and not gone, without Events."""
        there: dict[str, str] = {}
        for sighting in self.since(moment):
            if sighting.type is EventType.ADDED:
                there[sighting.uid] = f"{sighting.kind} {sighting.name}"
            elif sighting.type is EventType.DELETED:
                there.pop(sighting.uid, None)
        return sorted(what for what in there.values() if not what.startswith("Event "))

    def pod(self, moment: float, prefix: str, phases: Sequence[str] = ()) -> Sighting | None:
        """The first sighting since of a pod whose name begins so, in one of the phases if some are given."""
        pods = (s for s in self.since(moment) if s.kind == "Pod" and s.name.startswith(prefix))
        return next((s for s in pods if not phases or s.object["status"]["phase"] in phases), None)

    def latest(self, moment: float, prefix: str) -> Mapping[str, Body]:
        """The pods that have come since, whose names begin so, as they are now."""
        there: dict[str, Body] = {}
        for sighting in self.since(moment):
            if sighting.kind == "Pod" and sighting.name.startswith(prefix):
                there[sighting.name] = sighting.object
                if sighting.type is EventType.DELETED:
                    del there[sighting.name]
        return there

    def last_gone(self, moment: float) -> float | None:
        """When the last of what has come since went; None if nothing did."""
        gone = [s.at for s in self.since(moment) if s.type is EventType.DELETED and s.kind != "Event"]
        return max(gone, default=None)

    async def change(self, limit: float) -> None:
        """Return at the next sighting, or after so many seconds."""
        self._came.clear()
        try:
            await asyncio.wait_for(self._came.wait(), limit)
        except TimeoutError:
            pass


@asynccontextmanager
async def watching(cluster: Cluster) -> AsyncIterator[Sightings]:
    """Sightings of the cluster, as long as the block runs."""
    found, resources = Sightings(), _resources(cluster)
    ready = [asyncio.Event() for _ in resources]
    async with HttpClient.from_kubeconfig(str(cluster.kubeconfig)) as client, asyncio.TaskGroup() as tasks:
        watches = [
            tasks.create_task(_watch(client, resource, found, begun))
            for resource, begun in zip(resources, ready, strict=True)
        ]
        for begun in ready:
            await begun.wait()
        try:
            yield found
        finally:
            for watch in watches:
                watch.cancel()


def _resources(cluster: Cluster) -> Sequence[Resource[dict[str, Any]]]:
    """All that can be listed and watched, each kind in one version."""
    lines = cluster.kubectl("api-resources", "--verbs=list,watch", "--no-headers").splitlines()
    found = []
    for line in lines:
        plural, *_, api_version, namespaced, kind = line.split()
        group, _, version = api_version.rpartition("/")
        if kind not in _LEFT_OUT and api_version not in _VIEWS:
            found.append(Resource(group, version, plural, kind, namespaced == "true", dict[str, Any]))
    return found


async def _watch(
    client: Client, resource: Resource[dict[str, Any]], found: Sightings, begun: asyncio.Event
) -> None:
    label = _label(resource)
    version = (await client.list(resource)).resource_version
    begun.set()
    while True:
        try:
            async for event in client.watch(resource, resource_version=version):
                version = event.resource_version
                if event.object is not None:
                    found.add(Sighting(time.monotonic(), event.type, label, event.object))
        except (Expired, OutcomeUnknown):
            version = (await client.list(resource)).resource_version


def _label(resource: Resource[Any]) -> str:
    """The kind; Kubernetes' own claims are told from Parley's."""
    return f"{resource.kind} (built in)" if resource.group == "resource.k8s.io" else resource.kind
