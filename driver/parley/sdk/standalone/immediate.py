"""Allocates one driver's claims with allocationMode Immediate: at once, without a pod, on a node that it selects.

The rules for eligible and failed nodes are in `parley.sdk.immediate`. If no node is viable, the claim's condition
says why, and the claim waits in line with claims of equal requests: a change requeues the first of them, and when
that one is allocated, or was tried for `TURN_SECONDS`, the next. A claim that fails on every viable node is tried
again after a back-off.
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
from parley.negotiation.nowhere import no_node_available
from parley.negotiation.selection import ranked, rotated
from parley.negotiation.waiting import Topic, WaitingLines
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.immediate import FailedNodes, NodeRule, awaits_acceptance, is_pending, unknown_holdings
from parley.sdk.referenced import ParametersUnavailable
from parley.sdk.standalone.allocating import Failed, MayNotBegin, StandaloneAllocator
from parley.sdk.standalone.evaluation import Evaluator, chunks
from parley.sdk.standalone.holdings import AllocationStage, Holdings
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.operations import ClaimRef, Operation, Operations, Retry
from parley.sdk.standalone.pod_allocations import assignment_for
from parley.sdk.standalone.questions import PodQuestion, about_claim
from parley.sdk.standalone.records import Gone, StandaloneRecords
from parley.sdk.standalone.waiting import TURN_SECONDS

_CHANGE: Topic = ("change",)

_MOVED = (reasons.DRIVER_MOVED,)
"""The line of all claims that wait until the driver's allocations in the controller have ended."""


@dataclass(frozen=True, slots=True)
class ImmediateDependencies:
    """The dependencies of `ImmediateAllocations`, shared with the other parts of the runner."""

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
        """Claims in line whose turn has not come: they are not evaluated before."""
        self._changes = 0
        self._uids: dict[Key, str] = {}
        """The UIDs of the known claims, to notice when another claim has the name."""
        self._failed: dict[Key, FailedNodes] = {}
        self._begun: dict[Key, float] = {}
        """When each claim was first tried, by the event loop's clock."""

    def changed(self) -> None:
        """Requeues the first claim of each line: waiting claims may now succeed."""
        self._changes += 1
        for key in self._lines.wake(_CHANGE):
            self._requeue(key)

    def parameters_read(self, topic: Topic) -> None:
        """Requeues the first claim of each line that waits for the parameters object that was read."""
        for key in self._lines.wake(topic):
            self._requeue(key)

    def _requeue(self, key: Key) -> None:
        self._waiting.discard(key)
        self._queue.add(key)

    def serves(self, claim: ResourceClaim) -> bool:
        """Whether the claim is to be allocated without a pod, and by this driver."""
        class_ = self._deps.informers.class_of(claim)
        return is_pending(claim) and class_ is not None and class_.driver_name == self._deps.driver.name

    def forget(self, key: Key) -> None:
        """Forgets a claim that is not to be allocated here (any more)."""
        self._uids.pop(key, None)
        self._failed.pop(key, None)
        self._begun.pop(key, None)
        self._leave_line(key)

    def _leave_line(self, key: Key) -> None:
        self._waiting.discard(key)
        if (following := self._lines.leave(key)) is not None:
            self._requeue(following)

    async def sync(self, key: Key, claim: ResourceClaim) -> None:
        """Starts to allocate the claim, unless it waits for a change; no operation may be under way for it.
        Returns when a synchronous driver was asked, so that at most as many claims are evaluated at a time as
        there are workers, and the namespaces take turns."""
        if self._uids.get(key) != claim.metadata.uid:
            self.forget(key)
            self._uids[key] = claim.metadata.uid
        class_ = self._deps.informers.class_of(claim)
        if class_ is None or awaits_acceptance(claim, class_):
            self._leave_line(key)  # a change of claim or class requeues it
        elif key not in self._waiting:
            evaluated, operation = asyncio.Event(), Operation([ClaimRef(key, claim.metadata.uid)])
            self._deps.operations.start(operation, partial(self._allocate, evaluated))
            if not self._deps.driver.driver.asynchronous:
                await evaluated.wait()

    async def _allocate(self, evaluated: asyncio.Event, operation: Operation) -> None:
        try:
            await self._evaluate_and_try(evaluated, operation)
        finally:
            evaluated.set()

    async def _evaluate_and_try(self, evaluated: asyncio.Event, operation: Operation) -> None:
        (ref,), changes = operation.refs, self._changes
        claim = self._deps.informers.claim(ref.key)
        class_ = self._deps.informers.class_of(claim) if claim is not None else None
        if claim is None or class_ is None or claim.metadata.uid != ref.uid:
            return
        if message := unknown_holdings(self._deps.informers.own_classes()):
            await self._wait(ref, _MOVED, changes, reasons.DRIVER_MOVED, message)
            return
        if self._lines.line_of(ref.key) == _MOVED:
            self._pass_on(ref)  # the claims of this line have no equal requests
        since = self._begun.setdefault(ref.key, asyncio.get_running_loop().time())
        question, failed = about_claim(claim, class_, since), self._failed_nodes(ref.key, claim, class_)
        rule = NodeRule(class_)
        try:
            try:
                begun_on = await self._begun_on(ref, question, rule)
                line = ref.uid if failed.excluded else self._deps.evaluator.line(question)
                viable, (code, message) = await self._viable(question, rule, failed)
            finally:
                evaluated.set()
        except BadParameters as error:
            why = (reasons.PARAMETERS_INVALID, str(error))
            await self._wait(ref, (question.signature, error.topic), changes, *why, topic=error.topic)
            return
        except ParametersUnavailable as error:
            why = ("" if error.transient else error.code, str(error))
            await self._wait(ref, (ref.uid, error.topic), changes, *why, topic=error.topic)
            return
        except DriverFault as fault:
            await self._retry(ref, reasons.DRIVER_FAILED, str(fault))
        nodes = [*begun_on, *(node for node in viable if node not in begun_on)]
        if nodes:
            await self._try(operation, question, nodes, failed)
            return
        await self._wait(ref, line, changes, code, message)

    def _failed_nodes(self, key: Key, claim: ResourceClaim, class_: ResourceClass) -> FailedNodes:
        failed = self._failed.get(key)
        if failed is None or not failed.still_apply(claim, class_):
            failed = self._failed[key] = FailedNodes.none(claim, class_)
        return failed

    async def _begun_on(self, ref: ClaimRef, question: PodQuestion, rule: NodeRule) -> list[str]:
        """The node where an allocation was begun before a restart, to continue there, if the node is still viable;
        otherwise releases the holding. Class and node may have changed, and others can write the annotation."""
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
        """The viable nodes, best first; and a reason code and message why the others are not."""
        driver, informers = self._deps.driver, self._deps.informers
        request = question.request(driver)
        nodes = {node.metadata.name: rule.misfit(node) for node in informers.nodes()}
        misfits = {node: why for node, why in nodes.items() if why}
        in_order = dict.fromkeys(chain(driver.fullest(request), rotated(list(nodes), question.uid)))
        eligible = [node for node in in_order if node in nodes and node not in misfits]
        excluded = {node: failed.excluded[node] for node in eligible if node in failed.excluded}
        refused = {node: f"could not allocate: {why}" for node, why in excluded.items()}
        viable: list[str] = []
        for chunk in chunks([node for node in eligible if node not in excluded]):
            await asyncio.sleep(0)  # lets other tasks run
            answers = await self._deps.evaluator.ask(request, chunk)
            viable += viable_for_all(chunk, answers)
            refused.update(refusals(answers))
            if viable and (driver.reports_room or not driver.has_preferences):
                break
        scores = driver.score(request, viable) if viable else {}
        why = no_node_available(len(nodes), misfits, refused, asked=bool(eligible))
        return ranked(viable, scores, failed.failed), why

    async def _try(
        self, operation: Operation, question: PodQuestion, nodes: Sequence[str], failed: FailedNodes
    ) -> None:
        """Allocates on the first node where the driver succeeds. Raises Retry if there is none. The turn passes to
        the next claim of the line when this ends, or takes longer than `TURN_SECONDS`."""
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
        """Tries the nodes in order. Claim, class and nodes are checked again, as each attempt may take minutes."""
        (entry,), failures = question.entries, dict[str, str]()
        for node in nodes:
            class_ = self._deps.informers.class_of(entry.claim)
            if class_ is None or class_.revision != entry.class_.revision:
                return  # the change of the class requeues the claim
            claim = self._deps.informers.claim(operation.refs[0].key)
            if claim is None or awaits_acceptance(claim, class_):
                return  # its next change requeues it
            if failures and not self._fits(NodeRule(class_), node):
                continue
            operation.node = node
            try:
                await self._deps.allocator.allocate(operation, assignment_for(question, self._deps.driver))
                return
            except Failed as failure:
                failures[node] = str(failure)
                failed.add(node, str(failure), permanent=failure.permanent)
                if isinstance(failure, MayNotBegin):
                    break
            if operation.stop.is_set():
                return
        (ref,) = operation.refs
        await self._retry(ref, reasons.ALLOCATION_FAILED, by_reason(failures))

    async def _retry(self, ref: ClaimRef, code: str, message: str) -> NoReturn:
        """Reports a failure, and raises Retry; the turn passes to the next claim of the line."""
        self._pass_on(ref)
        await self._set_refusal(ref, code, message)
        raise Retry(message)

    async def _wait(
        self, ref: ClaimRef, line: Hashable, changes: int, code: str, message: str, topic: Topic | None = None
    ) -> None:
        """Puts the claim in the line until a change, or a read of the topic's object; reports the code, if any."""
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
        """Removes the claim from its line; the turn passes to the next claim."""
        if self._is_current(ref):
            self._leave_line(ref.key)

    def _is_current(self, ref: ClaimRef) -> bool:
        """Whether the claim still exists under its name."""
        return self._uids.get(ref.key) == ref.uid

    async def _set_refusal(self, ref: ClaimRef, code: str, message: str) -> None:
        try:
            await self._deps.records.set_refusal(ref, code, message)
        except Gone:
            pass  # there is no condition to set
