"""Allocates claims with allocationMode Immediate: at once, without a pod, on a node of the driver's own choice.

The nodes that come into question are those that the class calls suitable and that Kubernetes itself sends pods
to. Where nothing will do the claim's condition says why, and it waits in line with those that ask for the same: a
change has the first of them looked at again. What fails on every viable node is tried again after a pause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parley.api import reasons
from parley.api.models import ResourceClaim
from parley.kube.cache import Key
from parley.kube.queue import WorkQueue
from parley.negotiation.answers import by_reason, viable_for_all
from parley.negotiation.waiting import Topic, WaitingLines
from parley.sdk.checks import BadParameters
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.standalone.allocating import Failed, StandaloneAllocator
from parley.sdk.standalone.holdings import Holdings, Stage
from parley.sdk.standalone.jobs import Again, Job, Jobs, Part
from parley.sdk.standalone.judging import Judge, chunks, in_own_order
from parley.sdk.standalone.questions import Question, about_claim
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.sdk.standalone.selected import assigned
from parley.sdk.standalone.view import View, schedulable

_CHANGE: Topic = ("change",)


@dataclass(frozen=True, slots=True)
class ImmediateParts:
    """What this shares with the other parts of the runner."""

    view: View
    driver: EmbeddedDriver
    judge: Judge
    allocator: StandaloneAllocator
    holdings: Holdings
    records: StandaloneRecords
    jobs: Jobs


class ImmediateAllocations:
    """One driver's immediate claims. `queue` has the claims that need work."""

    def __init__(self, parts: ImmediateParts, queue: WorkQueue[Key]) -> None:
        self._parts = parts
        self._queue = queue
        self._lines: WaitingLines[Key] = WaitingLines()
        self._waiting: set[Key] = set()
        """Those in line that need no look before their turn comes."""
        self._changes = 0

    def changed(self) -> None:
        """Claims that wait may now succeed."""
        self._changes += 1
        for key in self._lines.wake(_CHANGE):
            self._again(key)

    def _again(self, key: Key) -> None:
        self._waiting.discard(key)
        self._queue.add(key)

    def wanted(self, claim: ResourceClaim) -> bool:
        """Whether the claim is to be allocated without a pod, by this driver."""
        class_ = self._parts.view.class_of(claim)
        return (
            claim.spec.allocation_mode == "Immediate"
            and not claim.metadata.deletion_timestamp
            and claim.status.allocation is None
            and class_ is not None
            and class_.driver_name == self._parts.driver.name
        )

    def leave(self, key: Key) -> None:
        """The claim waits no more."""
        self._waiting.discard(key)
        if (following := self._lines.leave(key)) is not None:
            self._again(following)

    def sync(self, key: Key, claim: ResourceClaim) -> None:
        """Begin to allocate a claim that is wanted and free, unless it waits for a change."""
        if key not in self._waiting:
            self._parts.jobs.start(Job([Part(key, claim.metadata.uid)]), self._allocate)

    async def _allocate(self, job: Job) -> None:
        (part,), changes = job.parts, self._changes
        claim = self._parts.view.claim(part.key)
        class_ = self._parts.view.class_of(claim) if claim is not None else None
        if claim is None or class_ is None or claim.metadata.uid != part.uid:
            return
        asked = about_claim(claim, class_)
        begun_on = await self._begun_on(part)
        try:
            viable, refused = await self._viable(asked)
        except BadParameters as error:
            await self._wait(part, asked, changes, reasons.PARAMETERS_INVALID, str(error))
            return
        nodes = [*begun_on, *(node for node in viable if node not in begun_on)]
        if nodes:
            await self._try(job, asked, nodes)
            return
        words = by_reason(refused) or "no node is suitable and schedulable"
        await self._wait(part, asked, changes, reasons.NOTHING_VIABLE, words)

    async def _begun_on(self, part: Part) -> list[str]:
        """The node where the allocation was begun before a restart: go on there. Nothing is held elsewhere."""
        before = self._parts.holdings.get(part.uid)
        if before is not None and before.stage is Stage.CARRIED and before.node:
            return [before.node]
        await self._parts.holdings.release(part.uid)
        return []

    async def _viable(self, asked: Question) -> tuple[Sequence[str], Mapping[str, str]]:
        """Viable nodes, best first, and why others are not."""
        request = asked.request(self._parts.driver)
        nodes = {node.metadata.name for node in self._parts.view.nodes() if schedulable(node)}
        suitable = [name for name in in_own_order(asked, self._parts.view) if name in nodes]
        viable: list[str] = []
        refused: dict[str, str] = {}
        for chunk in chunks(suitable):
            answers = await self._parts.judge.ask(request, chunk)
            viable += viable_for_all(chunk, answers)
            refused.update({node: why for answer in answers.values() for node, why in answer.reasons.items()})
            if viable and not self._parts.driver.has_preferences:
                break
        scores = self._parts.driver.score(request, viable) if viable else {}
        return sorted(viable, key=lambda node: -scores.get(node, 0.0)), refused

    async def _try(self, job: Job, asked: Question, nodes: Sequence[str]) -> None:
        """Allocate on the first node where the driver does. Raises Again if there is none."""
        failures: dict[str, str] = {}
        for node in nodes:
            job.node = node
            try:
                await self._parts.allocator.allocate(job, assigned(asked, self._parts.driver))
                return
            except Failed as failure:
                failures[node] = str(failure)
            if job.stop.is_set():
                return
        (part,), words = job.parts, by_reason(failures)
        self.leave(part.key)
        await self._tell(part, reasons.ALLOCATION_FAILED, words)
        raise Again(words)

    async def _wait(self, part: Part, asked: Question, changes: int, code: str, message: str) -> None:
        following = self._lines.wait(part.key, asked.signature, [_CHANGE])
        self._waiting.add(part.key)
        if following is not None:
            self._again(following)
        if changes != self._changes:
            self._again(part.key)
        await self._tell(part, code, message)

    async def _tell(self, part: Part, code: str, message: str) -> None:
        try:
            await self._parts.records.tell(part, code, message)
        except Gone:
            pass  # nobody is left to be told
