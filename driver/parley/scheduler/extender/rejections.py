"""Rejected pods: filter's answers about them, and their reconciliation until another answer is possible.

A scheduler tries a pod again at events of any kind. As long as nothing has changed that the answer depends on, it
gets the same bytes. When something has changed, the scheduler may not know: then its pod is changed, which makes
it try the pod again. If its own filters rejected the pod on every node, so that it only asked where it may evict
others, that takes a nomination (`nominate_briefly`). Standalone drivers are asked here, in the background, about
the nodes that the scheduler proposed.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.claims.podclaims import PREEMPTION, PodClaim, Problem
from parley.control.objects.pod import reference
from parley.kube.cache import Key
from parley.kube.client import ApiError, OutcomeUnknown
from parley.kube.queue import Requeue
from parley.negotiation.states import ClaimState
from parley.negotiation.waiting import Topic
from parley.scheduler.claim_preemption import Postponed
from parley.scheduler.extender.filtering import unusable
from parley.scheduler.extender.nodesets import Nodes
from parley.scheduler.extender.posting import Posting
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import Result, Wait
from parley.sdk import PodReference

NUDGE_SECONDS = 0.05
"""How long a scheduler gets to try a pod again by itself after a change."""

UNASKED_SECONDS = 5.0
"""How long a scheduler gets to ask about a pod after a change that it knows of, or to ask a new leader about
it."""

Negotiate = Callable[[Key, Pod, Sequence[PodClaim], Nodes], Awaitable[Result]]
"""Advances the negotiation with standalone drivers about some nodes, and lets them allocate on one."""

NodeForEvictions = Callable[[Pod, Sequence[PodClaim]], str]
"""Finds a node on which the pod's scheduler could evict pods for it and that would be viable then, or ""."""

RejectPreemption = Callable[[Pod], None]
"""Judges again the nodes on which the pod's scheduler could evict pods, and rejects the pod if none is viable."""

MakeRoom = Callable[[Pod, Sequence[PodClaim], "Rejection"], Awaitable[Wait | Postponed | None]]
"""Has pods evicted for a rejected pod, if that is allowed and helps."""


@dataclass(slots=True)
class Rejection:
    """An answer to filter without viable nodes.

    `nodes` are the nodes asked about, `revision` is that of the problem's topics. `must_release`: what the pod
    holds has to be released before another answer is possible. `standalone`: standalone drivers are asked about
    the nodes. `none_viable`: claims could be allocated on none of the nodes, or there is no room. Before `until`
    (event loop's clock) the answer stays the same, and the scheduler is not nudged. From `expires_at` on another
    answer may follow although nothing has changed. `preemption`: the scheduler's own filters left no nodes to ask
    about but those on which it may evict pods. `filtered`: it has called filter since it last called preempt.
    `reported` is the problem last reported to the pod's user; `nudged` is the topics' revision at the last nudge.
    """

    nodes: Nodes
    answer: bytes
    problem: Problem
    revision: tuple[int, ...]
    must_release: bool = False
    standalone: bool = False
    none_viable: bool = False
    line: Hashable = None
    until: float = 0.0
    expires_at: float | None = None
    preemption: bool = False
    filtered: bool = True
    reported: Problem | None = None
    outdated_at: float | None = None
    nudged: tuple[int, ...] | None = None

    def still_holds(self, nodes: Nodes, pods: Pods) -> bool:
        """Whether a call about these nodes gets the same answer."""
        if now() < self.until:
            return self.nodes == nodes
        if self.problem.transient or self.nudged is not None:
            return False
        return self.nodes == nodes and self.revision == pods.revision(self.problem.topics)

    @property
    def is_transient(self) -> bool:
        """Whether the rejection is known to end by itself."""
        return self.problem.transient or bool(self.until)

    def renew(self, problem: Problem, pods: Pods) -> None:
        """Note that the nodes were judged again, with the same result; the problem has its present message."""
        self.problem = replace(problem, topics=self.problem.topics)
        self.revision = pods.revision(self.problem.topics)
        self.outdated_at = None

    def skip_report(self) -> None:
        """Leave the problem unreported: another answer follows."""
        self.reported = self.problem

    def outdated_since(self) -> float:
        """The time since which the answer is known to be outdated: now, if it was not known before."""
        if self.outdated_at is None:
            self.outdated_at = now()
        return self.outdated_at

    def seconds_to_nudge(self, pods: Pods, *, clear: bool) -> float | None:
        """In how many seconds to nudge the scheduler to try the pod again; None if not at all, or if it was
        nudged.

        `clear`: none of the pod's claims is just changing any more, which ends a transient problem without topics.
        Any other problem has topics, and results in another answer.
        """
        revision = pods.revision(self.problem.topics)
        ended = clear and self.is_transient and not self.problem.topics
        left = self.expires_at - now() if self.expires_at is not None else None
        if revision == self.nudged:
            return None
        if revision == self.revision and not ended and (left is None or left > 0):
            return left
        return max(self.outdated_since() + NUDGE_SECONDS - now(), self.until - now(), 0.0)


class Rejections:
    """The latest rejection of each pod. `release` releases what an unbound pod holds, `make_room` has pods evicted
    for it."""

    def __init__(
        self,
        pods: Pods,
        posting: Posting,
        release: Callable[[PodReference], Awaitable[None]],
        negotiate: Negotiate,
        make_room: MakeRoom,
        node_for_evictions: NodeForEvictions,
        reject_preemption: RejectPreemption,
    ) -> None:
        self._pods = pods
        self._posting = posting
        self._release = release
        self._negotiate = negotiate
        self._make_room = make_room
        self._node_for_evictions = node_for_evictions
        self._reject_preemption = reject_preemption
        self._rejected: dict[PodReference, Rejection] = {}
        self._expected: dict[PodReference, float] = {}

    def __len__(self) -> int:
        return len(self._rejected)

    def expect_call(self, pod: Pod) -> None:
        """Expect a call about a pod that a former leader may have rejected: the scheduler may have missed a
        change."""
        self._expected[reference(pod)] = now() + UNASKED_SECONDS

    def filter_called(self, user: PodReference) -> Rejection | None:
        """Note that the scheduler has called filter for the pod. Returns the latest rejection, if there is one."""
        self._expected.pop(user, None)
        rejection = self._rejected.get(user)
        if rejection is not None:
            rejection.filtered = True
        return rejection

    def preempt_called(self, user: PodReference) -> bool:
        """Note that the scheduler, which found no node for the pod, asks where it may evict others. Returns
        whether its own filters let nodes pass in this attempt, about which it called filter."""
        rejection = self._rejected.get(user)
        if rejection is None:
            return False
        filtered, rejection.filtered = rejection.filtered, False
        return filtered

    def outdated(self, user: PodReference) -> Nodes:
        """The nodes that filter rejected in the scheduler's present attempt, if the answer may differ by now."""
        rejection = self._rejected.get(user)
        if rejection is None or not rejection.filtered or rejection.problem.code == reasons.PREEMPTING:
            return frozenset()
        return frozenset() if rejection.still_holds(rejection.nodes, self._pods) else rejection.nodes

    def require_release(self, pod: Pod) -> None:
        """Have the pod's claims released, as its scheduler can't evict pods on the node where they are
        allocated."""
        rejection = self._rejected.get(reference(pod))
        if rejection is not None and rejection.problem.code == reasons.PREEMPTING:
            rejection.must_release = True
            self._pods.requeue((pod.metadata.namespace, pod.metadata.name))

    def mark_preemption(self, user: PodReference) -> None:
        """Note that the latest rejection is about nodes where pods would be evicted: before that, the scheduler's
        own filters rejected all nodes."""
        rejection = self._rejected[user]
        rejection.preemption, rejection.filtered = True, False

    def expected_calls_in(self, namespace: str) -> Iterator[Key]:
        """The namespace's pods that existed before this process led, and about which calls are still expected."""
        expected = ((user, due) for user, due in self._expected.items() if user.namespace == namespace)
        return ((user.namespace, user.name) for user, due in expected if due > now())

    def is_rejected(self, user: PodReference) -> bool:
        """Whether the pod was rejected, and has not passed filter since."""
        return user in self._rejected

    def add(self, pod: Pod, rejection: Rejection) -> None:
        """Keep the rejection, and enqueue the pod so that it is reported."""
        self._rejected[reference(pod)] = rejection
        self._pods.requeue((pod.metadata.namespace, pod.metadata.name))

    def call_expected_until(self, pod: Pod, topics: Set[Topic]) -> float | None:
        """Until when a filter call about the pod is expected, because topics that it waits for have changed since
        the last one, or because a new leader was not asked yet. None if no call is expected."""
        due = self._expected.get(reference(pod))
        rejection = self._rejected.get(reference(pod))
        if rejection is not None and not topics.isdisjoint(rejection.problem.topics):
            if rejection.revision != self._pods.revision(rejection.problem.topics):
                rejection.outdated_since()
            if rejection.outdated_at is not None:
                due = rejection.outdated_at + UNASKED_SECONDS
        return due if due is not None and due > now() else None

    def drop(self, user: PodReference) -> None:
        """Forget the pod's rejection: it passed filter, was bound, or is gone."""
        self._rejected.pop(user, None)
        self._expected.pop(user, None)

    async def reconcile(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Reconcile the unbound pod. Raises Busy if it has to be reconciled again."""
        rejection = self._rejected.get(reference(pod))
        release = unusable(pod, claims) or (rejection is not None and rejection.must_release)
        if release:
            await self._release(reference(pod))
            if rejection is not None:
                rejection.must_release = False
        if rejection is None:
            return await self._nudge_if_uncalled(pod, claims)
        if rejection.standalone:
            return await self._ask_standalone(key, pod, claims, rejection)
        try:
            room = await self._make_room(pod, claims, rejection) if not release else None
        except (ApiError, OutcomeUnknown):
            self._keep_place(key, rejection)  # the queue retries after a pause, or when something changes
            raise
        if isinstance(room, Wait):
            rejection.reported = None
            return room
        if self._rejected.get(reference(pod)) is not rejection:
            return None  # the scheduler has called filter meanwhile, which has enqueued the pod again
        self._keep_place(key, rejection)
        complete = not any(claim.problem and claim.problem.transient for claim in claims)
        if complete or PREEMPTION not in rejection.problem.topics:
            await self._report(pod, rejection, _with_room(rejection.problem, room))
        clear = complete and not rejection.must_release
        nudge = await self._nudge(pod, claims, rejection, clear=clear)
        after = (nudge, self._leave_shared_line(key, pod, rejection), room.after if room is not None else None)
        soonest = min((seconds for seconds in after if seconds is not None), default=None)
        if not complete and rejection.is_transient and not rejection.problem.topics:
            return _wait_for_claims(pod, claims, soonest)
        return Requeue(soonest) if soonest is not None else None

    def _keep_place(self, key: Key, rejection: Rejection) -> None:
        """Keep the pod in its line; put it back if an event of an earlier pod of that name has taken it out."""
        if rejection.problem.topics:
            self._pods.keep_place(key, rejection.line, rejection.problem.topics)

    async def _nudge_if_uncalled(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        user = reference(pod)
        if (due := self._expected.get(user)) is None:
            return None
        if (left := due - now()) > 0:
            return Requeue(left)
        node = self._node_for_evictions(pod, claims)
        await self._wake(pod, node)
        waits = self._expected.pop(user, None) is not None and not self.is_rejected(user)
        if waits and not node:
            self._reject_preemption(pod)  # no call comes if the scheduler's own filters rejected it everywhere
        return None

    async def _ask_standalone(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection
    ) -> Result:
        problems = [claim.problem for claim in claims if claim.problem is not None]
        if any(problem.transient for problem in problems):
            # Another call would get the same answer: claims are judged before they are generated.
            return _wait_for_claims(pod, claims)
        if not problems and any(c.standalone and c.state(pod) is ClaimState.PENDING for c in claims):
            return await self._negotiate(key, pod, claims, rejection.nodes)
        if rejection.nudged is not None:
            return None
        left = await self._nudge_now(pod, claims, rejection, rejection.revision)
        return Requeue(left) if left is not None else None

    async def _report(self, pod: Pod, rejection: Rejection, problem: Problem) -> None:
        if rejection.reported != problem and not problem.transient:
            rejection.reported = problem
            attempt = self._pods.attempt(pod)
            await self._pods.reporter.waits(pod, attempt, problem.code, problem.message)

    async def _nudge(
        self, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection, *, clear: bool
    ) -> float | None:
        """Make the scheduler try the pod again, if it is time; otherwise, return in how many seconds it is."""
        seconds = rejection.seconds_to_nudge(self._pods, clear=clear)
        if seconds is None or seconds > 0:
            return seconds
        return await self._nudge_now(pod, claims, rejection, self._pods.revision(rejection.problem.topics))

    def _leave_shared_line(self, key: Key, pod: Pod, rejection: Rejection) -> float | None:
        """Move the pod to a line of its own if no call has followed a nudge, because the scheduler itself finds no
        node: the change then wakes the next pod of the line. Returns in how many seconds to do it, if not now."""
        if rejection.nudged is None or rejection.outdated_at is None:
            return None
        if (left := rejection.outdated_at + UNASKED_SECONDS - now()) > 0:
            return left
        self._pods.line_up(key, pod.metadata.uid, rejection.problem.topics)
        return None

    async def _nudge_now(
        self, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection, revision: tuple[int, ...]
    ) -> float | None:
        """Make the scheduler try the pod again, or return in how many seconds: it has nominated the pod, which a
        brief nomination would end, and tries it by itself. A write that fails is retried at the next
        reconciliation."""
        if rejection.preemption and (left := self._seconds_nominated(pod)):
            return left
        node = self._node_for_evictions(pod, claims) if rejection.preemption else ""
        if rejection.preemption and not node:
            rejection.nudged = revision
            self._reject_preemption(pod)
            return None
        before, rejection.nudged = rejection.nudged, revision
        try:
            await self._wake(pod, node)
        except BaseException:
            rejection.nudged = before
            raise
        return None

    def _seconds_nominated(self, pod: Pod) -> float:
        """For how many seconds the scheduler that has nominated the pod may take to try it again; 0 if it has
        not."""
        if not self._posting.nominated_by_scheduler(pod):
            return 0.0
        return self._pods.attempt(pod).nominated_seconds_left(pod, now())

    async def _wake(self, pod: Pod, node: str) -> None:
        if node:
            await self._posting.nominate_briefly(pod, node)
        else:
            await self._posting.touch(reference(pod))


def _wait_for_claims(pod: Pod, claims: Sequence[PodClaim], after: float | None = None) -> Result:
    """The result for a pod some of whose claims are just changing: it waits until they have. A change of a claim
    without topics, which is a generated one, is a change of the pod."""
    passing = [claim.problem for claim in claims if claim.problem is not None and claim.problem.transient]
    if topics := [topic for problem in passing for topic in problem.topics]:
        return Wait(pod.metadata.uid, topics, after=after)
    return Requeue(after) if after is not None else None


def _with_room(problem: Problem, room: Postponed | None) -> Problem:
    """The problem with what its user has to know about postponed evictions."""
    if room is None or not room.message:
        return problem
    return replace(problem, code=room.code or problem.code, message=f"{problem.message}. {room.message}")
