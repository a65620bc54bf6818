"""Asks the driver which nodes are viable for a pod's claims. Writes nothing.

A driver that answers from memory and knows no alternatives is asked about all other nodes as well, when none of
the candidates is viable: it costs microseconds a node, and one good node among thousands is found in the next
round.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from parley.kube.cache import Key
from parley.negotiation.answers import Answer, Answers, viable_for_all
from parley.negotiation.selection import spread
from parley.sdk.checks import ANSWER_SECONDS, MAX_ALTERNATIVES, MAX_NODES, DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.standalone.expected import ExpectedPods
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.questions import PodQuestion, available
from parley.sdk.standalone.waiting import Outlook
from parley.sdk.together import MOST_CLAIMS
from parley.sdk.values import Request

CAPACITY_NODES = 16
CAPACITY_PODS = 16
"""On so many nodes it is counted for how many pods there is enough, up to so many on each: an answer stays small,
and a burst of a thousand pods needs a few of them."""

SHARED_PODS = 32
"""The same where nodes may share what the driver has."""

CAPACITY_SECONDS = 0.02
"""So long it may be counted, by the event loop's clock: some drivers compare many combinations."""

CHUNK = 256
"""So many nodes a driver in memory is asked about before others get their turn."""


class Evaluator:
    """Asks one driver. `holds` tells whether the claim of that UID holds something."""

    def __init__(self, driver: EmbeddedDriver, informers: Informers, holds: Callable[[str], bool]) -> None:
        self._driver = driver
        self._informers = informers
        self._expected = ExpectedPods(driver, holds)

    def forget(self, key: Key) -> None:
        """The pod has what it asked for, or is gone."""
        self._expected.forget(key)

    async def answers(self, question: PodQuestion) -> Answers:
        """For all claims of the question. Raises BadParameters, DriverFault, and what the driver raises."""
        found = self._allocated(question)
        if question.pending:
            found.update(await self._pending(question))
        return found

    async def ask(self, request: Request[Any, Any], nodes: Sequence[str]) -> Answers:
        """Checked answers about these nodes."""
        driver = self._driver.driver
        if not driver.asynchronous:
            return self._driver.viable(request, nodes)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._driver.consider(request, nodes)
        except TimeoutError as error:
            raise DriverFault(f"driver {driver.name} did not answer within {ANSWER_SECONDS:g} s") from error

    def scores(self, question: PodQuestion, answers: Answers) -> Mapping[str, float]:
        """The driver's preferences among the nodes that are viable for all claims."""
        key = (question.pod.namespace, question.pod.name)
        self._expected.forget(key)
        viable = viable_for_all(question.candidates, answers)
        if not viable or not question.pending or not self._driver.has_preferences:
            return {}
        request = question.request(self._driver)
        if self._driver.tells_room and not self._driver.driver.asynchronous:
            return self._expected.scores(key, request, viable)
        return self._driver.score(request, viable)

    def capacity(self, question: PodQuestion, answers: Answers, scores: Mapping[str, float]) -> Mapping[str, int]:
        """For how many pods like this one there is enough on the best of the viable nodes together, if that is
        known without asking anybody. One on each if the pods are to be spread. If nodes may share it, they are no
        more than the best one has enough for."""
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
        """How many of these requests could be allocated on the node, which is viable for one: at least so many."""
        count = 1
        while 2 * count <= most and 2 * count * len(request.claims) <= MOST_CLAIMS:
            if asyncio.get_running_loop().time() >= until or not viable_for_all(
                (node,), self._driver.viable(_times(request, 2 * count), (node,))
            ):
                break
            count *= 2
        return count

    async def alternatives(self, question: PodQuestion, asked: Sequence[str]) -> tuple[str, ...]:
        """At most 32 other nodes where all pending claims could be allocated now."""
        request, known = question.request(self._driver), frozenset(asked)
        others = [node for node in in_own_order(question, self._informers) if node not in known]
        found: list[str] = []
        for start in range(0, len(others), CHUNK):
            chunk = others[start : start + CHUNK]
            found += viable_for_all(chunk, self._driver.viable(request, chunk))
            if len(found) >= MAX_ALTERNATIVES:
                break
            await asyncio.sleep(0)
        return tuple(islice(found, MAX_ALTERNATIVES))

    async def _pending(self, question: PodQuestion) -> dict[str, Answer]:
        answers = dict(await self.ask(question.request(self._driver), question.candidates))
        pending = {entry.name: answers[entry.name] for entry in question.pending}
        if self._driver.driver.asynchronous or viable_for_all(question.candidates, pending):
            return pending
        if all(answer.alternatives is not None for answer in pending.values()):
            return pending
        others = await self.alternatives(question, question.candidates)
        return {
            name: answer if answer.alternatives is not None else Answer(answer.viable, others, answer.reasons)
            for name, answer in pending.items()
        }

    def _allocated(self, question: PodQuestion) -> dict[str, Answer]:
        """Claims that are allocated already can be used where they are."""
        found: dict[str, Answer] = {}
        for entry in question.entries:
            if entry.claim.status.allocation is not None:
                nodes = question.candidates
                viable = tuple(node for node in nodes if available(entry, node, self._informers.node(node)))
                others = [node for node in nodes if node not in viable]
                found[entry.name] = Answer(viable, None, dict.fromkeys(others, "the claim is allocated elsewhere"))
        return found


def _times(request: Request[Any, Any], count: int) -> Request[Any, Any]:
    """The claims of so many pods that all ask for the same."""
    copies = (
        replace(claim, name=f"{number}/{claim.name}", uid=f"{claim.uid}/{number}")
        for number in range(1, count)
        for claim in request.claims
    )
    return replace(request, claims=(*request.claims, *copies))


def in_own_order(question: PodQuestion, informers: Informers) -> list[str]:
    """The suitable nodes, from a place that differs from pod to pod, so that not all are sent to the same ones."""
    return list(spread(question.suitable(informers.nodes()), question.uid))


def outlook(question: PodQuestion, answers: Answers) -> Outlook:
    """What the answers come to for the pod, as far as this driver is concerned."""
    if viable_for_all(question.candidates, answers):
        return Outlook.VIABLE
    if any(answer.alternatives == () for answer in answers.values()):
        return Outlook.NOWHERE
    return Outlook.ELSEWHERE


def chunks(nodes: Sequence[str]) -> list[Sequence[str]]:
    """As many nodes at a time as a question may have."""
    return [nodes[start : start + MAX_NODES] for start in range(0, len(nodes), MAX_NODES)]
