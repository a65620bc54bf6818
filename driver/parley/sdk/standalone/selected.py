"""Pods whose node is selected: has their claims allocated there, and tells when that failed.

A failure stays in the driver's entries until the controller asks anew or selects another node, and as long as it
stands nothing is tried again. It is remembered here, not read from the entries: a node that was cleared and
selected again is a new attempt, however quickly the one followed the other.
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
from parley.sdk.standalone import entries
from parley.sdk.standalone.allocating import Assignment, Failed, StandaloneAllocator
from parley.sdk.standalone.answering import Responder
from parley.sdk.standalone.jobs import Job, Jobs
from parley.sdk.standalone.questions import Question
from parley.sdk.standalone.view import View


@dataclass(frozen=True, slots=True)
class _Failure:
    """What failed: the selection, by PodScheduling, round and node."""

    selection: tuple[str, int, str]
    told: AllocationFailure


class Selected:
    """One driver's pods with a selected node. `queue` has the pods that need work."""

    def __init__(
        self,
        client: Client,
        view: View,
        driver: EmbeddedDriver,
        allocator: StandaloneAllocator,
        jobs: Jobs,
        answering: Responder,
        queue: WorkQueue[Key],
    ) -> None:
        self._client = client
        self._view = view
        self._driver = driver
        self._allocator = allocator
        self._jobs = jobs
        self._answering = answering
        self._queue = queue
        self._failures: dict[Key, _Failure] = {}
        self._allocating: dict[Key, tuple[Job, str]] = {}

    def restore(self) -> None:
        """At start: failures that were told are not tried again."""
        for scheduling in self._view.schedulings():
            if (told := entries.failure_told(self._view.driver, scheduling)) is not None:
                meta = scheduling.metadata
                self._failures[meta.namespace, meta.name] = _Failure(_selection(scheduling), told)

    def changed(self, key: Key, new: PodScheduling | None) -> None:
        """The PodScheduling of that name changed or went: end what it does not want any more."""
        failure = self._failures.get(key)
        if failure is not None and (new is None or _selection(new) != failure.selection):
            del self._failures[key]
        if key in self._allocating:
            job, uid = self._allocating[key]
            if new is None or new.metadata.uid != uid or not self._wanted(job, new):
                job.stop.set()

    def _wanted(self, job: Job, scheduling: PodScheduling) -> bool:
        asked = self._view.claim_keys(scheduling)
        return scheduling.spec.selected_node == job.node and all(part.key in asked for part in job.parts)

    async def sync(self, key: Key, scheduling: PodScheduling, question: Question | None) -> None:
        """Take the next step for a pod whose node is selected."""
        failure = self._failures.get(key)
        told = failure.told if failure is not None else None
        if told is not None or self._has_failure(scheduling):
            # An attempt begins when the entries tell of no failure any more: that change calls again.
            names = [claim.name for claim in self._view.asked(scheduling)]
            wanted = entries.failed(self._view.driver, scheduling, names, told)
            await self._answering.tell(scheduling, wanted)
        elif question is not None:
            self._begin(key, scheduling, question)

    def _has_failure(self, scheduling: PodScheduling) -> bool:
        return any(entry.failure is not None for entry in entries.said(self._view.driver, scheduling))

    def _begin(self, key: Key, scheduling: PodScheduling, question: Question) -> None:
        parts = [entry.part for entry in question.pending]
        if any(entry.going for entry in question.entries) or not self._jobs.free(*(part.uid for part in parts)):
            return
        try:
            assignment = assigned(question, self._driver)
        except BadParameters as error:
            self._fail(key, scheduling, Failed(str(error)))
            return
        job = Job(parts, scheduling.spec.selected_node)
        self._allocating[key] = job, scheduling.metadata.uid
        self._jobs.start(job, partial(self._allocate, key, assignment))

    async def _allocate(self, key: Key, assignment: Assignment, job: Job) -> None:
        try:
            if await self._still_selected(key, job):
                await self._allocator.allocate(job, assignment)
        except Failed as failure:
            scheduling = self._view.scheduling(key)
            if scheduling is not None and not job.stop.is_set():
                self._fail(key, scheduling, failure)
        finally:
            if self._allocating.get(key, (None,))[0] is job:
                del self._allocating[key]

    async def _still_selected(self, key: Key, job: Job) -> bool:
        """Watches of claims and PodSchedulings are not in step: that a claim was taken back may be known before it
        is known that its node was given up. So look once more at what is about to be acted upon."""
        known = self._view.scheduling(key)
        if known is None:
            return False
        try:
            live = await self._client.get(POD_SCHEDULINGS, key[1], key[0])
        except NotFound:
            live = None
        if live is None or live.metadata.uid != known.metadata.uid:
            self._view.lost(POD_SCHEDULINGS, key, known.metadata.uid)
            return False
        self._view.wrote(live)
        return self._wanted(job, live)

    def _fail(self, key: Key, scheduling: PodScheduling, failure: Failed) -> None:
        node, message = scheduling.spec.selected_node, str(failure)[: entries.MAX_FAILURE]
        told = AllocationFailure(node_name=node, message=message, permanent=failure.permanent)
        self._failures[key] = _Failure(_selection(scheduling), told)
        self._answering.changed()
        self._queue.add(key)


def _selection(scheduling: PodScheduling) -> tuple[str, int, str]:
    return scheduling.metadata.uid, scheduling.spec.round, scheduling.spec.selected_node


def assigned(question: Question, driver: EmbeddedDriver) -> Assignment:
    """The pending claims as one allocation. Raises BadParameters."""
    return Assignment(
        request=question.request(driver),
        parts=[entry.part for entry in question.pending],
        seconds=question.seconds,
        shareable=frozenset(e.claim.metadata.uid for e in question.pending if e.class_.shareable),
    )
