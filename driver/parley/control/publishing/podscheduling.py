"""Writes PodSchedulings: how a pod's negotiation went, in one object that lives as long as the pod.

If standalone drivers are asked, this object is the question, and they write their answers into it.

Publishing is apart from deciding: nothing waits for it. The latest state of each pod is written once; while a
write is under way, newer states replace each other. In the normal case that is a single create per pod.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from msgspec import to_builtins

from parley.api.names import API_VERSION, DRIVERS_LABEL, FIELD_MANAGER, STANDALONE
from parley.api.resources import POD_SCHEDULINGS
from parley.kube.backoff import Backoff
from parley.kube.client import AlreadyExists, Client, NotFound
from parley.kube.queue import WorkQueue
from parley.negotiation.rounds import MAX_CANDIDATES, Outcome
from parley.sdk import PodReference

_REASON_LIMIT = 4096

REWRITES = Backoff(first=0.2, longest=60)
"""Of a PodScheduling that keeps being deleted."""


@dataclass(frozen=True, slots=True)
class StandaloneClaim:
    """A claim that a standalone driver has to allocate: the pod's entry, and the Parley claim."""

    entry: str
    driver: str
    claim: str


@dataclass(frozen=True, slots=True)
class Question:
    """What standalone drivers are asked: about these claims, if there are any still, of a pod of that priority."""

    claims: tuple[StandaloneClaim, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Where a pod's negotiation stands. `drivers` has the driver's name by claim entry; without `question` no
    standalone driver was ever asked about the pod."""

    outcome: Outcome
    drivers: Mapping[str, str]
    selected: str = ""
    waiting_for: str = ""
    message: str = ""
    question: Question | None = None


_FINAL = Report(Outcome(), {})
"""Stands for what was written for a bound pod: it will not change any more, so it need not be remembered."""

_ASKED = Report(Outcome(), {}, "a node", question=Question((StandaloneClaim("", "", ""),)))
"""The same, where standalone drivers are asked still to allocate on a node. They have done so."""


def body(pod: PodReference, report: Report) -> dict[str, Any]:
    """The complete object."""
    outcome, question = report.outcome, report.question
    standalone = {claim.entry for claim in question.claims} if question is not None else set()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "ownerReferences": [owner]}
    spec: dict[str, Any] = {
        "candidateNodes": list(outcome.candidates[:MAX_CANDIDATES]),
        "round": outcome.round,
        "selectedNode": report.selected,
    }
    if question is not None:
        metadata["labels"] = {DRIVERS_LABEL: STANDALONE}
        spec["priority"] = question.priority
        spec["claims"] = [
            {"name": claim.entry, "driverName": claim.driver, "resourceClaimName": claim.claim}
            for claim in question.claims
        ]
    answered = [(name, driver) for name, driver in report.drivers.items() if name not in standalone]
    return {
        "apiVersion": API_VERSION,
        "kind": "PodScheduling",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "claims": [_claim(name, driver, outcome) for name, driver in answered],
            "candidates": len(outcome.candidates),
            "viable": len(outcome.viable),
            "waitingFor": report.waiting_for,
            "message": report.message[:_REASON_LIMIT],
        },
    }


def _claim(name: str, driver: str, outcome: Outcome) -> dict[str, Any]:
    claim: dict[str, Any] = {"name": name, "driverName": driver, "round": outcome.round}
    answer = outcome.answers.get(name)
    if answer is None:
        return claim
    claim["viableNodes"] = list(answer.viable)
    claim["reason"] = "; ".join(f"{node}: {why}" for node, why in answer.reasons.items())[:_REASON_LIMIT]
    if answer.alternatives is not None:
        claim["alternatives"] = (
            {"nodes": list(answer.alternatives)}
            if isinstance(answer.alternatives, tuple)
            else {"nodeSelector": to_builtins(answer.alternatives)}
        )
    return claim


class Publisher:
    """Keeps the PodSchedulings of the pods up to date. Run `publish` by a few workers of `queue`."""

    def __init__(self, client: Client, queue: WorkQueue[PodReference]) -> None:
        self._client = client
        self._queue = queue
        self._locks: WeakValueDictionary[PodReference, asyncio.Lock] = WeakValueDictionary()
        self._wanted: dict[PodReference, Report] = {}
        self._written: dict[PodReference, Report] = {}
        self._losses: dict[PodReference, int] = {}

    def want(self, pod: PodReference, report: Report) -> None:
        """This is the pod's state now."""
        if self._written.get(pod) == report:
            return
        self._wanted[pod] = report
        if losses := self._losses.get(pod):
            self._queue.add_after(pod, REWRITES.delay(losses))
        else:
            self._queue.add(pod)

    def known(self, pod: PodReference) -> bool:
        """Whether something was written for the pod, or is about to be."""
        return pod in self._written or pod in self._wanted

    def exists(self, pod: PodReference, *, asked: bool) -> None:
        """A PodScheduling of an earlier run is there, and asks standalone drivers, or does not."""
        self._written[pod] = _ASKED if asked else _FINAL

    def bound(self, pod: PodReference, node: str) -> bool:
        """The pod is bound to the node: whether its PodScheduling shows so, and need not be written again."""
        written = self._written.get(pod)
        if written is None or pod in self._wanted or written.waiting_for or written.selected != node:
            return False
        self._written[pod] = _ASKED
        return True

    def lost(self, pod: PodReference) -> None:
        """The pod's PodScheduling was deleted: it is written again with the next change, at growing intervals.

        That of a pod that is gone, which is not seen yet, is deleted as fast as it is written.
        """
        if self._written.pop(pod, None) is not None:
            self._losses[pod] = self._losses.get(pod, 0) + 1

    def forget(self, pod: PodReference) -> None:
        """The pod is gone; its PodScheduling goes with it."""
        self._wanted.pop(pod, None)
        self._written.pop(pod, None)
        self._losses.pop(pod, None)

    async def publish(self, pod: PodReference) -> None:
        """Write the pod's latest state, if it is not written yet."""
        async with self._locks.setdefault(pod, asyncio.Lock()):
            report = self._wanted.pop(pod, None)
            if report is None:
                return
            try:
                await self._write(pod, report, first=pod not in self._written)
            except BaseException:
                self._wanted.setdefault(pod, report)
                raise
            asks = report.question is not None and report.question.claims
            self._written[pod] = report if report.waiting_for or asks else _FINAL

    async def close(self, pod: PodReference) -> None:
        """Return when the API asks no standalone driver to allocate for the pod any more.

        Ahead of asking one to take back: it would allocate again at once what is still selected.
        """
        await self.publish(pod)
        written = self._written.get(pod)
        if written is not None and not (written.question and written.question.claims and written.selected):
            return
        async with self._locks.setdefault(pod, asyncio.Lock()):
            try:
                await self._client.patch(
                    POD_SCHEDULINGS,
                    pod.name,
                    {"spec": {"claims": [], "selectedNode": ""}},
                    pod.namespace,
                    field_manager=FIELD_MANAGER,
                )
            except NotFound:
                pass  # nothing is asked then
            self._written.pop(pod, None)

    async def _write(self, pod: PodReference, report: Report, *, first: bool) -> None:
        wanted = body(pod, report)
        if report.question is not None:
            await self._apply(pod, wanted)
            return
        try:
            if first:
                try:
                    await self._client.create(POD_SCHEDULINGS, wanted, pod.namespace, field_manager=FIELD_MANAGER)
                    return
                except AlreadyExists:
                    pass  # written by an earlier run of the controller
            await self._client.patch(
                POD_SCHEDULINGS,
                pod.name,
                wanted,
                pod.namespace,
                field_manager=FIELD_MANAGER,
            )
        except NotFound:
            pass  # the namespace or the object is going, and the pod with it

    async def _apply(self, pod: PodReference, wanted: dict[str, Any]) -> None:
        """Beside the standalone drivers, who own their entries: whatever is missing is theirs."""
        await self._client.apply(
            POD_SCHEDULINGS, pod.name, wanted, pod.namespace, field_manager=FIELD_MANAGER, force=True
        )
