"""Keeps the status of each ResourceClass: whether it can be used, and its total and free capacity.

Each is reconciled every SECONDS, and when its class changes. It is written when it differs, and no class more
often than every SECONDS: a thousand allocations within a moment cost one write. Nothing is decided by it.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from parley.api import reasons
from parley.api.conditions import ConditionUpdate, updated_conditions
from parley.api.models import ResourceClass
from parley.api.resources import CLASSES
from parley.api.selectors import matches, suitable_nodes
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import NODES
from parley.control.moved import MovedClaims
from parley.control.presence import DriverPresence
from parley.kube.client import Client, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.kube.queue import WorkQueue
from parley.negotiation.waiting import Topic
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.referenced import ParametersUnavailable
from parley.sdk.values import Capacity

SECONDS = 10.0
"""The interval in which all classes are reconciled, and the least time between two writes of a class."""


class ClassStatuses:
    """Keeps the status of each ResourceClass up to date. `queue` has names of classes; its worker calls `sync`.

    `drivers` are those in this process, by name: only they can be asked what a class has.
    """

    def __init__(
        self,
        client: Client,
        cluster: ClusterCache,
        moved: MovedClaims,
        drivers: Mapping[str, EmbeddedDriver],
        presence: DriverPresence,
        queue: WorkQueue[str],
        clock: Clock,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._moved = moved
        self._drivers = drivers
        self._presence = presence
        self._queue = queue
        self._clock = clock
        self._nodes = 0
        self._written: dict[str, float] = {}
        self._capacities: dict[str, tuple[Hashable, Capacity | None]] = {}
        self._up_to_date: dict[str, Hashable] = {}
        """The inputs of each class's status when its status was last found to be up to date."""

    def wake(self, topic: Topic, _nodes: object = None) -> None:
        """Requeue the classes that the topic concerns. A change of nodes only voids known capacities."""
        if topic == NODES:
            self._nodes += 1
        elif topic[0] == "class":
            self._queue.add(topic[1])
        elif topic[0] == "parameters":
            for name in self._cluster.classes_referring(topic):
                self._queue.add(name)

    async def run(self) -> None:
        """Requeue all classes every SECONDS, until cancelled."""
        while True:
            for class_ in self._cluster.classes():
                self._queue.add(class_.metadata.name)
            await asyncio.sleep(SECONDS)

    async def sync(self, name: str) -> None:
        """Write the status of the class of that name if it differs."""
        class_ = self._cluster.class_(name)
        if class_ is None:
            self._written.pop(name, None)
            self._capacities.pop(name, None)
            self._up_to_date.pop(name, None)
            return
        status = await self._changes(class_)
        pause = self._written.get(name, -SECONDS) + SECONDS - _now()
        if status and pause > 0:
            self._queue.add_after(name, pause)
        elif status:
            self._written[name] = _now()
            await self._write(class_, status)

    async def _write(self, class_: ResourceClass, status: Mapping[str, Any]) -> None:
        meta = class_.metadata
        body = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status}
        try:
            await self._client.patch(CLASSES, meta.name, body, subresource="status")
        except NotFound:
            pass  # deleted meanwhile

    async def _changes(self, class_: ResourceClass) -> dict[str, Any]:
        """The differences to the cached status, as a merge patch."""
        ready, capacity = await self._readiness(class_)
        compared = (class_.metadata.uid, class_.metadata.resource_version, ready, capacity)
        if self._up_to_date.get(class_.metadata.name) == compared:
            return {}
        known, generation = class_.status, class_.metadata.generation
        conditions = updated_conditions(known.conditions, generation, rfc3339(self._clock()), ready)
        changes: dict[str, Any] = {} if conditions is None else {"conditions": conditions}
        found = (None, None) if capacity is None else (capacity.total, capacity.free)
        if found != (known.total, known.free):
            changes |= {"total": found[0], "free": found[1]}
        if not changes:
            self._up_to_date[class_.metadata.name] = compared
        return changes

    async def _readiness(self, class_: ResourceClass) -> tuple[ConditionUpdate, Capacity | None]:
        if message := self._moved.problem(class_.driver_name):
            return ConditionUpdate(reasons.READY, False, reasons.DRIVER_MOVED, message), None
        presence = await self._presence.of(class_.driver_name)
        if not presence.running:
            return ConditionUpdate(reasons.READY, False, reasons.DRIVER_MISSING, presence.message), None
        try:
            capacity = self._capacity(class_)
        except BadParameters as error:
            return ConditionUpdate(reasons.READY, False, reasons.PARAMETERS_INVALID, str(error)), None
        except ParametersUnavailable as error:
            if not error.transient:
                return ConditionUpdate(reasons.READY, False, error.code, str(error)), None
            capacity = None
        except DriverFault as fault:
            return ConditionUpdate(reasons.READY, False, reasons.DRIVER_FAILED, str(fault)), None
        reason = reasons.IN_CONTROLLER if self._moved.is_embedded(class_.driver_name) else reasons.READY
        return ConditionUpdate(reasons.READY, True, reason, presence.message), capacity

    def _capacity(self, class_: ResourceClass) -> Capacity | None:
        """The class's capacity. The driver is asked again only if something changed. Raises BadParameters,
        ParametersUnavailable, and DriverFault."""
        driver = self._drivers.get(class_.driver_name)
        if driver is None:
            return None
        name, depends_on = class_.metadata.name, (class_.revision, driver.revision, self._nodes)
        known = self._capacities.get(name)
        if known is None or known[0] != depends_on or class_.parameters_ref is not None:
            found = driver.capacity(class_, self._suitable(class_))
            known = self._capacities[name] = (depends_on, found)
        return known[1]

    def _suitable(self, class_: ResourceClass) -> Sequence[str]:
        selector = suitable_nodes(class_)
        if selector is None:
            return self._cluster.node_names()
        return [node.metadata.name for node in self._cluster.nodes() if matches(selector, node)]


def _now() -> float:
    return asyncio.get_running_loop().time()
