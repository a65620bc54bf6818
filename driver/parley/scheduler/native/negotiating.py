"""One pod's negotiation: propose candidates, hear the drivers, and decide on a node, or on what to wait for."""

from collections.abc import Sequence

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.cluster import Key, reference
from parley.control.podclaims import NODES, PodClaim
from parley.control.state import State
from parley.negotiation.answers import in_words
from parley.negotiation.rounds import FIRST_CANDIDATES, MAX_CANDIDATES, Outcome, negotiate
from parley.negotiation.selection import select
from parley.negotiation.states import ClaimState
from parley.scheduler.attempts import Attempt
from parley.scheduler.candidates import CandidateNodes, common_nodes
from parley.scheduler.placing import Placing
from parley.scheduler.pods import Pods, now
from parley.scheduler.prospects import prospects
from parley.scheduler.questions import Question, ask, excess, have_preferences, question, scores
from parley.scheduler.talks import Failure, Talks
from parley.scheduler.unviable import bad_parameters, beyond_limit, class_topics, nothing_viable, waiting_line
from parley.sdk.checks import BadParameters


class Negotiator:
    """Decides where pods go. `candidates` is how many nodes a round asks about at most."""

    def __init__(
        self,
        state: State,
        pods: Pods,
        talks: Talks,
        placing: Placing,
        candidates: int,
    ) -> None:
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._pods = pods
        self._talks = talks
        self._placing = placing
        self._candidates = candidates

    async def negotiate(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], nodes: CandidateNodes | None = None
    ) -> None:
        """Find a node for the pod's pending claims, as far as it goes now; among these if they are given."""
        attempt = self._pods.attempt(pod)
        if self._pods.blocked(key, pod):
            return
        attempt.offer_ended()
        pending = [claim for claim in claims if claim.state(pod) is ClaimState.PENDING]
        try:
            asked = question(self._drivers, reference(pod), pending)
        except BadParameters as error:
            problem, line = bad_parameters(pod, pending, str(error))
            await self._pods.wait(key, pod, problem.code, problem.message, line, problem.topics)
            return
        if not await self._within_limits(key, pod, pending, asked):
            return
        if nodes is None:
            classes = [claim.class_ for claim in claims if claim.class_]
            nodes = CandidateNodes(self._cluster, pod, classes, common_nodes(claims))
        if asked.outside:
            await self._talk(key, pod, claims, pending, asked, nodes)
            return
        exact = self._offers(attempt, pod, claims, pending)
        outcome = self._ask_inside(attempt, asked, nodes, exact=exact)
        await self._conclude(key, pod, claims, asked, nodes, outcome, exact=exact)

    async def _within_limits(self, key: Key, pod: Pod, pending: Sequence[PodClaim], asked: Question) -> bool:
        """Whether the pod's namespace may hold what is pending; if not, the pod waits."""
        namespace = pod.metadata.namespace
        over = excess(self._drivers, self._ledger.limits, namespace, asked, pending)
        if over is None:
            return True
        problem, line = beyond_limit(namespace, over)
        await self._pods.wait(key, pod, problem.code, problem.message, line, problem.topics)
        return False

    def _ask_inside(self, attempt: Attempt, asked: Question, nodes: CandidateNodes, *, exact: bool) -> Outcome:
        choosy = exact or have_preferences(self._drivers, asked)
        return negotiate(
            nodes,
            ask(self._drivers, asked, attempt.excluded),
            first=self._candidates if choosy else FIRST_CANDIDATES,
            limit=self._candidates,
            enough=MAX_CANDIDATES if exact else 1 + len(attempt.refused | attempt.left),
        )

    async def _talk(
        self,
        key: Key,
        pod: Pod,
        claims: Sequence[PodClaim],
        pending: Sequence[PodClaim],
        asked: Question,
        nodes: CandidateNodes,
    ) -> None:
        inside = ask(self._drivers, asked, self._pods.attempt(pod).excluded)
        heard = await self._talks.hear(key, pod, asked, nodes, inside)
        if isinstance(heard, Failure):
            self._pods.block(key, pod)
            await self._placing.give_back_all(pod)
            await self._placing.failed(key, pod, heard.node, heard.message, heard.permanent)
        elif heard is not None and await self._within_limits(key, pod, pending, asked):
            await self._conclude(key, pod, claims, asked, nodes, heard, exact=False)

    async def _conclude(
        self,
        key: Key,
        pod: Pod,
        claims: Sequence[PodClaim],
        asked: Question,
        nodes: CandidateNodes,
        outcome: Outcome,
        *,
        exact: bool,
    ) -> None:
        attempt = self._pods.attempt(pod)
        attempt.outcome, attempt.drivers = outcome, asked.drivers
        if not outcome.viable:
            await self._nothing_viable(key, pod, claims, nodes, asked)
            return
        await self._proceed(key, pod, claims, asked, nodes, exact=exact)

    def _offers(self, attempt: Attempt, pod: Pod, claims: Sequence[PodClaim], pending: Sequence[PodClaim]) -> bool:
        """Whether the scheduler gets to choose. Never for named claims: an offer can't serve two pods; nor without
        a node part: an offer has a result, for which the kubelet would look for a plugin."""
        if pod.spec.node_name or len(pending) < len(claims) or any(claim.claim is not None for claim in claims):
            return False
        classes = [claim.class_ for claim in pending if claim.class_ is not None]
        if any(class_.node_part == "None" for class_ in classes):
            return False
        return attempt.exact or any(class_.placement == "Exact" for class_ in classes)

    async def _nothing_viable(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], nodes: CandidateNodes, asked: Question
    ) -> None:
        attempt = self._pods.attempt(pod)
        if not pod.spec.node_name and any(c.holding and pod.metadata.uid in c.holding.pods for c in claims):
            await self._placing.give_back_all(pod)
            self._pods.retry(key)
            return
        total = len(self._cluster.node_names())
        found = nothing_viable(total, claims, asked.requests, nodes.misfits, attempt.outcome)
        line = waiting_line(pod, asked, attempt, nodes.only)
        helps = prospects(self._drivers, nodes, asked, attempt.excluded)
        await self._pods.wait(key, pod, found.code, found.message, line, found.topics, helps)

    async def _proceed(
        self,
        key: Key,
        pod: Pod,
        claims: Sequence[PodClaim],
        asked: Question,
        nodes: CandidateNodes,
        *,
        exact: bool,
    ) -> None:
        attempt = self._pods.attempt(pod)
        viable = [node for node in attempt.outcome.viable if not asked.outside or nodes.fits(node)]
        if not viable:
            self._talks.end(pod)
            self._pods.retry(key)
            return
        fresh = [node for node in viable if node not in attempt.refused]
        if not fresh and not pod.spec.node_name:
            if now() < attempt.retry_at or not attempt.retry_at:
                await self._all_refused(key, pod, attempt, claims)
                return
            attempt.begin_again()
            fresh = viable
        if exact:
            await self._placing.offer(key, pod, claims, asked, fresh[:MAX_CANDIDATES])
            return
        viable = fresh or viable
        said = self._talks.scores(pod, attempt.outcome, asked) if asked.outside else {}
        selected = select(
            viable, scores(self._drivers, asked, viable, said), attempt.left, self._cluster.usage.pods
        )
        assert selected is not None
        await self._placing.allocate(key, pod, claims, asked, selected, offered=False)

    async def _all_refused(self, key: Key, pod: Pod, attempt: Attempt, claims: Sequence[PodClaim]) -> None:
        # Again at each look: a shorter delay that was pending, of a retry, has swallowed the one of the last look.
        self._pods.again(key, attempt.retry_at - now() if attempt.retry_at else attempt.pause(now()))
        nodes = in_words(dict.fromkeys(sorted(attempt.refused), "viable, but refused by the scheduler"))
        message = f"{nodes}. See the pod's own conditions for the scheduler's reasons; Parley offers them again"
        topics = [*class_topics(claims), NODES]
        await self._pods.wait(key, pod, reasons.SCHEDULER_REFUSED, message, pod.metadata.uid, topics)
