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
from parley.control.objects.pod import path_of, priority, reference
from parley.control.publishing.events import Recorder
from parley.control.publishing.podscheduling import Publisher, Question, Report
from parley.control.telemetry.metrics import Metrics
from parley.negotiation.rounds import Outcome
from parley.scheduler.attempts import Attempt
from parley.sdk import PodReference

log = structlog.get_logger(__name__)

PodSchedulings = Literal["Always", "WhenWaiting"]
"""Which pods get a PodScheduling: all of them, or only those that had to wait, which saves the others a write."""


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
        self._pod_metrics = (metrics or Metrics()).pods
        self._warned: set[str] = set()
        """UIDs of pods for which the event about claims that no container uses was written."""

    async def reconciling(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Report that the pod is being reconciled, with those of its claims that are Parley's. Returns whether an
        event was written: by then the claims may have changed."""
        if not claims:
            self._pod_metrics.forget(pod.metadata.uid)
        elif not pod.spec.node_name:
            self._pod_metrics.reconciled(pod.metadata.uid)
            return await self._warn_of_unused(pod, claims)
        return False

    async def _warn_of_unused(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Write an event about claims that no container uses. Once for each pod: its spec can't be changed."""
        meta = pod.metadata
        if meta.uid in self._warned or not (entries := unused.unused(pod, claims)):
            return False
        self._warned.add(meta.uid)
        about = ("Pod", "v1", meta.namespace, meta.name, meta.uid)
        await self._recorder.warn(*about, reasons.CLAIM_UNUSED, unused.message(entries))
        return True

    async def waits(self, pod: Pod, attempt: Attempt, code: str, message: str) -> None:
        """Report why the pod waits. A pod that only names claims which do not exist may not be Parley's: it gets
        an event alone, unless it already has a PodScheduling, which would say something else."""
        if attempt.drivers or code != reasons.CLAIM_NOT_FOUND or self._publisher.shows(reference(pod)):
            question = _question(pod, attempt) if attempt.standalone.claims else None
            report = Report(attempt.outcome, attempt.drivers, "", code, message, question)
            self._publisher.enqueue(reference(pod), report)
        await self.warn(pod, code, message)

    async def warn(self, pod: Pod, code: str, message: str) -> None:
        """Write an event alone: something failed and is retried."""
        self._pod_metrics.waits(pod.metadata.uid, code)
        meta = pod.metadata
        await self._recorder.warn("Pod", "v1", meta.namespace, meta.name, meta.uid, code, message)

    async def preempted(self, victim: Pod, pod: Pod, node: str) -> None:
        """Write an event on a pod that was evicted for another one, which is named only in its own namespace."""
        meta, other = victim.metadata, pod.metadata
        who = path_of(pod) if other.namespace == meta.namespace else other.uid
        note = (
            f"Preempted by pod {who} on node {node}: it has a higher priority and gets what this pod's claims held"
        )
        about = ("Pod", "v1", meta.namespace, meta.name, meta.uid)
        await self._recorder.warn(*about, reasons.PREEMPTED, note)

    def asking_drivers(
        self, pod: Pod, attempt: Attempt, code: str, message: str, selected: str = "", *, quiet: bool = False
    ) -> None:
        """Publish the question to standalone drivers, or the selected node on which they allocate, and that the
        pod waits for them. `quiet`: users are not told that it waits."""
        self._pod_metrics.left_line(pod.metadata.uid, code)
        question = _question(pod, attempt)
        shown = ("", "") if quiet else (code, message)
        self._publisher.enqueue(
            reference(pod), Report(attempt.outcome, attempt.drivers, selected, *shown, question)
        )

    async def withdraw(self, pod: Pod) -> bool:
        """Withdraw the question to standalone drivers. Waits until the PodScheduling shows it, and returns whether
        it was written for that. Raises what a client raises."""
        return await self._publisher.close(reference(pod))

    async def flush(self, pod: Pod) -> None:
        """Wait until the PodScheduling shows the latest state. Raises what a client raises."""
        await self._publisher.publish(reference(pod))

    def offered(self, pod: Pod, attempt: Attempt) -> None:
        """Report that the scheduler is choosing among the offered nodes."""
        self._pod_metrics.left_line(pod.metadata.uid, reasons.SCHEDULER_CHOOSES)
        log.debug("offered", pod=path_of(pod), nodes=len(attempt.offered))
        message = f"the scheduler is choosing among {counted(len(attempt.offered), 'viable node')}"
        report = Report(attempt.outcome, attempt.drivers, "", reasons.SCHEDULER_CHOOSES, message)
        self._publisher.enqueue(reference(pod), report)

    def allocated(self, pod: Pod, node: str) -> None:
        """Report that the drivers have allocated on the node; the binding is up to the scheduler."""
        if self._pod_metrics.left_line(pod.metadata.uid, reasons.BINDING):
            log.info("allocated", pod=path_of(pod), node=node)

    def binding_late(self, pod: Pod, attempt: Attempt, selected: str = "") -> None:
        """Report that the scheduler has not bound the pod for a while, which has all its claims. For standalone
        drivers the node stays `selected`; otherwise they would release what they allocated there."""
        question = _question(pod, attempt) if selected else None
        report = Report(attempt.outcome, attempt.drivers, selected, reasons.BINDING, not_bound(pod), question)
        self._publisher.enqueue(reference(pod), report)

    def refused(self, pod: Pod, nodes: Iterable[str]) -> None:
        """Report that the scheduler, or whoever cleared the allocation, refused these nodes for the pod."""
        self._pod_metrics.left_line(pod.metadata.uid)
        log.info("refused", pod=path_of(pod), node=",".join(sorted(nodes)), reason=reasons.SCHEDULER_REFUSED)

    def bound(self, pod: Pod, drivers: dict[str, str], attempt: Attempt | None, *, standalone: bool) -> None:
        """Report that the pod is bound and has all its claims. Without an attempt (after a restart) its rounds are
        not known. `standalone`: standalone drivers were asked about the pod; the question ends."""
        user, node = reference(pod), pod.spec.node_name
        rounds = attempt.outcome.round if attempt is not None else 0
        if (seconds := self._pod_metrics.bound(user.uid, rounds)) is not None:
            log.info("bound", pod=path_of(pod), node=node, rounds=rounds, seconds=round(seconds, 3))
        if self._publisher.pod_bound(user, node):
            self._recorder.forget(user.uid)
            return
        known_before = self._publisher.known(user)
        if (attempt is None and known_before) or (self._only_waiting and not known_before):
            return
        known = attempt is not None and attempt.outcome.candidates
        outcome = attempt.outcome if attempt is not None and known else Outcome(candidates=(node,), viable=(node,))
        question = Question(priority=priority(pod)) if standalone else None
        self._publisher.enqueue(user, Report(outcome, drivers, node, question=question))
        self._recorder.forget(user.uid)

    def ended(self, pod: Pod) -> None:
        """Report that the pod has ended, or is being deleted before it was bound."""
        if pod.spec.node_name:
            self._pod_metrics.bound(pod.metadata.uid, rounds=0)
        else:
            self._pod_metrics.gone(pod.metadata.uid)

    def gone(self, pod: PodReference) -> None:
        """Forget the pod: its object is gone."""
        self._publisher.forget(pod)
        self._recorder.forget(pod.uid)
        self._warned.discard(pod.uid)
        self._pod_metrics.gone(pod.uid)


def not_bound(pod: Pod) -> str:
    """The message for a pod that has all its claims and no node."""
    return f"everything is allocated, and scheduler {pod.spec.scheduler_name} has not bound the pod yet"


def _question(pod: Pod, attempt: Attempt) -> Question:
    return Question(attempt.standalone.claims, priority(pod))
