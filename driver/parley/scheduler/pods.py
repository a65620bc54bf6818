"""Per-pod state that both scheduling paths share: each unbound pod's attempt, and the lines in which pods wait."""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from math import inf

from parley.api.builtin import Pod
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import NODES, PREEMPTION
from parley.control.objects.pod import priority, reference
from parley.kube.cache import Key
from parley.kube.queue import Requeue, WorkQueue
from parley.negotiation.waiting import UP_TO_DATE_SECONDS, Helps, Place, Topic, WaitingLines
from parley.scheduler.attempts import Attempt
from parley.scheduler.precedence import MOST_YIELDS, YIELD_SECONDS, Precedence
from parley.scheduler.reporting import PodReporter
from parley.scheduler.result import AT_ONCE, Result, Wait
from parley.scheduler.revisions import Revisions
from parley.sdk import PodReference

TURN_SECONDS = 1.0
"""For this long pods of lower priority, or that came later, give way to one that can't go on at the moment."""

ELSEWHERE_SECONDS = 1.0
"""The delay before a refused pod is reconciled after a driver released something on unknown nodes: other refused
pods may be tried on one node after the other, and each time release what they were allocated."""

REFRESHED_NODES = 25_000
"""Nodes a second that may be looked at only to refresh the reports of waiting pods: each may need all nodes."""


@dataclass(frozen=True, slots=True)
class KeptOut:
    """The key of a waiting line of pods that a claim's state, or a pod ahead of them, keeps from negotiating."""

    why: Hashable


@dataclass(frozen=True, slots=True)
class RefusedEverywhere:
    """The key of a waiting line of pods whose scheduler refused every viable node. Each offers these again after a
    pause of its own, which a change of nodes or classes shortens."""

    why: Hashable


_REFUSED: Topic = ("refused",)
"""The topic of all lines of refused pods. Nothing changes it: it finds them."""


class Pods:
    """The attempts and waiting lines of unbound pods, and the order in which waiting pods are reconciled. Requeues
    keys in `queue`. `reserving` returns how many holdings reserve room on the given nodes."""

    def __init__(
        self,
        cluster: ClusterCache,
        reporter: PodReporter,
        queue: WorkQueue[Key],
        reserving: Callable[[Collection[str] | None], int],
    ) -> None:
        self._cluster = cluster
        self._reserving = reserving
        self._queue = queue
        self._attempts: dict[PodReference, Attempt] = {}
        self._lines: WaitingLines[Key] = WaitingLines(flow=lambda key: key[0])
        self._precedence = Precedence()
        self._revisions = Revisions()
        self._unshortened: dict[Key, None] = {}
        """Refused pods whose present pause no change of nodes has shortened; some are in another line by now."""
        self._refresh_at: dict[Key, float] = {}
        """When waiting pods are reconciled after a change that does not help them, to refresh their reports."""
        self._last_refresh = -inf
        self._arrivals = count()
        self.reporter = reporter

    def __len__(self) -> int:
        return len(self._attempts)

    def attempt(self, pod: Pod) -> Attempt:
        """The pod's attempt, created at the first call."""
        user = reference(pod)
        if user not in self._attempts:
            self._attempts[user] = Attempt(Place(-priority(pod), next(self._arrivals)), begun=now())
        return self._attempts[user]

    def existing_attempt(self, pod: PodReference) -> Attempt | None:
        """The pod's attempt, if it has one."""
        return self._attempts.get(pod)

    def pop_attempt(self, pod: Pod) -> Attempt | None:
        """Remove and return the attempt of a pod that is bound and has all its claims."""
        return self._attempts.pop(reference(pod), None)

    def pod_gone(self, pod: PodReference) -> None:
        """Forget everything about a pod whose object is gone."""
        self._attempts.pop(pod, None)
        self._refresh_at.pop((pod.namespace, pod.name), None)
        self.reconcile_started((pod.namespace, pod.name))
        self.leave_line((pod.namespace, pod.name))
        self.reporter.gone(pod)

    def forget_if_gone(self, pod: PodReference) -> bool:
        """Forget the pod if it was deleted while it was being reconciled. Returns whether it was."""
        if self._cluster.has_pod(pod):
            return False
        self._attempts.pop(pod, None)
        self.reporter.gone(pod)
        return True

    def forget_unknown(self, pod: PodReference) -> None:
        """Forget a pod that the cache has never shown. Another pod may have its name."""
        if self._cluster.pod((pod.namespace, pod.name)) is None:
            self.pod_gone(pod)
        else:
            self._attempts.pop(pod, None)

    def requeue(self, key: Key, after: float = 0.0) -> None:
        """Reconcile the pod again, at once or after so many seconds."""
        self._queue.add_after(key, after)

    def wake(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """Requeue the pods that a change of the topic may help. `nodes`: it changed on these nodes only.

        Other pods that wait for the topic are requeued later, to refresh what is reported about their nodes.
        """
        self._revisions.changed(topic, nodes)
        if topic[0] == "class":
            for attempt in self._attempts.values():  # also of pods in a pause, which wait in no line
                attempt.class_changed(topic[1])
        if topic == NODES or topic[0] == "class":
            self._shorten_pauses(topic)
        helped, *others = self._lines.split_by_help(topic, nodes, compared=self._reserving(nodes))
        for key in chain.from_iterable(others):
            self._refresh_report(key)
        later = {key for key in helped if nodes is None and topic[0] == "driver" and self._is_refused(key)}
        for key in later:
            self._queue.add_after(key, ELSEWHERE_SECONDS)
        self._wake((key for key in helped if key not in later), topic)

    def _shorten_pauses(self, topic: Topic) -> None:
        """Reconcile refused pods when their shortened pauses are over, not only the first of each line. There may
        be thousands, and in a large cluster nodes change all the time: these shorten each pause once."""
        if topic == NODES:
            keys, self._unshortened = list(filter(self._is_refused, self._unshortened)), {}
        else:
            lines = (line for line, _, key in self._lines.heads(_REFUSED) if self._lines.is_woken_by(key, [topic]))
            keys = list(chain.from_iterable(map(self._lines.members, lines)))
        found = [(self.attempt(pod), key) for key in keys if (pod := self._cluster.pod(key)) is not None]
        for attempt, key in sorted(found, key=lambda one: one[0].place):
            if attempt.offered:
                continue
            self._reconsider(attempt, topic)
            if not (left := attempt.refusals.left(now())):
                self._precedence.wake(key)
            self._queue.add_after(key, left)

    def _wake(self, keys: Iterable[Key], topic: Topic) -> None:
        for key in keys:
            if (pod := self._cluster.pod(key)) is not None:
                self._reconsider(self.attempt(pod), topic)
                self._precedence.wake(key)
            self._queue.add(key)

    def wake_preemptors(self, pod: Pod, drivers: Iterable[str], node: str) -> None:
        """Requeue waiting pods of a higher priority than this one, to which the drivers have just allocated on the
        node. A pod reconciled during the allocation found the resource taken, but no holder to evict."""
        self._revisions.changed(PREEMPTION, (node,))
        compared = self._reserving((node,))
        for topic in (("driver", name) for name in drivers):
            woken = self._lines.split_by_help(topic, (node,), above=-priority(pod), compared=compared)
            self._wake(woken.helped, topic)

    def _refresh_report(self, key: Key) -> None:
        """Requeue the pod to refresh its report: not at once, and the later the more such pods there are."""
        time = now()
        if self._refresh_at.get(key, time) > time:
            return
        between = len(self._cluster.node_names()) / REFRESHED_NODES
        self._last_refresh = max(time + UP_TO_DATE_SECONDS, self._last_refresh + between)
        self._refresh_at[key] = self._last_refresh
        self._queue.add_after(key, self._last_refresh - time)

    def reconcile_started(self, key: Key) -> None:
        """Note that the pod's reconciliation begins."""
        self._precedence.reconcile_started(key)
        due = self._refresh_at.get(key)
        if due is not None and due > now():
            self._queue.add_after(key, due - now())  # the queue keeps only the shortest delay of a key

    def reconcile_finished(self) -> None:
        """Requeue the pods that gave way, if no pod that they gave way to is left."""
        for key in self._precedence.next():
            self._queue.add(key)

    def added(self, key: Key) -> None:
        """Note that the pod, or a claim generated for it, was created."""
        pod = self._cluster.pod(key)
        if pod is not None and not pod.spec.node_name:
            self._precedence.added(key, -priority(pod))

    def overtakes(self, pod: Pod, topics: Collection[Topic]) -> bool:
        """Whether a pod ahead of this one is yet to be reconciled and may need what this one is about to take: one
        that was woken or starts over and waits for any of the `topics`, of which less would be left, or one of
        higher priority that was just created."""
        attempt = self.attempt(pod)
        if attempt.seconds_yielding(now()) < YIELD_SECONDS:
            if any(self._is_ahead(key, attempt.place, topics) for key in self._precedence.woken):
                return True
            if attempt.gave_way < MOST_YIELDS and self._precedence.any_added_above(attempt.place.rank):
                return True
        attempt.yielding_since = None
        return False

    def give_way(self, key: Key, pod: Pod) -> Requeue:
        """Let the pod be reconciled after those that it would overtake; no pod overtakes it meanwhile. It is
        requeued after `TURN_SECONDS` in any case: more pods may be woken all the time, or keep their turn."""
        self.attempt(pod).note_yield(now())
        self.leave_turn(key)
        self._precedence.give_way(key)
        return Requeue(TURN_SECONDS)

    def _is_ahead(self, key: Key, place: Place, topics: Collection[Topic]) -> bool:
        pod = self._cluster.pod(key)
        attempt = self._attempts.get(reference(pod)) if pod is not None else None
        if attempt is None or attempt.place >= place:
            return False
        if self._lines.line_of(key) is None:
            return True
        return any(self._lines.is_woken_by(key, [topic]) for topic in topics)

    def revision(self, topics: Sequence[Topic]) -> tuple[int, ...]:
        """The topics' revision: a different value after any of them changed."""
        return self._revisions.of(topics)

    def nodes_since(self, topics: Sequence[Topic], number: int) -> frozenset[str] | None:
        """The nodes on which anything changed after the change of that number; None if one of the topics may have
        changed on all nodes."""
        return self._revisions.nodes_since(topics, number)

    def pod_terminating(self, node: str) -> None:
        """Note that a pod on the node has begun to terminate. Wakes no pods: what it holds becomes free later."""
        self._revisions.changed_on(node)

    @property
    def latest_change(self) -> int:
        """The number of the last change of any topic."""
        return self._revisions.latest

    def _reconsider(self, attempt: Attempt, topic: Topic) -> None:
        """Drop the scheduler's refusals: it may accept nodes after a change of these or of a class."""
        if topic == NODES:
            attempt.nodes_changed(now())
        elif topic[0] == "class":
            attempt.begin_again()

    def line_up(self, key: Key, line: Hashable, topics: Sequence[Topic], helps: Helps | None = None) -> None:
        """Put the pod into the line of pods that wait for the same reason and the same topics."""
        unchanged = frozenset(topics) if isinstance(line, KeptOut) else frozenset()
        kept_out_by = [topic for topic in self._kept_out_by(key) if topic not in unchanged]
        pod = self._cluster.pod(key)
        place = self._begins_to_wait(pod) if pod is not None else Place(0, next(self._arrivals))
        finders = [*map(_keeping_out, topics)] if isinstance(line, KeptOut) else []
        wakers = [*topics, *finders, *([_REFUSED] if isinstance(line, RefusedEverywhere) else [])]
        if isinstance(line, RefusedEverywhere):
            self._unshortened[key] = None
        following = self._lines.wait(key, (line, frozenset(topics)), wakers, place, helps)
        if following is not None:
            self._queue.add(following)
        self._wake_next_in_turn(kept_out_by)

    def _begins_to_wait(self, pod: Pod) -> Place:
        attempt = self.attempt(pod)
        attempt.gave_way, attempt.yielding_since = 0, None
        return attempt.place

    def _kept_out_by(self, key: Key) -> Iterable[Topic]:
        """The topics of the claims that keep the pod out, if it waits for its turn: only claims have turns."""
        line = self._lines.line_of(key)
        topics = line[1] if isinstance(line, tuple) and _is_kept_out(line) else ()
        return [topic for topic in topics if topic[0] == "claim"]

    def _wake_next_in_turn(self, topics: Iterable[Topic]) -> None:
        """Requeue the next pods in turn for these claims: a pod waits for its turn with them no longer."""
        for topic in topics:
            for key in self._lines.wake(topic):
                self._queue.add(key)

    def first_kept_out(self, pod: Pod, topic: Topic, *, only_above: bool = False) -> Key | None:
        """The first pod that the topic keeps out, too, and that is ahead of this one; `only_above`: it has to have
        a higher priority."""
        own = self.attempt(pod).place
        limit = own._replace(arrival=0) if only_above else own
        _, place, key = next(iter(self._lines.heads(_keeping_out(topic))), (None, limit, None))
        return key if place < limit else None

    def waiting_before(self, place: Place, topics: Iterable[Topic]) -> Iterator[Key]:
        """The pods that wait for any of the topics and are ahead of that place, each once: line by line, each line
        in its order."""
        for line, first, _ in self._lines.heads(*topics):
            if first < place:
                yield from takewhile(lambda key: self._stands_at(key, before=place), self._lines.members(line))

    def _stands_at(self, key: Key, *, before: Place) -> bool:
        pod = self._cluster.pod(key)
        return pod is not None and self.attempt(pod).place < before

    def keeps_out_retried(self, topic: Topic) -> bool:
        """Whether the topic keeps out any pod that its scheduler keeps trying to place."""
        lines = (line for line, _, _ in self._lines.heads(_keeping_out(topic)))
        pods = (self._cluster.pod(key) for line in lines for key in self._lines.members(line))
        return any(pod is not None and self.attempt(pod).retried_by_scheduler for pod in pods)

    def keep_place(self, key: Key, line: Hashable, topics: Sequence[Topic], helps: Helps | None = None) -> None:
        """Leave the pod in its line if it waits for these topics there, otherwise put it into `line`."""
        if not topics or not self._lines.is_woken_by(key, topics):
            self.line_up(key, line, topics, helps)

    def leave_line(self, key: Key) -> None:
        """Take the pod out of its line; the pod behind it may be next."""
        kept_out_by = self._kept_out_by(key)
        if (following := self._lines.leave(key)) is not None:
            self._queue.add(following)
        self._wake_next_in_turn(kept_out_by)

    def leave_turn(self, key: Key) -> None:
        """Take the pod out of its line if it waits for its turn with a claim: the pod behind it has its turn."""
        if _is_kept_out(self._lines.line_of(key)):
            self.leave_line(key)

    def leave_line_if_accepted(self, key: Key) -> None:
        """Take the pod, which nodes are offered for, out of its line, unless its scheduler refused nodes before.
        Then it stays until it has its claims or is refused again: an offer holds nothing, so that all pods behind
        it would be offered the same."""
        if not self._is_refused(key):
            self.leave_line(key)

    def _is_refused(self, key: Key) -> bool:
        """Whether the pod waits because its scheduler refused every viable node."""
        line = self._lines.line_of(key)
        return isinstance(line, tuple) and isinstance(line[0], RefusedEverywhere)

    def move_to_own_line(self, key: Key) -> None:
        """Give a pod whose reconciliation failed a line of its own: other pods need not wait until it succeeds. It
        is woken by the same topics as before, so that no pod of lower priority gets what it waits for."""
        if _is_kept_out(self._lines.line_of(key)):
            self.leave_line(key)
        elif (following := self._lines.move(key, ("apart", key))) is not None:
            self._queue.add(following)

    async def apply(self, key: Key, pod: Pod, result: Result, since: int) -> Requeue | None:
        """Put a pod that waits into its line and report why; returns when its key is to be requeued.

        It is requeued at once if a topic it waits for has changed after the change numbered `since`: it was in no
        line while it was reconciled, so that nothing woke it.
        """
        if not isinstance(result, Wait):
            if result is not None and result.after == 0:
                self._precedence.wake(key)
            return result
        if result.keeps_place:
            self.keep_place(key, result.line, result.topics, result.helps)
        else:
            self.line_up(key, result.line, result.topics, result.helps)
        if result.keeps_turn:
            self._precedence.wake(key)
        if self._revisions.any_since(result.topics, since):
            self._precedence.wake(key)
            return AT_ONCE
        if result.problem is not None:
            await self.reporter.waits(pod, self.attempt(pod), result.problem.code, result.problem.message)
        return Requeue(result.after) if result.after is not None else None

    def failure_pause(self, key: Key, pod: Pod) -> float:
        """How many seconds of the pod's pause after failures are left; if any, the pod leaves its line."""
        left = self.attempt(pod).failures.left(now())
        if left:
            self.leave_line(key)
        return left


def _keeping_out(topic: Topic) -> Topic:
    """The topic that wakes only the lines that the given one keeps out; hundreds of others may wait for that."""
    return ("kept out", *topic)


def _is_kept_out(line: Hashable) -> bool:
    return isinstance(line, tuple) and isinstance(line[0], KeptOut)


def now() -> float:
    """The time on the event loop's clock, in seconds."""
    return asyncio.get_running_loop().time()
