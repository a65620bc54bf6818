"""Reports on a pod: its PodScheduling, events while something needs attention, metrics, and one line in the log
for each phase."""

from collections.abc import Iterable, Sequence
from typing import Literal

import structlog

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.wording import counted
from parley.control.claims import unused
from parley.control.claims.podclaims import PodClaim
from parley.control.objects.pod import priority, reference
from parley.control.publishing.events import Recorder
from parley.control.publishing.podscheduling import Publisher, Question, Report
from parley.control.telemetry.metrics import Metrics
from parley.negotiation.rounds import Outcome
from parley.scheduler.attempts import Attempt
from parley.sdk import PodReference

log = structlog.get_logger(__name__)

PodSchedulings = Literal["Always", "WhenWaiting"]
"""Whether each pod gets a PodScheduling, or only one that had to wait: an API write less for the others."""


class PodReporter:
    """Publishes the state of pods. PodSchedulings are written in the background, events at once."""

    def __init__(
        self,
        publisher: Publisher,
        recorder: Recorder,
        metrics: Metrics | None = None,
        pod_schedulings: PodSchedulings = "Always",
    ) -> None:
        self._publisher = publisher
        self._only_waiting = pod_schedulings == "WhenWaiting"
        self._recorder = recorder
        self._figures = (metrics or Metrics()).pods
        self._warned: set[str] = set()
        """UIDs of pods that have had an event about claims that no container uses."""

    async def looked_at(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """The pod is reconciled; `claims` are those of ours that it names. Returns whether an event was written:
        by then the claims may have changed."""
        if not claims:
            self._figures.forget(pod.metadata.uid)
        elif not pod.spec.node_name:
            self._figures.looked_at(pod.metadata.uid)
            return await self._warn_of_unused(pod, claims)
        return False

    async def _warn_of_unused(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """An event, once for a pod: it can't be changed any more."""
        meta = pod.metadata
        if meta.uid in self._warned or not (entries := unused.unused(pod, claims)):
            return False
        self._warned.add(meta.uid)
        about = ("Pod", "v1", meta.namespace, meta.name, meta.uid)
        await self._recorder.warn(*about, reasons.CLAIM_UNUSED, unused.message(entries))
        return True

    async def waits(self, pod: Pod, attempt: Attempt, code: str, message: str) -> None:
        """The pod waits. One that only names claims which do not exist may not be ours: an event will do, unless
        it has a PodScheduling already, which says something else."""
        if attempt.drivers or code != reasons.CLAIM_NOT_FOUND or self._publisher.shows(reference(pod)):
            question = _question(pod, attempt) if attempt.standalone.claims else None
            report = Report(attempt.outcome, attempt.drivers, "", code, message, question)
            self._publisher.want(reference(pod), report)
        await self.warn(pod, code, message)

    async def warn(self, pod: Pod, code: str, message: str) -> None:
        """An event alone: something failed and is tried again."""
        self._figures.waits(pod.metadata.uid, code)
        meta = pod.metadata
        await self._recorder.warn("Pod", "v1", meta.namespace, meta.name, meta.uid, code, message)

    async def preempted(self, victim: Pod, pod: Pod, node: str) -> None:
        """An event on a pod that was evicted for another one, which is named in its own namespace alone."""
        meta, other = victim.metadata, pod.metadata
        who = _name(pod) if other.namespace == meta.namespace else other.uid
        note = (
            f"Preempted by pod {who} on node {node}: it has a higher priority and gets what this pod's claims held"
        )
        about = ("Pod", "v1", meta.namespace, meta.name, meta.uid)
        await self._recorder.warn(*about, reasons.PREEMPTED, note)

    def asks(
        self, pod: Pod, attempt: Attempt, code: str, message: str, selected: str = "", *, quiet: bool = False
    ) -> None:
        """Standalone drivers are asked, or allocate on the selected node: they read it in the PodScheduling, and
        users that the pod waits for it, unless that is to be `quiet`."""
        self._figures.goes_on(pod.metadata.uid, code)
        question = _question(pod, attempt)
        shown = ("", "") if quiet else (code, message)
        self._publisher.want(reference(pod), Report(attempt.outcome, attempt.drivers, selected, *shown, question))

    async def withdrawn(self, pod: Pod) -> bool:
        """Standalone drivers are not asked any more: return when the PodScheduling shows that they are not to
        allocate, and whether it was written for that. Raises what a client raises."""
        return await self._publisher.close(reference(pod))

    async def written(self, pod: Pod) -> None:
        """Return when the PodScheduling shows the latest state. Raises what a client raises."""
        await self._publisher.publish(reference(pod))

    def chooses(self, pod: Pod, attempt: Attempt) -> None:
        """The scheduler is choosing among the nodes offered."""
        self._figures.goes_on(pod.metadata.uid, reasons.SCHEDULER_CHOOSES)
        log.debug("offered", pod=_name(pod), nodes=len(attempt.offered))
        message = f"the scheduler is choosing among {counted(len(attempt.offered), 'viable node')}"
        report = Report(attempt.outcome, attempt.drivers, "", reasons.SCHEDULER_CHOOSES, message)
        self._publisher.want(reference(pod), report)

    def allocated(self, pod: Pod, node: str) -> None:
        """The drivers allocated on the node; the binding is up to the scheduler."""
        if self._figures.goes_on(pod.metadata.uid, reasons.BINDING):
            log.info("allocated", pod=_name(pod), node=node)

    def unbound(self, pod: Pod, attempt: Attempt, selected: str = "") -> None:
        """The pod has all its claims, and its scheduler has not bound it for a while. Standalone drivers, if there
        are any, go on reading that the node is `selected`, or they would take back what they allocated there."""
        question = _question(pod, attempt) if selected else None
        report = Report(attempt.outcome, attempt.drivers, selected, reasons.BINDING, not_bound(pod), question)
        self._publisher.want(reference(pod), report)

    def refused(self, pod: Pod, nodes: Iterable[str]) -> None:
        """The scheduler, or whoever cleared the allocation, does not want the pod on these nodes."""
        self._figures.goes_on(pod.metadata.uid)
        log.info("refused", pod=_name(pod), node=",".join(sorted(nodes)), reason=reasons.SCHEDULER_REFUSED)

    def bound(self, pod: Pod, drivers: dict[str, str], attempt: Attempt | None, *, standalone: bool) -> None:
        """The pod is bound and has everything. Without an attempt (after a restart) the rounds are not known.

        `standalone`: standalone drivers were asked about it; they are no more.
        """
        user, node = reference(pod), pod.spec.node_name
        rounds = attempt.outcome.round if attempt is not None else 0
        if (seconds := self._figures.bound(user.uid, rounds)) is not None:
            log.info("bound", pod=_name(pod), node=node, rounds=rounds, seconds=round(seconds, 3))
        if self._publisher.bound(user, node):
            self._recorder.forget(user.uid)
            return
        known_before = self._publisher.known(user)
        if (attempt is None and known_before) or (self._only_waiting and not known_before):
            return
        known = attempt is not None and attempt.outcome.candidates
        outcome = attempt.outcome if attempt is not None and known else Outcome(candidates=(node,), viable=(node,))
        question = Question(priority=priority(pod)) if standalone else None
        self._publisher.want(user, Report(outcome, drivers, node, question=question))
        self._recorder.forget(user.uid)

    def ended(self, pod: Pod) -> None:
        """The pod has ended, or is being deleted before it was bound."""
        if pod.spec.node_name:
            self._figures.bound(pod.metadata.uid, rounds=0)
        else:
            self._figures.gone(pod.metadata.uid)

    def gone(self, pod: PodReference) -> None:
        """Nothing more is reported about the pod."""
        self._publisher.forget(pod)
        self._recorder.forget(pod.uid)
        self._warned.discard(pod.uid)
        self._figures.gone(pod.uid)


def not_bound(pod: Pod) -> str:
    """What is said of a pod that has all its claims and no node."""
    return f"everything is allocated, and scheduler {pod.spec.scheduler_name} has not bound the pod yet"


def _question(pod: Pod, attempt: Attempt) -> Question:
    return Question(attempt.standalone.claims, priority(pod))


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
