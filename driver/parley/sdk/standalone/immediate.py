"""Allocates one driver's claims with allocationMode Immediate: at once, without a pod, on a node of its choice.

Which nodes are eligible, and where it is not tried again, goes by `parley.sdk.immediate`. Where no node is viable
the claim's condition says why, and it waits in line with those that ask for the same: a change requeues the first
of them, and when that is allocated, or was tried for some seconds, the next. What fails on every viable node is
tried again after a pause.
"""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NoReturn

from parley.api import reasons
from parley.api.models import ResourceClaim, ResourceClass
from parley.kube.cache import Key
from parley.kube.queue import WorkQueue
from parley.negotiation.answers import by_reason, refusals, viable_for_all
from parley.negotiation.nowhere import nowhere
from parley.negotiation.selection import ranked, spread
from parley.negotiation.waiting import Topic, WaitingLines
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.immediate import FailedNodes, NodeRule, awaits_acceptance, is_pending, unknown_holdings
from parley.sdk.referenced import NotRead
from parley.sdk.standalone.allocating import Failed, MayNotBegin, StandaloneAllocator
from parley.sdk.standalone.evaluation import Evaluator, chunks
from parley.sdk.standalone.holdings import AllocationStage, Holdings
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import ClaimRef, Operation, Operations, Retry
from parley.sdk.standalone.pod_allocations import assigned
from parley.sdk.standalone.questions import PodQuestion, about_claim
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.sdk.standalone.waiting import TURN_SECONDS

_CHANGE: Topic = ("change",)

_MOVED = (reasons.DRIVER_MOVED,)
"""The line of those that wait until what the driver allocated in the controller has ended, of all namespaces."""


@dataclass(frozen=True, slots=True)
class ImmediateDependencies:
    """What this works with; the other parts of the runner share it."""

    informers: Informers
    driver: EmbeddedDriver
    evaluator: Evaluator
    allocator: StandaloneAllocator
    holdings: Holdings
    records: StandaloneRecords
    operations: Operations


class ImmediateAllocations:
    """One driver's immediate claims. `queue` has the keys of claims to reconcile."""

    def __init__(self, deps: ImmediateDependencies, queue: WorkQueue[Key]) -> None:
        self._deps = deps
        self._queue = queue
        self._lines: WaitingLines[Key] = WaitingLines()
        self._waiting: set[Key] = set()
        """Those in line that nothing is done for before their turn comes."""
        self._changes = 0
        self._uids: dict[Key, str] = {}
        """Of the claims that all this is about: another one may have the name by the next look."""
        self._failed: dict[Key, FailedNodes] = {}
        self._begun: dict[Key, float] = {}
        """When each claim was first tried, by the event loop's clock."""

    def changed(self) -> None:
        """Claims that wait may now succeed: requeue the first of each line."""
        self._changes += 1
        for key in self._lines.wake(_CHANGE):
            self._requeue(key)

    def parameters_read(self, topic: Topic) -> None:
        """An object that holds parameters was read: requeue the first of each line that waits for it."""
        for key in self._lines.wake(topic):
            self._requeue(key)

    def _requeue(self, key: Key) -> None:
        self._waiting.discard(key)
        self._queue.add(key)

    def serves(self, claim: ResourceClaim) -> bool:
        """Whether the claim is to be allocated without a pod, by this driver."""
        class_ = self._deps.informers.class_of(claim)
        return is_pending(claim) and class_ is not None and class_.driver_name == self._deps.driver.name

    def forget(self, key: Key) -> None:
        """The claim is not to be allocated (any more): forget it."""
        self._uids.pop(key, None)
        self._failed.pop(key, None)
        self._begun.pop(key, None)
        self._leave_line(key)

    def _leave_line(self, key: Key) -> None:
        self._waiting.discard(key)
        if (following := self._lines.leave(key)) is not None:
            self._requeue(following)

    async def sync(self, key: Key, claim: ResourceClaim) -> None:
        """Begin to allocate the claim, unless it waits for a change. No operation about it is under way. Returns
        when a driver in memory has been asked: only so many claims are judged at a time as there are workers, and
        those of each namespace in turn."""
        if self._uids.get(key) != claim.metadata.uid:
            self.forget(key)
            self._uids[key] = claim.metadata.uid
        class_ = self._deps.informers.class_of(claim)
        if class_ is None or awaits_acceptance(claim, class_):
            self._leave_line(key)  # a change of claim or class comes here again
        elif key not in self._waiting:
            judged, operation = asyncio.Event(), Operation([ClaimRef(key, claim.metadata.uid)])
            self._deps.operations.start(operation, partial(self._allocate, judged))
            if not self._deps.driver.driver.asynchronous:
                await judged.wait()

    async def _allocate(self, judged: asyncio.Event, operation: Operation) -> None:
        try:
            await self._judge(judged, operation)
        finally:
            judged.set()

    async def _judge(self, judged: asyncio.Event, operation: Operation) -> None:
        (ref,), changes = operation.refs, self._changes
        claim = self._deps.informers.claim(ref.key)
        class_ = self._deps.informers.class_of(claim) if claim is not None else None
        if claim is None or class_ is None or claim.metadata.uid != ref.uid:
            return
        if message := unknown_holdings(self._deps.informers.own_classes()):
            await self._wait(ref, _MOVED, changes, reasons.DRIVER_MOVED, message)
            return
        if self._lines.line_of(ref.key) == _MOVED:
            self._pass_on(ref)  # they have nothing else in common
        since = self._begun.setdefault(ref.key, asyncio.get_running_loop().time())
        question, failed = about_claim(claim, class_, since), self._failed_nodes(ref.key, claim, class_)
        rule = NodeRule(class_)
        try:
            try:
                begun_on = await self._begun_on(ref, question, rule)
                viable, (code, message) = await self._viable(question, rule, failed)
            finally:
                judged.set()
        except BadParameters as error:
            why = (reasons.PARAMETERS_INVALID, str(error))
            await self._wait(ref, (question.signature, error.topic), changes, *why, topic=error.topic)
            return
        except NotRead as error:
            why = ("" if error.transient else error.code, str(error))
            await self._wait(ref, (ref.uid, error.topic), changes, *why, topic=error.topic)
            return
        except DriverFault as fault:
            await self._again(ref, reasons.DRIVER_FAILED, str(fault))
        nodes = [*begun_on, *(node for node in viable if node not in begun_on)]
        if nodes:
            await self._try(operation, question, nodes, failed)
            return
        line = ref.uid if failed.excluded else question.signature
        await self._wait(ref, line, changes, code, message)

    def _failed_nodes(self, key: Key, claim: ResourceClaim, class_: ResourceClass) -> FailedNodes:
        failed = self._failed.get(key)
        if failed is None or not failed.are_about(claim, class_):
            failed = self._failed[key] = FailedNodes.none(claim, class_)
        return failed

    async def _begun_on(self, ref: ClaimRef, question: PodQuestion, rule: NodeRule) -> list[str]:
        """Where the allocation was begun before a restart, to go on there if it could begin there now; anything
        else is released. Class and node may have changed, and the annotation may not be the driver's own."""
        before = self._deps.holdings.get(ref.uid)
        node = before.node if before is not None and before.stage is AllocationStage.CARRIED else None
        if node and await self._is_viable(question, rule, node):
            return [node]
        await self._deps.holdings.release(ref.uid)
        return []

    def _fits(self, rule: NodeRule, node: str) -> bool:
        known = self._deps.informers.node(node)
        return known is not None and not rule.misfit(known)

    async def _is_viable(self, question: PodQuestion, rule: NodeRule, node: str) -> bool:
        if not self._fits(rule, node):
            return False
        answers = await self._deps.evaluator.ask(question.request(self._deps.driver), [node])
        return bool(viable_for_all([node], answers))

    async def _viable(
        self, question: PodQuestion, rule: NodeRule, failed: FailedNodes
    ) -> tuple[Sequence[str], tuple[str, str]]:
        """Viable nodes, best first; a reason code and why the others are not."""
        driver, informers = self._deps.driver, self._deps.informers
        request = question.request(driver)
        nodes = {node.metadata.name: rule.misfit(node) for node in informers.nodes()}
        misfits = {node: why for node, why in nodes.items() if why}
        in_order = dict.fromkeys(chain(driver.fullest(request), spread(list(nodes), question.uid)))
        eligible = [node for node in in_order if node in nodes and node not in misfits]
        excluded = {node: failed.excluded[node] for node in eligible if node in failed.excluded}
        refused = {node: f"could not allocate: {why}" for node, why in excluded.items()}
        viable: list[str] = []
        for chunk in chunks([node for node in eligible if node not in excluded]):
            await asyncio.sleep(0)  # others have their turn
            answers = await self._deps.evaluator.ask(request, chunk)
            viable += viable_for_all(chunk, answers)
            refused.update(refusals(answers))
            if viable and (driver.tells_room or not driver.has_preferences):
                break
        scores = driver.score(request, viable) if viable else {}
        why = nowhere(len(nodes), misfits, refused, asked=bool(eligible))
        return ranked(viable, scores, failed.failed), why

    async def _try(
        self, operation: Operation, question: PodQuestion, nodes: Sequence[str], failed: FailedNodes
    ) -> None:
        """Allocate on the first node where the driver does. Raises Retry if there is none. Others need not wait
        until it has ended if it takes long, and in any case not longer."""
        (ref,) = operation.refs
        passing_on = asyncio.get_running_loop().call_later(TURN_SECONDS, self._pass_on, ref)
        try:
            await self._try_each(operation, question, nodes, failed)
        finally:
            passing_on.cancel()
            self._pass_on(ref)

    async def _try_each(
        self, operation: Operation, question: PodQuestion, nodes: Sequence[str], failed: FailedNodes
    ) -> None:
        """An attempt may take minutes: nodes, and the class, may be others after it."""
        (entry,), failures = question.entries, dict[str, str]()
        for node in nodes:
            class_ = self._deps.informers.class_of(entry.claim)
            if class_ is None or class_.revision != entry.class_.revision:
                return  # the claim is looked at anew
            if failures and not self._fits(NodeRule(class_), node):
                continue
            operation.node = node
            try:
                await self._deps.allocator.allocate(operation, assigned(question, self._deps.driver))
                return
            except Failed as failure:
                failures[node] = str(failure)
                failed.add(node, str(failure), permanent=failure.permanent)
                if isinstance(failure, MayNotBegin):
                    break
            if operation.stop.is_set():
                return
        (ref,) = operation.refs
        await self._again(ref, reasons.ALLOCATION_FAILED, by_reason(failures))

    async def _again(self, ref: ClaimRef, code: str, message: str) -> NoReturn:
        """It failed, and is tried again after a pause; others need not wait for that."""
        self._pass_on(ref)
        await self._set_refusal(ref, code, message)
        raise Retry(message)

    async def _wait(
        self, ref: ClaimRef, line: Hashable, changes: int, code: str, message: str, topic: Topic | None = None
    ) -> None:
        """Until something changed, or the object of that topic was read. Without a code nobody need know."""
        if not self._is_current(ref):
            return
        following = self._lines.wait(ref.key, line, [_CHANGE] if topic is None else [_CHANGE, topic])
        self._waiting.add(ref.key)
        if following is not None:
            self._requeue(following)
        if changes != self._changes:
            self._requeue(ref.key)
        if code:
            await self._set_refusal(ref, code, message)

    def _pass_on(self, ref: ClaimRef) -> None:
        """The claim stands in no line any more, and the turn is the next one's."""
        if self._is_current(ref):
            self._leave_line(ref.key)

    def _is_current(self, ref: ClaimRef) -> bool:
        """Whether no other claim has the name by now."""
        return self._uids.get(ref.key) == ref.uid

    async def _set_refusal(self, ref: ClaimRef, code: str, message: str) -> None:
        try:
            await self._deps.records.set_refusal(ref, code, message)
        except Gone:
            pass  # as is its condition
