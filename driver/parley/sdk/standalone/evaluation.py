"""Asks the driver which nodes are viable for a pod's claims. Writes nothing.

A driver that gives no alternatives is asked about all other nodes as well, when none of the candidates is viable.
If it answers from memory, this costs microseconds per node, and finds one viable node among thousands for the next
round. An asynchronous one is asked only if the pod's turn came after a change (`waiting`): the controller does not
ask about the nodes of earlier rounds again.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from parley.kube.cache import Key
from parley.negotiation.answers import Answer, Answers, viable_for_all
from parley.negotiation.rounds import DEFAULT_CANDIDATES
from parley.negotiation.selection import rotated
from parley.sdk.checks import ANSWER_SECONDS, MAX_ALTERNATIVES, MAX_NODES, DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.merging import MOST_CLAIMS
from parley.sdk.standalone.expected import ExpectedPods
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.questions import PodQuestion, available
from parley.sdk.standalone.waiting import Outlook
from parley.sdk.values import Request

CAPACITY_NODES = 16
CAPACITY_PODS = 16
"""The most nodes with a capacity in one answer, and the largest capacity of one node: an answer stays small, and a
burst of a thousand pods needs a few of them."""

SHARED_PODS = 32
"""The largest capacity of all nodes together, if they may share the driver's resources."""

CAPACITY_SECONDS = 0.02
"""The most seconds for counting a capacity, by the event loop's clock: some drivers compare many combinations."""

CHUNK = DEFAULT_CANDIDATES
"""The most other nodes in one call, as in a question of the controller: a driver may limit the work of one call,
and refuses nodes that it could not evaluate. Other tasks run between the calls."""


class Evaluator:
    """Asks one driver. `holds` returns whether the claim with that UID holds anything."""

    def __init__(self, driver: EmbeddedDriver, informers: Informers, holds: Callable[[str], bool]) -> None:
        self._driver = driver
        self._informers = informers
        self._expected = ExpectedPods(driver, holds)

    def forget(self, key: Key) -> None:
        """Forgets a pod that is served or gone."""
        self._expected.forget(key)

    async def answers(self, question: PodQuestion, *, again: bool = False) -> Answers:
        """The answers for all claims of the question. `again`: the pod waits, and something has changed. Raises
        BadParameters, ParametersUnavailable and DriverFault."""
        answers = self._allocated(question)
        if question.pending:
            answers.update(await self._pending(question, again=again))
        return answers

    async def ask(self, request: Request[Any, Any], nodes: Sequence[str]) -> Answers:
        """The driver's checked answers about these nodes."""
        driver = self._driver.driver
        if not driver.asynchronous:
            return self._driver.viable(request, nodes)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._driver.consider(request, nodes)
        except TimeoutError as error:
            raise DriverFault(f"driver {driver.name} did not answer within {ANSWER_SECONDS:g} s") from error

    def line(self, question: PodQuestion) -> Hashable:
        """Equal for questions that the driver answers alike: their pods or claims wait in one line. Raises
        BadParameters, ParametersUnavailable and DriverFault."""
        if not question.pending or not self._driver.distinguishes:
            return question.signature
        return question.signature, self._driver.alike(question.request(self._driver))

    def scores(self, question: PodQuestion, answers: Answers) -> Mapping[str, float]:
        """The driver's preferences among the nodes that are viable for all claims."""
        key = (question.pod.namespace, question.pod.name)
        self._expected.forget(key)
        viable = viable_for_all(question.candidates, answers)
        if not viable or not question.pending or not self._driver.has_preferences:
            return {}
        request = question.request(self._driver)
        if self._driver.reports_room and not self._driver.driver.asynchronous:
            return self._expected.scores(key, request, viable)
        return self._driver.score(request, viable)

    def capacity(self, question: PodQuestion, answers: Answers, scores: Mapping[str, float]) -> Mapping[str, int]:
        """For how many pods like this one there is enough on each of the best viable nodes; {} if the driver is
        asynchronous. 1 on each if the pods are to be spread. If nodes may share resources, all capacities together
        are at most that of the best node."""
        viable = viable_for_all(question.candidates, answers)
        if self._driver.driver.asynchronous or len(question.pending) < len(question.entries) or not viable:
            return {}
        request = question.request(self._driver)
        best = sorted(viable, key=lambda node: -scores.get(node, 0.0))
        spread = request.prefer == "Spread" and self._driver.has_preferences
        until = asyncio.get_running_loop().time() + CAPACITY_SECONDS
        if not self._driver.driver.node_local:
            pods = self._count(request, best[0], SHARED_PODS, until)
            each = 1 if spread else max(pods // len(best), 1)
            return {node: self._count(request, node, each, until) for node in best[:pods]}
        if spread:
            return dict.fromkeys(best, 1)
        return {node: self._count(request, node, CAPACITY_PODS, until) for node in best[:CAPACITY_NODES]}

    def _count(self, request: Request[Any, Any], node: str, most: int, until: float) -> int:
        """How many of these requests fit on the node, which is viable for one: a lower bound, at most `most`."""
        count = 1
        while 2 * count <= most and 2 * count * len(request.claims) <= MOST_CLAIMS:
            if asyncio.get_running_loop().time() >= until or not viable_for_all(
                (node,), self._driver.viable(_times(request, 2 * count), (node,))
            ):
                break
            count *= 2
        return count

    async def alternatives(self, question: PodQuestion, asked: Sequence[str]) -> tuple[str, ...]:
        """At most 32 other nodes where all pending claims could be allocated now; the first that are found if the
        driver is asynchronous."""
        request, known = question.request(self._driver), frozenset(asked)
        others = [node for node in in_own_order(question, self._informers) if node not in known]
        slow = self._driver.driver.asynchronous
        size, enough = (MAX_NODES, 1) if slow else (CHUNK, MAX_ALTERNATIVES)
        viable: list[str] = []
        for start in range(0, len(others), size):
            chunk = others[start : start + size]
            viable += viable_for_all(chunk, await self.ask(request, chunk))
            if len(viable) >= enough:
                break
            await asyncio.sleep(0)
        return tuple(islice(viable, MAX_ALTERNATIVES))

    async def _pending(self, question: PodQuestion, *, again: bool) -> dict[str, Answer]:
        answers = dict(await self.ask(question.request(self._driver), question.candidates))
        pending = {entry.name: answers[entry.name] for entry in question.pending}
        if (self._driver.driver.asynchronous and not again) or viable_for_all(question.candidates, pending):
            return pending
        if all(answer.alternatives is not None for answer in pending.values()):
            return pending
        others = await self.alternatives(question, question.candidates)
        return {
            name: answer if answer.alternatives is not None else Answer(answer.viable, others, answer.reasons)
            for name, answer in pending.items()
        }

    def _allocated(self, question: PodQuestion) -> dict[str, Answer]:
        """Answers about the claims that are allocated already: viable are the nodes where they can be used."""
        answers: dict[str, Answer] = {}
        for entry in question.entries:
            if entry.claim.status.allocation is not None:
                asked = question.candidates
                viable = tuple(node for node in asked if available(entry, node, self._informers.node(node)))
                others = (node for node in asked if node not in viable)
                reasons = dict.fromkeys(others, "the claim is allocated elsewhere")
                answers[entry.name] = Answer(viable, None, reasons)
        return answers


def _times(request: Request[Any, Any], count: int) -> Request[Any, Any]:
    """The request with its claims repeated, for `count` pods with equal requests."""
    copies = (
        replace(claim, name=f"{number}/{claim.name}", uid=f"{claim.uid}/{number}")
        for number in range(1, count)
        for claim in request.claims
    )
    return replace(request, claims=(*request.claims, *copies))


def in_own_order(question: PodQuestion, informers: Informers) -> list[str]:
    """The suitable nodes, rotated differently for each pod, so that not all pods are sent to the same nodes."""
    return list(rotated(question.suitable(informers.nodes()), question.uid))


def outlook(question: PodQuestion, answers: Answers) -> Outlook:
    """The outlook of the pod with these answers, as far as this driver is concerned."""
    if viable_for_all(question.candidates, answers):
        return Outlook.VIABLE
    if any(answer.alternatives == () for answer in answers.values()):
        return Outlook.NOWHERE
    return Outlook.ELSEWHERE


def chunks(nodes: Sequence[str]) -> list[Sequence[str]]:
    """The nodes in chunks of at most `MAX_NODES`, as many as a question may have."""
    return [nodes[start : start + MAX_NODES] for start in range(0, len(nodes), MAX_NODES)]
