"""Rejected pods: what filter answered about them, and what is done about it afterwards.

A scheduler asks again at every event of any kind. As long as nothing has changed that was decided on, the answer
is the same bytes. When something has, the scheduler may not know: then its pod is changed, which makes it ask. If
its own filters rejected the pod everywhere, so that it asked only where it may evict others, a nomination is
needed for that (`nominate_briefly`).
Standalone drivers are asked here, in the background, about the nodes that the scheduler proposed.
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
"""So long a scheduler gets to ask again by itself after a change."""

UNASKED_SECONDS = 5.0
"""So long a scheduler gets to ask about a pod after a change that it has learnt of, or a new leader about one that
the leader before may have refused."""

Negotiate = Callable[[Key, Pod, Sequence[PodClaim], Nodes], Awaitable[Result]]
"""Goes on with asking standalone drivers about some nodes, and lets them allocate on one."""

WhereItEvicts = Callable[[Pod, Sequence[PodClaim]], str]
"""A node on which the pod's scheduler could evict others for it, and that would be viable then, or ""."""

RejectAnew = Callable[[Pod], None]
"""Judges the nodes anew on which the pod's scheduler could evict others."""

MakeRoom = Callable[[Pod, Sequence[PodClaim], "Rejection"], Awaitable[Wait | Postponed | None]]
"""Has others evicted for a rejected pod, if they may be."""


@dataclass(slots=True)
class Rejection:
    """A filter's answer without viable nodes.

    `nodes` are those that it asked about, `revision` is that of the topics of the problem. `undo`: what the pod
    holds has to be released before another answer is possible. `standalone`: standalone drivers are asked about
    the nodes. `nowhere`: claims could be allocated on none of the nodes, or there is no room. `until`: before that
    time of the event loop's clock no other answer is given, and nobody is made to ask. When it `lapses` another
    answer may follow though nothing has changed. `in_tree`: its scheduler's own filters left no node to ask
    about but those on which it may evict others. `asked`: it has asked for nodes since it last asked about those.
    `reported` is the problem that the pod's user knows of.
    """

    nodes: Nodes
    answer: bytes
    problem: Problem
    revision: tuple[int, ...]
    undo: bool = False
    standalone: bool = False
    nowhere: bool = False
    line: Hashable = None
    until: float = 0.0
    lapses: float | None = None
    in_tree: bool = False
    asked: bool = True
    reported: Problem | None = None
    outdated_at: float | None = None
    nudged: tuple[int, ...] | None = None

    def still_holds(self, nodes: Nodes, pods: Pods) -> bool:
        """Whether the same question has the same answer."""
        if now() < self.until:
            return self.nodes == nodes
        if self.problem.transient or self.nudged is not None:
            return False
        return self.nodes == nodes and self.revision == pods.revision(self.problem.topics)

    @property
    def passes(self) -> bool:
        """Whether it is known to end by itself."""
        return self.problem.transient or bool(self.until)

    def holds_on(self, problem: Problem, pods: Pods) -> None:
        """The question was looked at again, and has the same answer; that is the problem as things stand."""
        self.problem = replace(problem, topics=self.problem.topics)
        self.revision = pods.revision(self.problem.topics)
        self.outdated_at = None

    def is_overtaken(self) -> None:
        """Another answer follows: what this one was about need not be reported any more."""
        self.reported = self.problem

    def outdated_since(self) -> float:
        """Another answer would follow, if the scheduler asked: since now, unless that was known before."""
        if self.outdated_at is None:
            self.outdated_at = now()
        return self.outdated_at

    def nudge_in(self, pods: Pods, *, clear: bool) -> float | None:
        """In how many seconds the scheduler is to be made ask again; None if it knows, or was made to already.

        `clear`: nothing is just changing any more, which ends a transient problem without topics. What else is in
        the pod's way has topics, and is another answer.
        """
        revision = pods.revision(self.problem.topics)
        ended = clear and self.passes and not self.problem.topics
        left = self.lapses - now() if self.lapses is not None else None
        if revision == self.nudged:
            return None
        if revision == self.revision and not ended and (left is None or left > 0):
            return left
        return max(self.outdated_since() + NUDGE_SECONDS - now(), self.until - now(), 0.0)


class Rejections:
    """The latest rejection of each pod. `release` releases what an unbound pod holds, `make_room` has others
    evicted for it."""

    def __init__(
        self,
        pods: Pods,
        posting: Posting,
        release: Callable[[PodReference], Awaitable[None]],
        negotiate: Negotiate,
        make_room: MakeRoom,
        where_it_evicts: WhereItEvicts,
        reject_anew: RejectAnew,
    ) -> None:
        self._pods = pods
        self._posting = posting
        self._release = release
        self._negotiate = negotiate
        self._make_room = make_room
        self._where_it_evicts = where_it_evicts
        self._reject_anew = reject_anew
        self._rejected: dict[str, Rejection] = {}
        self._unasked: dict[str, tuple[Key, float]] = {}

    def __len__(self) -> int:
        return len(self._rejected)

    def unasked(self, pod: Pod) -> None:
        """The pod was there before this process led: its scheduler may wait for a change that it missed."""
        key = (pod.metadata.namespace, pod.metadata.name)
        self._unasked[pod.metadata.uid] = key, now() + UNASKED_SECONDS

    def asked(self, uid: str) -> Rejection | None:
        """The scheduler asks about the pod: the latest rejection, if there is one."""
        self._unasked.pop(uid, None)
        rejection = self._rejected.get(uid)
        if rejection is not None:
            rejection.asked = True
        return rejection

    def answered_before_preemption(self, uid: str) -> bool:
        """The scheduler found no node for the pod, and asks where it may evict others: whether its own filters had
        let nodes pass in this attempt, and it was answered about these."""
        rejection = self._rejected.get(uid)
        if rejection is None:
            return False
        asked, rejection.asked = rejection.asked, False
        return asked

    def outdated(self, uid: str) -> Nodes:
        """The nodes about which the scheduler was answered in this attempt, if another answer may follow by now.
        Else none."""
        rejection = self._rejected.get(uid)
        if rejection is None or not rejection.asked or rejection.problem.code == reasons.PREEMPTING:
            return frozenset()
        return frozenset() if rejection.still_holds(rejection.nodes, self._pods) else rejection.nodes

    def not_evicted(self, pod: Pod) -> None:
        """Its scheduler evicts nobody for the pod where that has been allocated what it asks for."""
        rejection = self._rejected.get(pod.metadata.uid)
        if rejection is not None and rejection.problem.code == reasons.PREEMPTING:
            rejection.undo = True
            self._pods.requeue((pod.metadata.namespace, pod.metadata.name))

    def in_tree(self, uid: str) -> None:
        """What was added last is about nodes where others would be evicted: the scheduler's own filters rejected
        all nodes before."""
        rejection = self._rejected[uid]
        rejection.in_tree, rejection.asked = True, False

    def unasked_in(self, namespace: str) -> Iterator[Key]:
        """The namespace's pods that were there before this process led, and about which it may be asked still."""
        return (key for key, due in self._unasked.values() if key[0] == namespace and due > now())

    def knows(self, uid: str) -> bool:
        """Whether the pod was rejected, and has not passed since."""
        return uid in self._rejected

    def add(self, pod: Pod, rejection: Rejection) -> None:
        """This was answered."""
        self._rejected[pod.metadata.uid] = rejection
        self._pods.requeue((pod.metadata.namespace, pod.metadata.name))

    def asked_until(self, pod: Pod, topics: Set[Topic]) -> float | None:
        """Until when the scheduler may be about to ask about the pod, which waits for some of the topics, because
        these have changed since it did, or because this process was not asked yet. None if it is not."""
        _, due = self._unasked.get(pod.metadata.uid, (None, None))
        rejection = self._rejected.get(pod.metadata.uid)
        if rejection is not None and not topics.isdisjoint(rejection.problem.topics):
            if rejection.revision != self._pods.revision(rejection.problem.topics):
                rejection.outdated_since()
            if rejection.outdated_at is not None:
                due = rejection.outdated_at + UNASKED_SECONDS
        return due if due is not None and due > now() else None

    def drop(self, uid: str) -> None:
        """The pod is not rejected any more."""
        self._rejected.pop(uid, None)
        self._unasked.pop(uid, None)

    async def look(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Reconcile the unbound pod. Raises Busy if it is to be reconciled again."""
        rejection = self._rejected.get(pod.metadata.uid)
        undo = unusable(pod, claims) or (rejection is not None and rejection.undo)
        if undo:
            await self._release(reference(pod))
            if rejection is not None:
                rejection.undo = False
        if rejection is None:
            return await self._remind(pod, claims)
        if rejection.standalone:
            return await self._ask_standalone(key, pod, claims, rejection)
        try:
            room = await self._make_room(pod, claims, rejection) if not undo else None
        except (ApiError, OutcomeUnknown):
            self._stay(key, rejection)  # it is tried again after a pause, or when something changes
            raise
        if isinstance(room, Wait):
            rejection.reported = None
            return room
        if self._rejected.get(pod.metadata.uid) is not rejection:
            return None  # its scheduler has asked meanwhile, after which the pod is looked at once more
        self._stay(key, rejection)
        complete = not any(claim.problem and claim.problem.transient for claim in claims)
        if complete or PREEMPTION not in rejection.problem.topics:
            await self._report(pod, rejection, _with_room(rejection.problem, room))
        clear = complete and not rejection.undo
        nudge = await self._nudge(pod, claims, rejection, clear=clear)
        after = (nudge, self._let_pass(key, pod, rejection), room.after if room is not None else None)
        soonest = min((seconds for seconds in after if seconds is not None), default=None)
        return Requeue(soonest) if soonest is not None else None

    def _stay(self, key: Key, rejection: Rejection) -> None:
        """It waits in its line, also if an event of an earlier pod of that name has taken it out."""
        if rejection.problem.topics:
            self._pods.keep_place(key, rejection.line, rejection.problem.topics)

    async def _remind(self, pod: Pod, claims: Sequence[PodClaim]) -> Requeue | None:
        if pod.metadata.uid not in self._unasked:
            return None
        _, due = self._unasked[pod.metadata.uid]
        if (left := due - now()) > 0:
            return Requeue(left)
        where = self._where_it_evicts(pod, claims)
        await self._wake(pod, where)
        unasked = self._unasked.pop(pod.metadata.uid, None) is not None and not self.knows(pod.metadata.uid)
        if unasked and not where:
            self._reject_anew(pod)  # it does not ask if its own filters rejected the pod everywhere
        return None

    async def _ask_standalone(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection
    ) -> Result:
        problems = [claim.problem for claim in claims if claim.problem is not None]
        if passing := [problem for problem in problems if problem.transient]:
            # To ask again would bring the same answer: claims are judged before they are made.
            topics = [topic for problem in passing for topic in problem.topics]
            return Wait(pod.metadata.uid, topics) if topics else None
        if not problems and any(c.standalone and c.state(pod) is ClaimState.PENDING for c in claims):
            return await self._negotiate(key, pod, claims, rejection.nodes)
        if rejection.nudged is None:
            await self._make_ask(pod, claims, rejection, rejection.revision)
        return None

    async def _report(self, pod: Pod, rejection: Rejection, problem: Problem) -> None:
        if rejection.reported != problem and not problem.transient:
            rejection.reported = problem
            attempt = self._pods.attempt(pod)
            await self._pods.reporter.waits(pod, attempt, problem.code, problem.message)

    async def _nudge(
        self, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection, *, clear: bool
    ) -> float | None:
        """Make the scheduler ask again, if it is time; or in how many seconds that is to be done."""
        seconds = rejection.nudge_in(self._pods, clear=clear)
        if seconds is None or seconds > 0:
            return seconds
        await self._make_ask(pod, claims, rejection, self._pods.revision(rejection.problem.topics))
        return None

    def _let_pass(self, key: Key, pod: Pod, rejection: Rejection) -> float | None:
        """A scheduler that was made to ask does not if it finds no node for the pod itself. Then the pod waits in
        a line of its own: others who wait for the same hear of the change, too. Returns in how many seconds."""
        if rejection.nudged is None or rejection.outdated_at is None:
            return None
        if (left := rejection.outdated_at + UNASKED_SECONDS - now()) > 0:
            return left
        self._pods.line_up(key, pod.metadata.uid, rejection.problem.topics)
        return None

    async def _make_ask(
        self, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection, revision: tuple[int, ...]
    ) -> None:
        """The scheduler asks again, and gets another answer. Tried again if the API server does not take it."""
        where = self._where_it_evicts(pod, claims) if rejection.in_tree else ""
        if rejection.in_tree and not where:
            rejection.nudged = revision
            self._reject_anew(pod)
            return
        before, rejection.nudged = rejection.nudged, revision
        try:
            await self._wake(pod, where)
        except BaseException:
            rejection.nudged = before
            raise

    async def _wake(self, pod: Pod, where: str) -> None:
        if where:
            await self._posting.nominate_briefly(reference(pod), where)
        else:
            await self._posting.touch(reference(pod))


def _with_room(problem: Problem, room: Postponed | None) -> Problem:
    """What the pod's user has to know, also of evictions that are put off."""
    if room is None or not room.message:
        return problem
    return replace(problem, code=room.code or problem.code, message=f"{problem.message}. {room.message}")
