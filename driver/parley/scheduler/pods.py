"""What both paths keep about unbound pods: each one's attempt, and the lines in which they wait."""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from math import inf

from parley.api.builtin import Pod
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.podclaims import NODES, PREEMPTION
from parley.control.objects.pod import priority, reference
from parley.kube.cache import Key
from parley.kube.queue import Requeue, WorkQueue
from parley.negotiation.waiting import UP_TO_DATE_SECONDS, Helps, Place, Topic, WaitingLines
from parley.scheduler.attempts import Attempt
from parley.scheduler.precedence import GIVES_WAY, GIVES_WAY_SECONDS, Precedence
from parley.scheduler.reporting import PodReporter
from parley.scheduler.result import AT_ONCE, Result, Wait
from parley.scheduler.revisions import Revisions
from parley.sdk import PodReference

TURN_SECONDS = 1.0
"""So long pods of lower priority, or that came later, give way to one that can't go on at the moment."""


REPORTED_NODES = 25_000
"""So many nodes are looked at a second only to bring up to date what is reported of waiting pods: each of them may
have to look at all."""


@dataclass(frozen=True, slots=True)
class KeptOut:
    """A line of pods that the state of a claim, or another pod's turn, keeps from negotiating."""

    why: Hashable


class Pods:
    """The pods on their way: what is remembered of each unbound one, the lines in which they wait, and who is
    looked at next. Requeues keys in `queue`. `reserving` counts what reserves room on nodes."""

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
        self._up_to_date_at: dict[Key, float] = {}
        """When waiting pods are looked at because of a change that does not help them."""
        self._last_report = -inf
        self._arrivals = count()
        self.reporter = reporter

    def __len__(self) -> int:
        return len(self._attempts)

    def attempt(self, pod: Pod) -> Attempt:
        """What is remembered of the pod; made at the first look."""
        user = reference(pod)
        if user not in self._attempts:
            self._attempts[user] = Attempt(Place(-priority(pod), next(self._arrivals)), begun=now())
        return self._attempts[user]

    def known(self, pod: PodReference) -> Attempt | None:
        """What is remembered of the pod, if anything is."""
        return self._attempts.get(pod)

    def settled(self, pod: Pod) -> Attempt | None:
        """The pod has everything: what was remembered of it is handed out and forgotten."""
        return self._attempts.pop(reference(pod), None)

    def gone(self, pod: PodReference) -> None:
        """Forget what was remembered of the pod."""
        self._attempts.pop(pod, None)
        self._up_to_date_at.pop((pod.namespace, pod.name), None)
        self.looking_at((pod.namespace, pod.name))
        self.leave_line((pod.namespace, pod.name))
        self.reporter.gone(pod)

    def forget_if_gone(self, pod: PodReference) -> None:
        """The pod may have gone while it was looked at."""
        if not self._cluster.has_pod(pod):
            self._attempts.pop(pod, None)
            self.reporter.gone(pod)

    def never_there(self, pod: PodReference) -> None:
        """Forget what was remembered of a pod that the cache does not have. Another one may have its name."""
        if self._cluster.pod((pod.namespace, pod.name)) is None:
            self.gone(pod)
        else:
            self._attempts.pop(pod, None)

    def look_again(self, key: Key, after: float = 0.0) -> None:
        """Reconcile the pod once more, at once or after so many seconds."""
        self._queue.add_after(key, after)

    def wake(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """A topic changed, on these nodes alone if they are given: requeue the pods that it may help.

        The others are looked at later: what is reported about their nodes may have changed.
        """
        self._revisions.changed(topic, nodes)
        if topic[0] == "class":
            for attempt in self._attempts.values():  # also of those that pause, and wait in no line
                attempt.class_changed(topic[1])
        helped, others = self._lines.sort_out(topic, nodes, compared=self._reserving(nodes))
        for key in others:
            self._bring_up_to_date(key)
        self._wake(helped, topic)

    def _wake(self, keys: Iterable[Key], topic: Topic) -> None:
        for key in keys:
            if (pod := self._cluster.pod(key)) is not None:
                self._reconsider(self.attempt(pod), topic)
                self._precedence.wake(key)
            self._queue.add(key)

    def may_be_evicted(self, pod: Pod, drivers: Iterable[str], node: str) -> None:
        """The pod has what these drivers allocated on the node. Who was looked at while they did found it taken,
        and nobody there who had it: those of a higher priority look again."""
        self._revisions.changed(PREEMPTION, (node,))
        compared = self._reserving((node,))
        for topic in (("driver", name) for name in drivers):
            helped, _ = self._lines.sort_out(topic, (node,), above=-priority(pod), compared=compared)
            self._wake(helped, topic)

    def _bring_up_to_date(self, key: Key) -> None:
        """The pod is looked at for the sake of what is reported: not at once, and the later the more there are."""
        time = now()
        if self._up_to_date_at.get(key, time) > time:
            return
        between = len(self._cluster.node_names()) / REPORTED_NODES
        self._last_report = max(time + UP_TO_DATE_SECONDS, self._last_report + between)
        self._up_to_date_at[key] = self._last_report
        self._queue.add_after(key, self._last_report - time)

    def looking_at(self, key: Key) -> None:
        """The pod is reconciled now."""
        self._precedence.looking_at(key)
        due = self._up_to_date_at.get(key)
        if due is not None and due > now():
            self._queue.add_after(key, due - now())  # in the queue a shorter delay took its place

    def looked_at(self) -> None:
        """A pod was reconciled: others may have given way to it."""
        for key in self._precedence.next():
            self._queue.add(key)

    def came(self, key: Key) -> None:
        """The pod, or a claim that was made for it, is there now."""
        pod = self._cluster.pod(key)
        if pod is not None and not pod.spec.node_name:
            self._precedence.came(key, -priority(pod))

    def overtakes(self, pod: Pod, topics: Collection[Topic]) -> bool:
        """Whether a pod of a better place was woken, or starts over, and has yet to be looked at: it may be served
        by what this one is about to take, of which less is left then (`topics`). So may one of a higher priority
        that has just come."""
        attempt = self.attempt(pod)
        if attempt.gives_way_for(now()) < GIVES_WAY_SECONDS:
            if any(self._stands_before(key, attempt.place, topics) for key in self._precedence.woken):
                return True
            if attempt.gave_way < GIVES_WAY and self._precedence.someone_came_above(attempt.place.rank):
                return True
        attempt.gives_way_since = None
        return False

    def give_way(self, key: Key, pod: Pod) -> Requeue:
        """The pod is looked at again after those that it would overtake; nobody overtakes it meanwhile. It is not
        left until there are none: more may be woken all the time, or keep their turn."""
        self.attempt(pod).gives_way(now())
        if _is_kept_out(self._lines.line_of(key)):
            self.leave_line(key)
        self._precedence.give_way(key)
        return Requeue(TURN_SECONDS)

    def _stands_before(self, key: Key, place: Place, topics: Collection[Topic]) -> bool:
        pod = self._cluster.pod(key)
        attempt = self._attempts.get(reference(pod)) if pod is not None else None
        if attempt is None or attempt.place >= place:
            return False
        if self._lines.line_of(key) is None:
            return True
        return any(self._lines.hears_of(key, [topic]) for topic in topics)

    def revision(self, topics: Sequence[Topic]) -> tuple[int, ...]:
        """Another one whenever any of the topics changed."""
        return self._revisions.of(topics)

    def nodes_since(self, topics: Sequence[Topic], number: int) -> frozenset[str] | None:
        """The nodes on which anything changed since that change; None if one of the topics may have anywhere."""
        return self._revisions.nodes_since(topics, number)

    def leaves(self, node: str) -> None:
        """A pod has begun to leave the node, which wakes nobody: what it holds comes free later."""
        self._revisions.changed_on(node)

    @property
    def latest_change(self) -> int:
        """The number of the last change of any topic."""
        return self._revisions.latest

    def _reconsider(self, attempt: Attempt, topic: Topic) -> None:
        """The scheduler may judge changed nodes differently, and nodes for a class that was changed."""
        if topic == NODES:
            attempt.nodes_changed(now())
        elif topic[0] == "class":
            attempt.begin_again()

    def line_up(self, key: Key, line: Hashable, topics: Sequence[Topic], helps: Helps | None = None) -> None:
        """The pod waits with those that wait for the same, which is for the same reason and the same changes."""
        still = frozenset(topics) if isinstance(line, KeptOut) else frozenset()
        kept_out_by = [topic for topic in self._kept_out_by(key) if topic not in still]
        pod = self._cluster.pod(key)
        place = self._begins_to_wait(pod) if pod is not None else Place(0, next(self._arrivals))
        heard = [*topics, *map(_keeping_out, topics)] if isinstance(line, KeptOut) else topics
        following = self._lines.wait(key, (line, frozenset(topics)), heard, place, helps)
        if following is not None:
            self._queue.add(following)
        self._next_in_turn(kept_out_by)

    def _begins_to_wait(self, pod: Pod) -> Place:
        attempt = self.attempt(pod)
        attempt.gave_way, attempt.gives_way_since = 0, None
        return attempt.place

    def _kept_out_by(self, key: Key) -> Iterable[Topic]:
        """The claims that the pod is kept out by, if it waits for its turn: there are turns with nothing else."""
        line = self._lines.line_of(key)
        topics = line[1] if isinstance(line, tuple) and _is_kept_out(line) else ()
        return [topic for topic in topics if topic[0] == "claim"]

    def _next_in_turn(self, topics: Iterable[Topic]) -> None:
        """A pod waits for its turn with these no more, whether it had it or not: others may be next."""
        for topic in topics:
            for key in self._lines.wake(topic):
                self._queue.add(key)

    def kept_out_before(self, pod: Pod, topic: Topic, *, only_above: bool = False) -> Key | None:
        """Who stands before the pod, and was kept out by the topic as well; `only_above`: by a higher priority."""
        own = self.attempt(pod).place
        limit = own._replace(arrival=0) if only_above else own
        _, place, key = next(iter(self._lines.heads(_keeping_out(topic))), (None, limit, None))
        return key if place < limit else None

    def waiting_before(self, place: Place, topics: Iterable[Topic]) -> Iterator[Key]:
        """Those that wait for any of the topics and stand before that place, each once: by line; who stands first
        comes first."""
        for line, first, _ in self._lines.heads(*topics):
            if first < place:
                yield from takewhile(lambda key: self._stands_at(key, before=place), self._lines.members(line))

    def _stands_at(self, key: Key, *, before: Place) -> bool:
        pod = self._cluster.pod(key)
        return pod is not None and self.attempt(pod).place < before

    def tried_in_vain(self, topic: Topic) -> bool:
        """Whether the topic keeps out any pod that its scheduler tries all the same."""
        lines = (line for line, _, _ in self._lines.heads(_keeping_out(topic)))
        pods = (self._cluster.pod(key) for line in lines for key in self._lines.members(line))
        return any(pod is not None and self.attempt(pod).tried for pod in pods)

    def stay(self, key: Key, line: Hashable, topics: Sequence[Topic], helps: Helps | None = None) -> None:
        """What the pod waits for is about to change: it keeps its place among those that wait for the same."""
        if not topics or not self._lines.hears_of(key, topics):
            self.line_up(key, line, topics, helps)

    def leave_line(self, key: Key) -> None:
        """The pod waits no more; whoever was behind it may be next."""
        kept_out_by = self._kept_out_by(key)
        if (following := self._lines.leave(key)) is not None:
            self._queue.add(following)
        self._next_in_turn(kept_out_by)

    def stand_apart(self, key: Key) -> None:
        """What is done for the pod fails: others of its line need not wait until it works. It hears of the same
        changes as before, so that nobody of a lower priority gets what it may have."""
        if _is_kept_out(self._lines.line_of(key)):
            self.leave_line(key)
        elif (following := self._lines.part(key, ("apart", key))) is not None:
            self._queue.add(following)

    async def arrange(self, key: Key, pod: Pod, result: Result, since: int) -> Requeue | None:
        """Puts a pod that waits into its line and reports why; returns when its key is wanted again.

        That is at once if what it waits for has changed since the change of that number: when it was looked at it
        was in no line.
        """
        if not isinstance(result, Wait):
            if result is not None and result.after == 0:
                self._precedence.wake(key)
            return result
        if result.stay:
            self.stay(key, result.line, result.topics, result.helps)
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

    def blocked(self, key: Key, pod: Pod) -> float:
        """For how many seconds the pod is still left alone, because something was refused; it waits in no line."""
        left = self.attempt(pod).failures.left(now())
        if left:
            self.leave_line(key)
        return left


def _keeping_out(topic: Topic) -> Topic:
    """What only those lines hear of that the topic keeps out. Of others that wait for it there may be hundreds."""
    return ("kept out", *topic)


def _is_kept_out(line: Hashable) -> bool:
    return isinstance(line, tuple) and isinstance(line[0], KeptOut)


def now() -> float:
    """On the event loop's clock."""
    return asyncio.get_running_loop().time()
