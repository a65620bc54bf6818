"""One pod's way through the native door: look at what is, take the one step that comes first, repeat.

`sync` is called for a pod whenever something about it may have changed, never twice at a time for the same pod.
It reads caches and ledger, decides at once (no await between looking and holding), and acts. What goes wrong
on the way is raised, and the queue calls again.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.control.allocation import AllocationFailed, Allocator, Busy
from parley.control.cluster import Cluster, Key, done, reference
from parley.control.gathering import NODES, PodClaim, Problem, Topic, gather
from parley.control.ledger import Ledger
from parley.control.mirror import is_offer
from parley.control.restoring import adopt
from parley.kube.client import BadRequest, Client, Conflict, Forbidden, Invalid, NotFound
from parley.kube.queue import WorkQueue
from parley.negotiation.answers import in_words
from parley.negotiation.rounds import FIRST_CANDIDATES, MAX_CANDIDATES, negotiate
from parley.negotiation.selection import select
from parley.negotiation.states import ClaimState, Step, next_step
from parley.negotiation.waiting import WaitingLines
from parley.scheduler.native.attempts import Attempt
from parley.scheduler.native.candidates import CandidateNodes
from parley.scheduler.native.questions import Question, ask, have_preferences, question, scores
from parley.scheduler.native.telling import Telling
from parley.sdk import PermanentError, PodReference
from parley.sdk.checks import BadParameters
from parley.sdk.embedded import EmbeddedDriver


class NativeDoor:
    """Negotiates for pods of any scheduler. Whoever feeds `queue` also calls `wake` and `pod_gone`."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        ledger: Ledger,
        drivers: Mapping[str, EmbeddedDriver],
        allocator: Allocator,
        telling: Telling,
        queue: WorkQueue[Key],
        candidates: int,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = ledger
        self._drivers = drivers
        self._allocator = allocator
        self._telling = telling
        self._queue = queue
        self._candidates = candidates
        self._attempts: dict[PodReference, Attempt] = {}
        self._lines: WaitingLines[Key] = WaitingLines()
        self.unconfirmed: set[str] = set()
        """UIDs of pods that hold something by the record but were not seen yet."""

    def wake(self, topic: Topic) -> None:
        """Something changed: look again at the pods that it may help."""
        for key in self._lines.wake(topic):
            if topic == NODES and (pod := self._cluster.pod(key)) is not None:
                self._attempt(reference(pod)).begin_again()
            self._queue.add(key)

    def _attempt(self, pod: PodReference) -> Attempt:
        return self._attempts.setdefault(pod, Attempt())

    async def sync(self, key: Key) -> None:
        """Take the next step for the pod of that name. Raises what a client raises; then it is to be repeated."""
        pod = self._cluster.pod(key)
        await self._depart(key, pod)
        if pod is None or done(pod) or (pod.metadata.deletion_timestamp and not pod.spec.node_name):
            self._leave_line(key)
            return
        claims = gather(self._cluster, self._ledger, self._drivers, pod)
        if claims and not pod.spec.scheduling_gates:
            try:
                await self._step(key, pod, claims)
            except (Conflict, Busy):
                self._queue.retry(key)  # the cache was behind, or another pod's claim is ours too: look again

    async def _depart(self, key: Key, pod: Pod | None) -> None:
        """What pods of that name held that are done or gone is free."""
        for holding in self._ledger.of_pod_name(*key):
            for user in [u for u in holding.pods.values() if (u.namespace, u.name) == key]:
                if pod is not None and pod.metadata.uid == user.uid and not done(pod):
                    continue
                if user.uid in self.unconfirmed and await self._lives(user):
                    continue
                await self._allocator.give_back(user, [holding], departed=True)

    async def _lives(self, user: PodReference) -> bool:
        try:
            live = await self._client.get(PODS, user.name, user.namespace)
        except NotFound:
            return False
        return live.metadata.uid == user.uid and not done(live)

    def pod_gone(self, pod: PodReference) -> None:
        """Forget what was remembered of the pod; `sync` releases what it holds."""
        self._attempts.pop(pod, None)
        self._telling.gone(pod)

    def _line_up(self, key: Key, line: Hashable, topics: Sequence[Topic]) -> None:
        if (following := self._lines.wait(key, line, topics)) is not None:
            self._queue.add(following)

    def _leave_line(self, key: Key) -> None:
        if (following := self._lines.leave(key)) is not None:
            self._queue.add(following)

    async def _step(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None:
        problem = next((claim.problem for claim in claims if claim.problem is not None), None)
        if problem is not None:
            await self._stuck(key, pod, problem)
            return
        step = next_step((claim.state(pod) for claim in claims), bound=bool(pod.spec.node_name))
        match step:
            case Step.NOTHING:
                self._leave_line(key)
                self._settled(pod, claims)
            case Step.NEGOTIATE:
                await self._negotiate(key, pod, claims)
            case Step.FOLLOW_OFFER:
                await self._follow_offer(key, pod, claims)
            case Step.WRITE:
                await self._write(key, pod, claims)
            case Step.ADOPT:
                self._adopt(pod, claims)
                self._queue.retry(key)
            case Step.TAKE_BACK:
                await self._take_back(key, pod, claims)

    async def _stuck(self, key: Key, pod: Pod, problem: Problem) -> None:
        if not pod.spec.node_name:
            await self._give_back_all(pod)
        if problem.transient:
            self._line_up(key, problem.message, problem.topics)
            return
        await self._wait(key, pod, problem.code, problem.message, (problem.code, problem.message), problem.topics)

    async def _give_back_all(self, pod: Pod) -> None:
        user = reference(pod)
        held = [h for h in self._ledger.of_pod_name(user.namespace, user.name) if user.uid in h.pods]
        self._cluster.usage.remove(user.uid)
        await self._allocator.give_back(user, held, departed=False)

    async def _wait(
        self, key: Key, pod: Pod, code: str, message: str, line: Hashable, topics: Sequence[Topic]
    ) -> None:
        self._line_up(key, line, topics)
        await self._telling.waits(pod, self._attempt(reference(pod)), code, message)

    def _settled(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Everything is recorded; tell how it went once the binding is there."""
        if pod.spec.node_name and all(claim.state(pod) is ClaimState.ALLOCATED for claim in claims):
            drivers = {c.entry: c.holding.driver for c in claims if c.holding is not None}
            self._telling.bound(pod, drivers, self._attempts.pop(reference(pod), None))

    async def _negotiate(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None:
        attempt = self._attempt(reference(pod))
        if (left := attempt.blocked_until - asyncio.get_running_loop().time()) > 0:
            self._queue.add_after(key, left)
            return
        if attempt.offered:
            if any(claim.version < attempt.offer_version for claim in claims):
                return
            attempt.offer_ended()
        pending = [claim for claim in claims if claim.state(pod) is ClaimState.PENDING]
        try:
            asked = question(self._drivers, reference(pod), pending)
        except BadParameters as error:
            topics: list[Topic] = [("class", claim.class_.metadata.name) for claim in pending if claim.class_]
            topics += [("claim", pod.metadata.namespace, claim.name) for claim in pending]
            await self._wait(key, pod, reasons.PARAMETERS_INVALID, str(error), str(error), topics)
            return
        only = {claim.holding.node for claim in claims if claim.holding is not None}
        nodes = CandidateNodes(
            self._cluster, pod, [c.class_ for c in claims if c.class_], frozenset(only) if only else None
        )
        exact = self._offers(attempt, pod, claims, pending)
        choosy = exact or have_preferences(self._drivers, asked)
        outcome = negotiate(
            nodes,
            ask(self._drivers, asked, attempt.excluded),
            first=self._candidates if choosy else FIRST_CANDIDATES,
            limit=self._candidates,
            enough=MAX_CANDIDATES if exact else 1 + len(attempt.refused),
        )
        attempt.outcome, attempt.drivers = outcome, asked.drivers
        if not outcome.viable:
            await self._nothing_viable(key, pod, claims, nodes, asked)
            return
        await self._proceed(key, pod, claims, asked, exact=exact)

    def _offers(self, attempt: Attempt, pod: Pod, claims: Sequence[PodClaim], pending: Sequence[PodClaim]) -> bool:
        """Whether the scheduler gets to choose. Never for named claims: an offer can't serve two pods."""
        if pod.spec.node_name or len(pending) < len(claims) or any(claim.claim is not None for claim in claims):
            return False
        return attempt.exact or any(c.class_ is not None and c.class_.placement == "Exact" for c in pending)

    async def _nothing_viable(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], nodes: CandidateNodes, asked: Question
    ) -> None:
        attempt = self._attempt(reference(pod))
        if not pod.spec.node_name and any(c.holding and pod.metadata.uid in c.holding.pods for c in claims):
            await self._give_back_all(pod)
            self._queue.retry(key)
            return
        refused = attempt.outcome.refused
        code = reasons.NOTHING_VIABLE if attempt.outcome.candidates else reasons.NO_CANDIDATES
        words = in_words({**nodes.misfits, **refused}) or "the cluster has no nodes"
        remedy = "free devices or add nodes that have what is asked for" if refused else "add or free a node"
        message = f"0 of {len(self._cluster.node_names())} nodes will do: {words}. To help: {remedy}"
        topics = [("driver", driver) for driver in asked.requests] + [NODES]
        line = _line(pod, asked, attempt, nodes)
        await self._wait(key, pod, code, message, line, topics)

    async def _proceed(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], asked: Question, *, exact: bool
    ) -> None:
        attempt = self._attempt(reference(pod))
        fresh = [node for node in attempt.outcome.viable if node not in attempt.refused]
        if not fresh and not pod.spec.node_name:
            if asyncio.get_running_loop().time() < attempt.retry_at or not attempt.retry_at:
                await self._all_refused(key, pod, attempt)
                return
            attempt.begin_again()
            fresh = list(attempt.outcome.viable)
        if exact:
            await self._offer(key, pod, claims, asked, fresh[:MAX_CANDIDATES])
            return
        viable = fresh or attempt.outcome.viable
        selected = select(viable, scores(self._drivers, asked, viable))
        assert selected is not None
        await self._allocate(key, pod, claims, asked, selected, offered=False)

    async def _all_refused(self, key: Key, pod: Pod, attempt: Attempt) -> None:
        now = asyncio.get_running_loop().time()
        if not attempt.retry_at:
            self._queue.add_after(key, attempt.pause(now))
        nodes = in_words(dict.fromkeys(sorted(attempt.refused), "viable, but refused by the scheduler"))
        message = f"{nodes}. See the pod's own conditions for the scheduler's reasons; Parley offers them again"
        await self._wait(key, pod, reasons.SCHEDULER_REFUSED, message, (pod.metadata.uid,), [NODES])

    async def _allocate(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], asked: Question, node: str, *, offered: bool
    ) -> bool:
        pending = [claim for claim in claims if claim.entry in asked.drivers]
        try:
            await self._allocator.allocate(pod, pending, asked.requests, node, offered=offered)
        except AllocationFailed as failure:
            if isinstance(failure.__cause__, PermanentError):
                self._attempt(reference(pod)).excluded[node] = str(failure.__cause__)
            await self._telling.warn(pod, reasons.ALLOCATION_FAILED, str(failure))
            self._queue.retry(key)
            return False
        self._allocator.join(pod, claims)
        if not pod.spec.node_name:
            self._cluster.assume(pod, node)
        self._leave_line(key)
        await self._write(key, pod, claims)
        return True

    async def _write(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Record the holdings. What the API will never accept is given back, and the user told."""
        try:
            await self._allocator.write(claims)
        except (BadRequest, Forbidden, Invalid) as error:
            attempt = self._attempt(reference(pod))
            self._queue.add_after(key, attempt.block(asyncio.get_running_loop().time()))
            if not pod.spec.node_name:
                await self._give_back_all(pod)
            message = f"the API server refused the allocation: {error.message}"
            await self._telling.warn(pod, reasons.ALLOCATION_FAILED, message)

    async def _offer(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], asked: Question, nodes: Sequence[str]
    ) -> None:
        attempt = self._attempt(reference(pod))
        written = await self._allocator.offer(claims, asked.drivers, nodes)
        if not all(m.status.allocation is not None and is_offer(m.status.allocation) for m in written):
            for mirror in written:
                await self._allocator.clear(mirror)
            raise RuntimeError(
                "the API server dropped bindingConditions from an allocation: "
                "enable the feature gate DRADeviceBindingConditions (on by default since Kubernetes 1.36)"
            )
        attempt.offered = tuple(nodes)
        attempt.offer_version = max(int(mirror.metadata.resource_version) for mirror in written)
        self._telling.chooses(pod, attempt)
        self._leave_line(key)

    async def _follow_offer(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None:
        chosen = pod.spec.node_name or pod.status.nominated_node_name
        if not chosen or not all(claim.is_reserved(pod) for claim in claims) or any(c.offer_ended for c in claims):
            return
        live = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
        if live.metadata.uid != pod.metadata.uid or chosen != (
            live.spec.node_name or live.status.nominated_node_name
        ):
            return
        attempt = self._attempt(reference(pod))
        offered = [claim for claim in claims if claim.state(pod) is ClaimState.OFFERED]
        asked = question(self._drivers, reference(pod), offered)
        if not all(chosen in claim.offered_nodes for claim in offered):
            await self._allocator.decline(offered, f"node {chosen} was not among those offered")
        elif not await self._allocate(key, pod, claims, asked, chosen, offered=True):
            attempt.offered = (chosen,)
            await self._allocator.decline(offered, f"nothing is left on node {chosen}")

    def _adopt(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        for claim in claims:
            if claim.mirror is not None and claim.state(pod) is ClaimState.UNKNOWN:
                adopt(self._cluster, self._ledger, self._drivers, claim.mirror)

    async def _take_back(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None:
        attempt = self._attempt(reference(pod))
        attempt.refuse(*{c.holding.node for c in claims if c.state(pod) is ClaimState.CLEARED and c.holding})
        attempt.offered = ()
        for claim in claims:
            if claim.mirror is not None and claim.state(pod) is ClaimState.UNKNOWN:
                await self._allocator.clear(claim.mirror)
        await self._give_back_all(pod)
        self._queue.add(key)


def _line(pod: Pod, asked: Question, attempt: Attempt, nodes: CandidateNodes) -> Hashable:
    """Pods in one line are alike in all that decides: what can't serve the first can't serve the others."""
    if attempt.excluded or attempt.refused:
        return pod.metadata.uid
    return asked.signature(pod), nodes.only
