"""A standalone driver: wires informers, work queues and reconcilers together. Decides nothing.

At start no pod is answered before all kinds are listed and the driver has restored its allocations. From then on
every change adds the keys of the objects that it may affect to a work queue, and workers reconcile them.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from parley.api.builtin import Node
from parley.api.models import PodScheduling, ResourceClaim, ResourceClass
from parley.api.resources import Resource
from parley.kube.cache import Key, identity
from parley.kube.client import Client
from parley.kube.clock import Clock, utc
from parley.kube.informer import Informer
from parley.kube.queue import WorkQueue, run_workers
from parley.sdk.class_checks import only_in_controller
from parley.sdk.driver import Driver
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.recorded import driver_of_record, must_be_deallocated
from parley.sdk.reference_reader import ReferenceReader
from parley.sdk.standalone.allocating import StandaloneAllocator
from parley.sdk.standalone.answering import Responder
from parley.sdk.standalone.claim_reconciler import StandaloneClaimReconciler
from parley.sdk.standalone.evaluation import Evaluator
from parley.sdk.standalone.holdings import AllocationStage, Holdings
from parley.sdk.standalone.immediate import ImmediateAllocations, ImmediateDependencies
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import Operation, Operations
from parley.sdk.standalone.pod_allocations import PodAllocations
from parley.sdk.standalone.questions import question
from parley.sdk.standalone.records import StandaloneRecords
from parley.sdk.standalone.restoring import restore, restore_one
from parley.sdk.standalone.takeover import fence_earlier_copies

WORKERS = 16
"""The most pods that are answered at a time, and claims that are reconciled at a time."""
ASYNCHRONOUS_WORKERS = 128
"""The most pods that are answered at a time by an asynchronous driver."""

_LIMITS = 'docs/limits.md, "Standalone drivers"'

log = structlog.get_logger(__name__)


class _WithoutReserves(EmbeddedDriver):
    """The driver outside of the controller, where no room is reserved for the users of claims."""

    @property
    def may_reserve(self) -> bool:
        return False


class StandaloneDriver:
    """Runs one driver against the API. Only one copy may run at a time: see `parley.kube.lease`."""

    def __init__(self, client: Client, driver: Driver[Any, Any], clock: Clock = utc) -> None:
        self.driver = driver
        self.ready = asyncio.Event()
        """Set when the driver is restored and may answer."""
        self._running = False
        self._pods: WorkQueue[Key] = WorkQueue(rank=self._rank, flow=lambda key: key[0])
        self._claims: WorkQueue[Key] = WorkQueue(flow=lambda key: key[0])
        self._informers = Informers(client, driver.name, self)
        self._watched = [self._watch(client, resource) for resource in driver.watches]
        self._references = ReferenceReader(client)
        self._embedded = embedded = _WithoutReserves(driver, self._references)
        self._first_seen: dict[Key, tuple[str, float]] = {}
        """UID of each PodScheduling with claims of this driver, and when it was first seen."""
        self._holdings = Holdings(embedded, self._changed)
        self._records = StandaloneRecords(client, self._informers, clock)
        self._operations = Operations(self._operation_ended)
        evaluator = Evaluator(embedded, self._informers, self._holds)
        allocator = StandaloneAllocator(embedded, self._holdings, self._records)
        self._answering = Responder(client, self._informers, evaluator, self._pods)
        self._pod_allocations = PodAllocations(
            client, self._informers, embedded, allocator, self._operations, self._answering, self._pods
        )
        deps = ImmediateDependencies(
            self._informers, embedded, evaluator, allocator, self._holdings, self._records, self._operations
        )
        self._immediate = ImmediateAllocations(deps, self._claims)
        self._claim_reconciler = StandaloneClaimReconciler(
            self._claims, self._informers, self._holdings, self._records, self._operations, self._immediate
        )
        self._references.subscribe(self._answering.parameters_read)
        self._references.subscribe(self._immediate.parameters_read)

    def _holds(self, uid: str) -> bool:
        return self._holdings.get(uid) is not None

    def _rank(self, key: Key) -> int:
        """The work queue's rank of a PodScheduling: pods of a high priority are answered first."""
        scheduling = self._informers.scheduling(key)
        return -scheduling.spec.priority if scheduling is not None else 0

    def _watch(self, client: Client, resource: Resource[Any]) -> Informer[Any]:
        def changed(old: Any | None, new: Any | None) -> None:
            if self._embedded.observe(old, new):
                self._changed()

        return Informer(client, resource, on_change=changed)

    @property
    def embedded(self) -> EmbeddedDriver:
        """The wrapper through which this process calls the driver."""
        return self._embedded

    @property
    def caches(self) -> Sequence[Informer[Any]]:
        """The informers of all kinds, including those that the driver watches."""
        return [*self._informers.all, *self._watched]

    async def run(self) -> None:
        """Runs until cancelled. All tasks of the driver have ended when this returns."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._operations.begin(tasks)
                for informer in self.caches:
                    tasks.create_task(informer.run())
                for informer in self.caches:
                    await informer.synced.wait()
                await fence_earlier_copies(self._informers, self._records)
                self._begin()
                workers = ASYNCHRONOUS_WORKERS if self.driver.asynchronous else WORKERS
                tasks.create_task(run_workers(self._pods, self._sync_pod, workers))
                tasks.create_task(run_workers(self._claims, self._claim_reconciler.sync, WORKERS))
                tasks.create_task(self._references.run())
                tasks.create_task(self._embedded.follow(self._changed))
                self.ready.set()
        finally:
            self._answering.close()

    def _begin(self) -> None:
        """Restores the driver, then queues every object once. No await: a change in between would be lost."""
        restore(self._embedded, self._informers, self._holdings, self._records)
        self._pod_allocations.restore()
        self._running = True
        log.info("driver restored", driver=self.driver.name, claims=len(self._holdings))
        if unused := only_in_controller(type(self.driver)):
            log.warning("not used outside of the controller", driver=self.driver.name, unused=unused, see=_LIMITS)
        for item in (*self._informers.claims(), *self._informers.schedulings()):
            queue = self._claims if isinstance(item, ResourceClaim) else self._pods
            queue.add(identity(item).key)

    async def _sync_pod(self, key: Key) -> None:
        """Reconciles the PodScheduling of that name."""
        scheduling = self._informers.scheduling(key)
        if scheduling is None or not self._informers.claims_of(scheduling):
            self._answering.forget(key)
            self._first_seen.pop(key, None)
            return
        asked = question(self._informers, scheduling, self._since(key, scheduling))
        if asked is not None and not asked.pending and scheduling.spec.selected_node:
            self._answering.forget(key)
        elif scheduling.spec.selected_node:
            self._answering.selected(key)
            await self._pod_allocations.sync(key, scheduling, asked)
        elif asked is not None and scheduling.spec.candidate_nodes:
            await self._answering.answer(key, scheduling, asked)

    def _since(self, key: Key, scheduling: PodScheduling) -> float:
        """When this PodScheduling was first seen. Forgets an earlier one of the same name."""
        uid, known = scheduling.metadata.uid, self._first_seen.get(key)
        if known is None or known[0] != uid:
            self._answering.forget(key)
            known = self._first_seen[key] = uid, asyncio.get_running_loop().time()
        return known[1]

    def _changed(self) -> None:
        """Requeues pods and claims that wait for the driver, each in its turn: they may now succeed."""
        if self._running:
            self._answering.changed()
            self._immediate.changed()

    def _operation_ended(self, operation: Operation) -> None:
        for ref in operation.refs:
            self._claims.add(ref.key)
            for scheduling in self._informers.schedulings_of(ref.key):
                self._pods.add(identity(scheduling).key)

    def scheduling_changed(self, old: PodScheduling | None, new: PodScheduling | None) -> None:
        """Event handler: a PodScheduling with questions for standalone drivers changed."""
        if not self._running or (scheduling := new or old) is None:
            return
        key = identity(scheduling).key
        self._pod_allocations.changed(key, new)
        unselected = new is not None and not new.spec.selected_node
        self._answering.round_changed(key, new.spec.round if new is not None and unselected else None)
        self._pods.add(key)
        for state in (old, new):
            for claim in self._informers.claim_keys(state) if state is not None else ():
                self._claims.add(claim)

    def claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Event handler: any ResourceClaim changed."""
        if not self._running or (claim := new or old) is None:
            return
        uid, key = claim.metadata.uid, identity(claim).key
        newest = self._informers.claim(key)  # the watch may be behind our own writes
        if new is None or new.metadata.deletion_timestamp or self._records.is_of_another_driver(new):
            self._operations.stop(uid)
        if new is None:
            self._operations.forget(uid)
        elif newest is not None and driver_of_record(newest) == self.driver.name:
            self._restore_unknown(newest)
        self._claims.add(key)
        for scheduling in self._informers.schedulings_of(key):
            self._pods.add(identity(scheduling).key)

    def _restore_unknown(self, claim: ResourceClaim) -> None:
        """Restores an allocation in the API that is unknown here: an earlier process wrote it late. Not if it was
        released here and its record is yet to be cleared: another claim may have the resource by now."""
        uid = claim.metadata.uid
        holding = self._holdings.get(uid)
        known = holding is not None and holding.stage is AllocationStage.RECORDED
        if not known and self._operations.of(uid) is None and not must_be_deallocated(claim):
            restore_one(self._embedded, self._holdings, claim, self._informers.nodes())

    def class_changed(self, old: ResourceClass | None, new: ResourceClass | None) -> None:
        """Event handler: a class appeared, or changed its parameters, suitable nodes, or the conditions that tell
        whether allocations that the driver made in the controller have ended."""
        if not self._running or (class_ := new or old) is None:
            return
        if old is not None and new is not None and _is_alike(old, new):
            return
        for claim in self._informers.claims_of_class(class_.metadata.name):
            key = identity(claim).key
            self._claims.add(key)
            for scheduling in self._informers.schedulings_of(key):
                if not self._answering.waits(identity(scheduling).key):
                    self._pods.add(identity(scheduling).key)
        self._changed()

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """Event handler: a node that is new, or whose labels or spec changed, may be viable now."""
        if new is not None and (old is None or (old.metadata.labels, old.spec) != (new.metadata.labels, new.spec)):
            self._changed()


def _is_alike(old: ResourceClass, new: ResourceClass) -> bool:
    return (old.revision, old.status.conditions) == (new.revision, new.status.conditions)
