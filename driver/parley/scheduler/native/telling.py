"""What users are told about a pod: its PodScheduling, and events while something needs attention."""

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.cluster import reference
from parley.control.events import Recorder
from parley.control.podscheduling import Publisher, Report
from parley.negotiation.rounds import Outcome
from parley.scheduler.native.attempts import Attempt
from parley.sdk import PodReference


class Telling:
    """Publishes the state of pods. PodSchedulings are written in the background, events at once."""

    def __init__(self, publisher: Publisher, recorder: Recorder) -> None:
        self._publisher = publisher
        self._recorder = recorder

    async def waits(self, pod: Pod, attempt: Attempt, code: str, message: str) -> None:
        """The pod waits. One that only names claims which do not exist may not be ours: an event will do."""
        if attempt.drivers or code != reasons.CLAIM_NOT_FOUND:
            report = Report(attempt.outcome, attempt.drivers, "", code, message)
            self._publisher.want(reference(pod), report)
        await self.warn(pod, code, message)

    async def warn(self, pod: Pod, code: str, message: str) -> None:
        """An event alone: something failed and is tried again."""
        meta = pod.metadata
        await self._recorder.warn("Pod", "v1", meta.namespace, meta.name, meta.uid, code, message)

    def chooses(self, pod: Pod, attempt: Attempt) -> None:
        """The scheduler is choosing among the nodes offered."""
        message = f"the scheduler is choosing among {len(attempt.offered)} viable nodes"
        report = Report(attempt.outcome, attempt.drivers, "", reasons.SCHEDULER_CHOOSES, message)
        self._publisher.want(reference(pod), report)

    def bound(self, pod: Pod, drivers: dict[str, str], attempt: Attempt | None) -> None:
        """The pod is bound and has everything. Without an attempt (after a restart) the rounds are not known."""
        user, node = reference(pod), pod.spec.node_name
        if attempt is None and self._publisher.known(user):
            return
        known = attempt is not None and attempt.outcome.candidates
        outcome = attempt.outcome if attempt is not None and known else Outcome(candidates=(node,), viable=(node,))
        self._publisher.want(user, Report(outcome, drivers, node))
        self._recorder.forget(user.uid)

    def gone(self, pod: PodReference) -> None:
        """Nothing more is told about the pod."""
        self._publisher.forget(pod)
        self._recorder.forget(pod.uid)
