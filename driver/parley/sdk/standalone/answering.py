"""Answers pods that have no selected node yet, and keeps the answers up to date.

A pod is judged when its question is new and when its turn comes in the waiting lines; whatever else happens to it
is answered from memory. What the API says already is not written again.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

import structlog

from parley.api.models import PodScheduling
from parley.api.resources import POD_SCHEDULINGS
from parley.kube.cache import Key
from parley.kube.client import Client, Conflict, NotFound
from parley.kube.queue import WorkQueue
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.standalone import entries
from parley.sdk.standalone.entries import Entries
from parley.sdk.standalone.jobs import end
from parley.sdk.standalone.judging import Judge, outlook
from parley.sdk.standalone.lines import Lines, Outlook
from parley.sdk.standalone.questions import Question
from parley.sdk.standalone.view import View

log = structlog.get_logger(__name__)


class Superseded(Exception):
    """Raised when the question was replaced while the driver thought about it."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What was answered to a question in that state."""

    state: Hashable
    entries: Entries


class Responder:
    """One driver's answers. `queue` has the pods that need work."""

    def __init__(self, client: Client, view: View, judge: Judge, queue: WorkQueue[Key]) -> None:
        self._client = client
        self._view = view
        self._judge = judge
        self._queue = queue
        self._given: dict[Key, _Given] = {}
        self._stale: set[Key] = set()
        self._thinking: dict[Key, tuple[Hashable, asyncio.Task[tuple[Entries, Outlook]]]] = {}
        self.lines = Lines(self._again)

    def _again(self, key: Key) -> None:
        self._stale.add(key)
        self._queue.add(key)

    def changed(self) -> None:
        """Pods that wait for the driver may now succeed."""
        self.lines.changed()

    def forget(self, key: Key) -> None:
        """The pod has what it asked for, or asks no more."""
        self._given.pop(key, None)
        self._stale.discard(key)
        self.lines.leave(key)

    def selected(self, key: Key) -> None:
        """A node is selected for the pod. Should it ask again, then it is judged again."""
        self._given.pop(key, None)

    def waits(self, key: Key) -> bool:
        """Whether the pod has an answer, and stands in line for a better one."""
        return self.lines.has(key)

    def close(self) -> None:
        """No pod is looked at again."""
        self.lines.close()

    def asked(self, key: Key, round_: int | None) -> None:
        """This is the pod's question now, None if there is none: what is thought about an older one is in vain."""
        thinking = self._thinking.get(key)
        if thinking is not None and thinking[0] != round_:
            thinking[1].cancel()

    async def answer(self, key: Key, scheduling: PodScheduling, question: Question) -> None:
        """See to it that the PodScheduling has the answer. Raises DriverFault, and what a client raises."""
        given = self._given.get(key)
        if given is None or given.state != question.state or key in self._stale:
            try:
                given = await self._judged(key, question)
            except Superseded:
                return  # the new question is in the queue
            except DriverFault as fault:
                await self.tell(scheduling, entries.refused(self._view.driver, question, str(fault)))
                raise
        await self.tell(scheduling, given.entries)

    async def _judged(self, key: Key, question: Question) -> _Given:
        seen = self.lines.changes
        said, look = await self._thought(key, question)
        given = self._given[key] = _Given(question.state, said)
        self._stale.discard(key)
        self.lines.judged(key, question.signature, look, seen)
        return given

    async def _thought(self, key: Key, question: Question) -> tuple[Entries, Outlook]:
        """Ended early if the question is replaced meanwhile."""
        task = asyncio.ensure_future(self._consider(question))
        self._thinking[key] = question.round, task
        try:
            await asyncio.wait((task,))
        finally:
            del self._thinking[key]
            await end(task)
        if task.cancelled():
            raise Superseded
        return task.result()

    async def _consider(self, question: Question) -> tuple[Entries, Outlook]:
        try:
            answers = await self._judge.answers(question)
        except BadParameters as error:
            return entries.refused(self._view.driver, question, str(error)), Outlook.NOWHERE
        scores = self._judge.scores(question, answers)
        return entries.answered(self._view.driver, question, answers, scores), outlook(question, answers)

    async def tell(self, scheduling: PodScheduling, wanted: Entries) -> None:
        """Write the driver's entries, unless they are there."""
        if entries.says(self._view.driver, scheduling, wanted):
            return
        meta = scheduling.metadata
        try:
            written = await self._client.apply(
                POD_SCHEDULINGS,
                meta.name,
                entries.body(scheduling, wanted),
                meta.namespace,
                field_manager=self._view.driver,
                force=True,
            )
        except (NotFound, Conflict):
            return  # the PodScheduling is gone, or another one of that name: the watch tells
        self._view.wrote(written)
        pod = f"{meta.namespace}/{meta.name}"
        log.debug("answered", driver=self._view.driver, pod=pod, round=scheduling.spec.round)
