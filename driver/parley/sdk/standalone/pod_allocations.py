"""Allocates the claims of pods whose node is selected, on that node, and reports failures in the PodScheduling.

A failure stays in the driver's entries until the controller starts another round or selects another node; until
then nothing is tried again. Failures are remembered here, not read from the entries: a selection that was cleared
and made again is a new attempt, however quickly one followed the other.
"""

from dataclasses import dataclass
from functools import partial

from parley.api.models import AllocationFailure, PodScheduling
from parley.api.resources import POD_SCHEDULINGS
from parley.kube.cache import Key
from parley.kube.client import Client, NotFound
from parley.kube.queue import WorkQueue
from parley.sdk.checks import BadParameters
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.referenced import ParametersUnavailable
from parley.sdk.standalone import entries
from parley.sdk.standalone.allocating import Assignment, Failed, StandaloneAllocator
from parley.sdk.standalone.answering import Responder
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import Operation, Operations
from parley.sdk.standalone.questions import PodQuestion


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failure, and its selection: PodScheduling, round and node."""

    selection: tuple[str, int, str]
    reported: AllocationFailure


class PodAllocations:
    """One driver's allocations for pods. `queue` has the keys of the PodSchedulings to reconcile."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        driver: EmbeddedDriver,
        allocator: StandaloneAllocator,
        operations: Operations,
        answering: Responder,
        queue: WorkQueue[Key],
    ) -> None:
        self._client = client
        self._informers = informers
        self._driver = driver
        self._allocator = allocator
        self._operations = operations
        self._answering = answering
        self._queue = queue
        self._failures: dict[Key, _Failure] = {}
        self._allocating: dict[Key, tuple[Operation, str]] = {}
        """The latest operation for each PodScheduling, with the latter's UID. It may be in back-off, or over."""

    def restore(self) -> None:
        """At start, reads the reported failures from the entries: those attempts are not repeated."""
        for scheduling in self._informers.schedulings():
            if (failure := entries.reported_failure(self._informers.driver, scheduling)) is not None:
                meta = scheduling.metadata
                self._failures[meta.namespace, meta.name] = _Failure(_selection(scheduling), failure)

    def changed(self, key: Key, new: PodScheduling | None) -> None:
        """Event handler: stops the operation if the changed or deleted PodScheduling does not want it any more."""
        failure = self._failures.get(key)
        if failure is not None and (new is None or _selection(new) != failure.selection):
            del self._failures[key]
        if key in self._allocating:
            operation, uid = self._allocating[key]
            if new is None or new.metadata.uid != uid or not self._wanted(operation, new):
                operation.stop.set()
                del self._allocating[key]

    def _wanted(self, operation: Operation, scheduling: PodScheduling) -> bool:
        asked = self._informers.claim_keys(scheduling)
        return scheduling.spec.selected_node == operation.node and all(ref.key in asked for ref in operation.refs)

    async def sync(self, key: Key, scheduling: PodScheduling, question: PodQuestion | None) -> None:
        """Reconciles a pod whose node is selected."""
        known = self._failures.get(key)
        failure = known.reported if known is not None else None
        if failure is not None or self._has_failure(scheduling):
            # The next attempt begins when the entries show no failure any more: that change requeues the pod.
            names = [claim.name for claim in self._informers.claims_of(scheduling)]
            wanted = entries.failed(self._informers.driver, scheduling, names, failure)
            await self._answering.apply(scheduling, wanted)
        elif question is not None:
            self._begin(key, scheduling, question)

    def _has_failure(self, scheduling: PodScheduling) -> bool:
        return any(entry.failure is not None for entry in entries.of_driver(self._informers.driver, scheduling))

    def _begin(self, key: Key, scheduling: PodScheduling, question: PodQuestion) -> None:
        refs = [entry.ref for entry in question.pending]
        if any(entry.terminating for entry in question.entries):
            return
        if not self._operations.free(*(ref.uid for ref in refs)):
            return
        try:
            assignment = assignment_for(question, self._driver)
        except (BadParameters, ParametersUnavailable) as error:
            if isinstance(error, ParametersUnavailable) and error.transient:
                self._answering.await_parameters(key, error.topic)
            else:
                self._fail(key, scheduling, Failed(str(error)))
            return
        operation = Operation(refs, scheduling.spec.selected_node)
        self._allocating[key] = operation, scheduling.metadata.uid
        self._operations.start(operation, partial(self._allocate, key, assignment))

    async def _allocate(self, key: Key, assignment: Assignment, operation: Operation) -> None:
        try:
            if self._allocator.is_first(operation) or await self._still_selected(key, operation):
                await self._allocator.allocate(operation, assignment)
        except Failed as failure:
            scheduling = self._informers.scheduling(key)
            if scheduling is not None and not operation.stop.is_set():
                self._fail(key, scheduling, failure)

    async def _still_selected(self, key: Key, operation: Operation) -> bool:
        """Whether a live read of the PodScheduling still selects the node. The watches are not in step: the
        deallocation of a claim may show before the cleared selection of its node."""
        known = self._informers.scheduling(key)
        if known is None:
            return False
        try:
            live = await self._client.get(POD_SCHEDULINGS, key[1], key[0])
        except NotFound:
            live = None
        if live is None or live.metadata.uid != known.metadata.uid:
            self._informers.note_deleted(POD_SCHEDULINGS, key, known.metadata.uid)
            return False
        self._informers.note_written(live)
        return self._wanted(operation, live)

    def _fail(self, key: Key, scheduling: PodScheduling, failure: Failed) -> None:
        node, message = scheduling.spec.selected_node, str(failure)[: entries.MAX_FAILURE]
        reported = AllocationFailure(node_name=node, message=message, permanent=failure.permanent)
        self._failures[key] = _Failure(_selection(scheduling), reported)
        self._answering.changed()
        self._queue.add(key)


def _selection(scheduling: PodScheduling) -> tuple[str, int, str]:
    return scheduling.metadata.uid, scheduling.spec.round, scheduling.spec.selected_node


def assignment_for(question: PodQuestion, driver: EmbeddedDriver) -> Assignment:
    """The assignment for the pending claims. Raises BadParameters and ParametersUnavailable."""
    return Assignment(
        request=question.request(driver),
        refs=[entry.ref for entry in question.pending],
        seconds=question.seconds,
        shareable=frozenset(e.claim.metadata.uid for e in question.pending if e.class_.shareable),
    )
