"""Answers pods that have no selected node yet, and keeps the answers up to date.

The driver is asked when a pod's question is new, and when the pod's turn comes among those that wait (`waiting`);
after any other change, the answer comes from memory. Entries that a PodScheduling has already are not rewritten.
"""

import asyncio
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog
from pydantic import ValidationError

from parley.api import reasons
from parley.api.models import PodScheduling
from parley.api.resources import POD_SCHEDULINGS
from parley.kube.cache import Key
from parley.kube.client import Client, Conflict, Invalid, NotFound, TooLarge
from parley.kube.errors import is_of_another_uid
from parley.kube.queue import WorkQueue
from parley.negotiation.waiting import Topic
from parley.sdk.checks import BadParameters, DriverFault, answer_too_large
from parley.sdk.referenced import ParametersUnavailable
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
    """The entries that answer a question, and the question's state when it was answered."""

    state: Hashable
    entries: Entries


class _Considered(NamedTuple):
    """The entries that answer a question, the line that its pod waits in, and the pod's outlook."""

    entries: Entries
    line: Hashable
    outlook: Outlook


class Responder:
    """Writes one driver's answers into PodSchedulings. `queue` has the keys of those to reconcile."""

    def __init__(self, client: Client, informers: Informers, evaluator: Evaluator, queue: WorkQueue[Key]) -> None:
        self._client = client
        self._informers = informers
        self._evaluator = evaluator
        self._queue = queue
        self._answered: dict[Key, _Answered] = {}
        self._stale: set[Key] = set()
        self._considering: dict[Key, tuple[Hashable, asyncio.Task[_Considered]]] = {}
        self._unread: defaultdict[Topic, set[Key]] = defaultdict(set)
        """Pods whose answer depends on an object that is being read, by the object's topic."""
        self.waiting = WaitingPods(self._requeue)

    def _requeue(self, key: Key) -> None:
        self._stale.add(key)
        self._queue.add(key)

    def changed(self) -> None:
        """Requeues waiting pods, each in its turn: they may now succeed."""
        self.waiting.changed()

    def await_parameters(self, key: Key, topic: Topic) -> None:
        """Requeues the pod when the object of that topic, which has parameters of its claims, has been read."""
        self._unread[topic].add(key)

    def parameters_read(self, topic: Topic) -> None:
        """Requeues pods that wait for the object that was read."""
        for key in self._unread.pop(topic, ()):
            self._requeue(key)

    def forget(self, key: Key) -> None:
        """Forgets the pod: its claims are allocated, or it has none of this driver."""
        self._answered.pop(key, None)
        self._stale.discard(key)
        self._evaluator.forget(key)
        self.waiting.leave(key)

    def selected(self, key: Key) -> None:
        """Forgets the pod's answer: a node is selected. If it is cleared, the driver is asked again."""
        self._answered.pop(key, None)

    def waits(self, key: Key) -> bool:
        """Whether the pod has an answer, and waits in line for a better one."""
        return self.waiting.has(key)

    def close(self) -> None:
        """Stops requeueing pods."""
        self.waiting.close()

    def round_changed(self, key: Key, round_: int | None) -> None:
        """Cancels a call of the driver for another round than the pod's present one (None: no question)."""
        considering = self._considering.get(key)
        if considering is not None and considering[0] != round_:
            considering[1].cancel()

    async def answer(self, key: Key, scheduling: PodScheduling, question: PodQuestion) -> None:
        """Reconciles the driver's entries with its answer. Raises DriverFault, and the client's exceptions."""
        driver, answered = self._informers.driver, self._answered.get(key)
        if answered is None or answered.state != question.state or key in self._stale:
            try:
                answered = await self._evaluated(key, question)
            except Superseded:
                return  # the new question is in the queue
            except ParametersUnavailable:
                return  # the pod is requeued once the object is read
            except DriverFault as fault:
                await self.apply(scheduling, _failed(driver, question, str(fault)))
                raise
        try:
            await self.apply(scheduling, answered.entries)
        except TooLarge:
            text = answer_too_large(driver, len(question.entries), len(question.candidates))
            log.warning("answer too large", driver=driver, pod="/".join(key), error=text)
            answered = self._answered[key] = replace(answered, entries=_failed(driver, question, text))
            await self.apply(scheduling, answered.entries)
        except (Invalid, ValidationError) as error:
            text = f"driver {driver} gave an answer that the API does not take: {_invalid(error)}"
            await self.apply(scheduling, _failed(driver, question, text))
            raise DriverFault(text) from error

    async def _evaluated(self, key: Key, question: PodQuestion) -> _Answered:
        changes, again = self.waiting.changes, key in self._stale
        self._answered.pop(key, None)
        self._stale.discard(key)  # before the driver is asked: a change from here on makes the answer stale
        answer, line, outlook_ = await self._considered(key, question, again=again)
        answered = self._answered[key] = _Answered(question.state, answer)
        self.waiting.evaluated(key, line, outlook_, changes, question.priority)
        return answered

    async def _considered(self, key: Key, question: PodQuestion, *, again: bool) -> _Considered:
        """The driver's answer. Raises Superseded if the question is replaced in the meantime."""
        task = asyncio.ensure_future(self._consider(key, question, again=again))
        self._considering[key] = question.round, task
        try:
            await asyncio.wait((task,))
        finally:
            del self._considering[key]
            await cancel(task)
        if task.cancelled():
            raise Superseded
        return task.result()

    async def _consider(self, key: Key, question: PodQuestion, *, again: bool) -> _Considered:
        """Asks the driver. Raises ParametersUnavailable while an object that holds parameters is being read."""
        try:
            answers = await self._evaluator.answers(question, again=again)
            scores = self._evaluator.scores(question, answers)
            waits = self.waiting.has(key)  # then pods ahead of it may wait for the same
            capacity = {} if waits else self._evaluator.capacity(question, answers, scores)
            line = self._evaluator.line(question)
        except (BadParameters, ParametersUnavailable) as error:
            if error.topic is not None:
                self.await_parameters(key, error.topic)  # before anything else runs: it may be read at once
            if isinstance(error, ParametersUnavailable) and error.transient:
                raise
            code = error.code if isinstance(error, ParametersUnavailable) else reasons.PARAMETERS_INVALID
            refused = entries.refused(self._informers.driver, question, code, str(error))
            return _Considered(refused, question.signature, Outlook.NOWHERE)
        answer = entries.answered(self._informers.driver, question, answers, scores, capacity)
        return _Considered(answer, line, outlook(question, answers))

    async def apply(self, scheduling: PodScheduling, wanted: Entries) -> None:
        """Writes the driver's entries by server-side apply, unless the PodScheduling has them already."""
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
            return  # the PodScheduling was deleted: the watch will tell
        except Invalid as error:
            if is_of_another_uid(error):
                return  # it was replaced: the watch will tell
            raise
        self._informers.note_written(written)
        pod = f"{meta.namespace}/{meta.name}"
        log.debug("answered", driver=self._informers.driver, pod=pod, round=scheduling.spec.round)


def _failed(driver: str, question: PodQuestion, text: str) -> Entries:
    """The entries for a question to which the driver gave no valid answer."""
    return entries.refused(driver, question, reasons.DRIVER_FAILED, text)


def _invalid(error: Invalid | ValidationError) -> str:
    """The invalid field and the reason, for a message."""
    if isinstance(error, Invalid):
        return error.message
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
