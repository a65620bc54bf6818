"""One pod's negotiation: propose candidates, hear the drivers, and decide on a node, or on what to wait for."""

from collections.abc import Sequence

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.cluster import Key, reference
from parley.control.decide import Blocked, Search, admit, best, class_topics, none_viable, survey
from parley.control.demand import Demand, ask
from parley.control.podclaims import NODES, PodClaim, Problem
from parley.control.state import State
from parley.negotiation.answers import in_words
from parley.negotiation.rounds import MAX_CANDIDATES, Outcome
from parley.negotiation.states import ClaimState
from parley.scheduler.attempts import Attempt
from parley.scheduler.candidates import CandidateNodes, common_nodes
from parley.scheduler.placing import Placing
from parley.scheduler.pods import Pods, now
from parley.scheduler.talks import Failure, Talks


class Negotiator:
    """Decides where pods go. `candidates` is how many nodes a round asks about at most."""

    def __init__(self, state: State, pods: Pods, talks: Talks, placing: Placing, candidates: int) -> None:
        self._state = state
        self._pods = pods
        self._talks = talks
        self._placing = placing
        self.candidates = candidates

    async def negotiate(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], nodes: CandidateNodes | None = None
    ) -> None:
        """Find a node for the pod's pending claims, as far as it goes now; among these if they are given."""
        attempt = self._pods.attempt(pod)
        if self._pods.blocked(key, pod):
            return
        attempt.offer_ended()
        pending = [claim for claim in claims if claim.state(pod) is ClaimState.PENDING]
        demand = admit(self._state, reference(pod), pending)
        if isinstance(demand, Blocked):
            await self._pods.wait(key, pod, demand)
            return
        if nodes is None:
            classes = [claim.class_ for claim in claims if claim.class_]
            nodes = CandidateNodes(self._state.cluster, pod, classes, common_nodes(claims))
        exact = not demand.outside and self._offers(attempt, pod, claims, pending)
        search = self._search(attempt, nodes, exact=exact)
        if demand.outside:
            outcome = await self._hear(key, pod, pending, demand, search)
        else:
            outcome = survey(self._state, demand, search)
        if outcome is None:
            return
        attempt.outcome, attempt.drivers = outcome, demand.drivers
        if outcome.viable:
            await self._proceed(key, pod, claims, demand, search, exact=exact)
        else:
            await self._nothing_viable(key, pod, claims, demand, search)

    def _search(self, attempt: Attempt, nodes: CandidateNodes, *, exact: bool) -> Search:
        """Of a pod that was refused somewhere, what helps others may be of no use."""
        return Search(
            nodes,
            attempt.excluded,
            alike=None if attempt.excluded or attempt.refused else nodes.alike,
            limit=self.candidates,
            enough=MAX_CANDIDATES if exact else 1 + len(attempt.refused | attempt.left),
            choosy=exact,
        )

    async def _hear(
        self, key: Key, pod: Pod, pending: Sequence[PodClaim], demand: Demand, search: Search
    ) -> Outcome | None:
        """The outcome with the standalone drivers' answers; None if there is none to go on with."""
        inside = ask(self._state.drivers, demand, search.excluded)
        heard = await self._talks.hear(key, pod, demand, search.nodes, inside)
        if isinstance(heard, Failure):
            self._pods.block(key, pod)
            await self._placing.give_back_all(pod)
            await self._placing.failed(key, pod, heard.node, heard.message, heard.permanent)
            return None
        if heard is None:
            return None
        admitted = admit(self._state, reference(pod), pending)  # others may have got something meanwhile
        if isinstance(admitted, Blocked):
            await self._pods.wait(key, pod, admitted)
            return None
        return heard

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
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], demand: Demand, search: Search
    ) -> None:
        if not pod.spec.node_name and any(c.holding and pod.metadata.uid in c.holding.pods for c in claims):
            await self._placing.give_back_all(pod)
            self._pods.retry(key)
            return
        outcome = self._pods.attempt(pod).outcome
        await self._pods.wait(key, pod, none_viable(self._state, claims, demand, search, outcome))

    async def _proceed(
        self, key: Key, pod: Pod, claims: Sequence[PodClaim], demand: Demand, search: Search, *, exact: bool
    ) -> None:
        attempt = self._pods.attempt(pod)
        viable = [node for node in attempt.outcome.viable if not demand.outside or search.nodes.fits(node)]
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
            await self._placing.offer(key, pod, claims, demand, fresh[:MAX_CANDIDATES])
            return
        outside = self._talks.scores(pod, attempt.outcome, demand) if demand.outside else {}
        selected = best(self._state, demand, fresh or viable, attempt.left, outside)
        await self._placing.allocate(key, pod, claims, demand, selected, offered=False)

    async def _all_refused(self, key: Key, pod: Pod, attempt: Attempt, claims: Sequence[PodClaim]) -> None:
        # Again at each look: a shorter delay that was pending, of a retry, has swallowed the one of the last look.
        self._pods.again(key, attempt.retry_at - now() if attempt.retry_at else attempt.pause(now()))
        nodes = in_words(dict.fromkeys(sorted(attempt.refused), "viable, but refused by the scheduler"))
        message = f"{nodes}. See the pod's own conditions for the scheduler's reasons; Parley offers them again"
        problem = Problem(reasons.SCHEDULER_REFUSED, message, (*class_topics(claims), NODES))
        await self._pods.wait(key, pod, Blocked(problem, pod.metadata.uid))
