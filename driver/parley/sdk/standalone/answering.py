"""Answers pods that have no selected node yet, and keeps the answers up to date.

The driver is asked when a pod's question is new and when its turn comes among those that wait (`waiting`);
whatever else happens to the pod is answered from memory. What the PodScheduling has already is not written again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import structlog
from pydantic import ValidationError

from parley.api.models import PodScheduling
from parley.api.resources import POD_SCHEDULINGS
from parley.kube.cache import Key
from parley.kube.client import Client, Conflict, Invalid, NotFound
from parley.kube.queue import WorkQueue
from parley.negotiation.waiting import Topic
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.referenced import NotRead
from parley.sdk.standalone import entries
from parley.sdk.standalone.entries import Entries
from parley.sdk.standalone.evaluation import Evaluator, outlook
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import cancel
from parley.sdk.standalone.questions import PodQuestion
from parley.sdk.standalone.waiting import Outlook, WaitingPods

log = structlog.get_logger(__name__)


class Superseded(Exception):
    """Raised when the question was replaced while the driver considered it."""


@dataclass(frozen=True, slots=True)
class _Answered:
    """The entries that answer a question in that state."""

    state: Hashable
    entries: Entries


class Responder:
    """Writes one driver's answers into PodSchedulings. `queue` has the keys of those to reconcile."""

    def __init__(self, client: Client, informers: Informers, evaluator: Evaluator, queue: WorkQueue[Key]) -> None:
        self._client = client
        self._informers = informers
        self._evaluator = evaluator
        self._queue = queue
        self._answered: dict[Key, _Answered] = {}
        self._stale: set[Key] = set()
        self._considering: dict[Key, tuple[Hashable, asyncio.Task[tuple[Entries, Outlook]]]] = {}
        self._unread: defaultdict[Topic, set[Key]] = defaultdict(set)
        """Pods whose answer depends on an object that is to be read, by its topic."""
        self.waiting = WaitingPods(self._requeue)

    def _requeue(self, key: Key) -> None:
        self._stale.add(key)
        self._queue.add(key)

    def changed(self) -> None:
        """Pods that wait for the driver may now succeed."""
        self.waiting.changed()

    def await_parameters(self, key: Key, topic: Topic) -> None:
        """What the pod's claims ask for is known only when the object of that topic was read: requeue it then."""
        self._unread[topic].add(key)

    def parameters_read(self, topic: Topic) -> None:
        """An object that holds parameters was read."""
        for key in self._unread.pop(topic, ()):
            self._requeue(key)

    def forget(self, key: Key) -> None:
        """The pod's claims are allocated, or it asks for none."""
        self._answered.pop(key, None)
        self._stale.discard(key)
        self._evaluator.forget(key)
        self.waiting.leave(key)

    def selected(self, key: Key) -> None:
        """A node is selected for the pod. Should it be cleared, the driver is asked again."""
        self._answered.pop(key, None)

    def waits(self, key: Key) -> bool:
        """Whether the pod has an answer, and waits in line for a better one."""
        return self.waiting.has(key)

    def close(self) -> None:
        """No pod is requeued any more."""
        self.waiting.close()

    def round_changed(self, key: Key, round_: int | None) -> None:
        """The pod's question has this round now, None if there is none: an answer to another is of no use."""
        considering = self._considering.get(key)
        if considering is not None and considering[0] != round_:
            considering[1].cancel()

    async def answer(self, key: Key, scheduling: PodScheduling, question: PodQuestion) -> None:
        """Reconcile the driver's entries with its answer. Raises DriverFault, and what a client raises."""
        answered = self._answered.get(key)
        if answered is None or answered.state != question.state or key in self._stale:
            try:
                answered = await self._evaluated(key, question)
            except Superseded:
                return  # the new question is in the queue
            except NotRead:
                return  # there is no answer before it is read
            except DriverFault as fault:
                await self.apply(scheduling, entries.refused(self._informers.driver, question, str(fault)))
                raise
        try:
            await self.apply(scheduling, answered.entries)
        except (Invalid, ValidationError) as error:
            text = f"driver {self._informers.driver} gave an answer that the API does not take: {_invalid(error)}"
            await self.apply(scheduling, entries.refused(self._informers.driver, question, text))
            raise DriverFault(text) from error

    async def _evaluated(self, key: Key, question: PodQuestion) -> _Answered:
        seen = self.waiting.changes
        self._answered.pop(key, None)
        self._stale.discard(key)  # now: what is read from here on makes the answer old before it is given
        found, outlook_ = await self._considered(key, question)
        answered = self._answered[key] = _Answered(question.state, found)
        self.waiting.evaluated(key, question.signature, outlook_, seen, question.priority)
        return answered

    async def _considered(self, key: Key, question: PodQuestion) -> tuple[Entries, Outlook]:
        """The driver's answer. Raises Superseded if the question is replaced meanwhile."""
        task = asyncio.ensure_future(self._consider(key, question))
        self._considering[key] = question.round, task
        try:
            await asyncio.wait((task,))
        finally:
            del self._considering[key]
            await cancel(task)
        if task.cancelled():
            raise Superseded
        return task.result()

    async def _consider(self, key: Key, question: PodQuestion) -> tuple[Entries, Outlook]:
        """Raises NotRead while an object that holds parameters is being read."""
        try:
            answers = await self._evaluator.answers(question)
            scores = self._evaluator.scores(question, answers)
            waits = self.waiting.has(key)  # then others may wait for the same, who come first
            capacity = {} if waits else self._evaluator.capacity(question, answers, scores)
        except (BadParameters, NotRead) as error:
            if error.topic is not None:
                self.await_parameters(key, error.topic)  # before anything else runs: it may be read at once
            if isinstance(error, NotRead) and error.transient:
                raise
            return entries.refused(self._informers.driver, question, str(error)), Outlook.NOWHERE
        found = entries.answered(self._informers.driver, question, answers, scores, capacity)
        return found, outlook(question, answers)

    async def apply(self, scheduling: PodScheduling, wanted: Entries) -> None:
        """Write the driver's entries by server-side apply, unless they are there."""
        if entries.are_written(self._informers.driver, scheduling, wanted):
            return
        meta = scheduling.metadata
        try:
            written = await self._client.apply(
                POD_SCHEDULINGS,
                meta.name,
                entries.body(scheduling, wanted),
                meta.namespace,
                field_manager=self._informers.driver,
                force=True,
            )
        except (NotFound, Conflict):
            return  # the PodScheduling is gone, or another one of that name: the watch brings it
        self._informers.wrote(written)
        pod = f"{meta.namespace}/{meta.name}"
        log.debug("answered", driver=self._informers.driver, pod=pod, round=scheduling.spec.round)


def _invalid(error: Invalid | ValidationError) -> str:
    """Which field, and why."""
    if isinstance(error, Invalid):
        return error.message
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
