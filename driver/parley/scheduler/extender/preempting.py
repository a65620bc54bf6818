"""Preemption for the claims of rejected pods, outside of their scheduler's calls.

A scheduler's own preemption can't do it: it evicts for what its own filters check. So Parley evicts pods of lower
priority, as for pods of unmodified schedulers (`scheduler.claim_preemption`), when a rejected pod is reconciled:
if none of the nodes that the scheduler proposed is viable, and the scheduler's own evictions would not help.
"""

from collections.abc import Sequence, Set
from itertools import islice

from parley.api.builtin import Pod
from parley.api.models import ResourceClass
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.decide import Blocked, Search, admit, survey
from parley.control.decision.demand import Demand
from parley.control.objects.pod import priority, reference
from parley.control.state import State
from parley.negotiation.states import ClaimState
from parley.scheduler.attempts import TERMINATING_SECONDS
from parley.scheduler.candidates import CandidateNodes, PreemptibleNodes, common_nodes, may_preempt
from parley.scheduler.claim_preemption import Postponed
from parley.scheduler.claim_victims import Preemptor, drivers_allowing_preemption
from parley.scheduler.extender.filtering import CandidateFilter
from parley.scheduler.extender.nodesets import Nodes
from parley.scheduler.extender.rejections import Rejection
from parley.scheduler.negotiator import READING_SECONDS, Negotiator
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import Wait

SCHEDULER_SECONDS = 15.0
"""How long a scheduler gets to ask about a node, or to evict pods there itself, if the pod could then run there by
Parley's model of the scheduler's filters."""


class Preemptors:
    """Has pods of lower priority evicted for the claims of rejected pods, outside of their scheduler's calls."""

    def __init__(self, state: State, pods: Pods, filtering: CandidateFilter, negotiator: Negotiator) -> None:
        self._state = state
        self._pods = pods
        self._filtering = filtering
        self._negotiator = negotiator

    def add_proposed(self, pod: Pod, nodes: Nodes) -> None:
        """Record nodes that pass the scheduler's own filters. It asks about a nominated node alone, before all
        others. Standalone drivers that are being asked about other nodes are asked about these, too."""
        attempt = self._pods.attempt(pod)
        before, session = attempt.extender.proposed, attempt.standalone.session
        alone = nodes == {pod.status.nominated_node_name}
        attempt.extender.proposed = before | nodes if alone else nodes
        if session is not None and not nodes <= before:
            session.reevaluate_nodes()

    def set_preemptible(self, pod: Pod, nodes: Sequence[str]) -> None:
        """Record the nodes where the scheduler could evict pods for what its own filters check. If they are others
        than before, the pod is reconciled: pods may be evicted there for claims, too, and standalone drivers that
        are being asked about other nodes are asked about these."""
        attempt, found = self._pods.attempt(pod), frozenset(nodes)
        if found == attempt.extender.preemptible:
            return
        attempt.extender.preemptible = found
        if attempt.standalone.session is not None:
            attempt.standalone.session.reevaluate_nodes()
        self._pods.requeue((pod.metadata.namespace, pod.metadata.name))

    def node_for_evictions(self, pod: Pod, claims: Sequence[PodClaim]) -> str:
        """A node on which the pod's scheduler could evict pods for what its own filters check, and that would be
        viable then; "" if there is none. By Parley's model of it, until the scheduler has named such nodes.

        If the pod is nominated and no pods are terminating there, an earlier try to make it evict was interrupted.
        """
        if not may_preempt(self._state.cluster, pod):
            return ""
        if pod.status.nominated_node_name:
            return pod.status.nominated_node_name
        attempt = self._pods.attempt(pod).extender
        if not attempt.preemptible:
            nodes = PreemptibleNodes(self._state, pod, *_limits(claims))
            attempt.preemptible = frozenset(islice(nodes, self._negotiator.candidates))
        return min(self._filtering.viable(pod, sorted(attempt.preemptible)), default="")

    async def make_room(
        self, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection
    ) -> Wait | Postponed | None:
        """Evict pods for the rejected pod, if still no node is viable. Returns what it waits for meanwhile, or why
        evictions are postponed; None if none can help, or if its scheduler would get another answer now.

        Raises Busy if the pod passes filter, is deleted or bound meanwhile, DriverFault, and what a client raises.
        """
        problems = [claim.problem for claim in claims if claim.problem is not None]
        if any(not problem.transient for problem in problems):
            self._state.nominations.end(pod.metadata.uid)
            return None
        if not rejection.none_viable:
            if not rejection.until and not rejection.problem.keeps_nomination:
                self._state.nominations.end(pod.metadata.uid)
            return None
        if problems or rejection.problem.transient:
            return None
        states = {claim.entry: claim.state(pod) for claim in claims}
        if ClaimState.STALE in states.values():
            return Postponed("", "", READING_SECONDS)  # it is not known yet what the pod needs of that claim
        pending = [claim for claim in claims if states[claim.entry] is ClaimState.PENDING]
        demand = admit(self._state, reference(pod), pending, self._pods.attempt(pod).begun)
        if isinstance(demand, Blocked) and demand.problem.transient:
            return Postponed("", "", READING_SECONDS)  # its parameters are being read again; the nomination stays
        drivers = frozenset[str]()
        if not isinstance(demand, Blocked) and not demand.standalone:
            drivers = drivers_allowing_preemption(self._state, pod, demand, claims)
        if not drivers or isinstance(demand, Blocked):
            self._state.nominations.end(pod.metadata.uid)
            return None
        if not self._state.cluster.placement_constraints_synced(pod):
            return Postponed("", "", READING_SECONDS)
        if not self._is_viable_nowhere(pod, claims, rejection):
            rejection.skip_report()
            return None
        if left := self._seconds_to_ask(pod, claims):
            rejection.skip_report()
            return Postponed("", "", left)
        if left := self._seconds_for_scheduler(pod, claims, demand):
            return Postponed("", "", left)
        self._pods.attempt(pod).extender.refused = self._refused_by_scheduler(pod, claims)
        return await self._negotiator.preemption.make_room(Preemptor(pod, claims, demand, drivers))

    def _is_viable_nowhere(self, pod: Pod, claims: Sequence[PodClaim], rejection: Rejection) -> bool:
        """Whether the rejection still holds, also for the nodes proposed before those where the scheduler would
        evict pods, as far as the pod still fits there. If so, it is renewed."""
        nodes, proposed = rejection.nodes, self._pods.attempt(pod).extender.proposed
        if proposed != nodes:
            fitting = CandidateNodes(self._state, pod, *_limits(claims))
            nodes = nodes.union(node for node in proposed if fitting.fits(node))
        found = self._filtering.filter(pod, sorted(nodes))
        if found.blocked is None or not found.by_nodes or found.blocked.problem.transient:
            return False
        if found.blocked.problem.code == rejection.problem.code:
            rejection.renew(found.blocked.problem, self._pods)
        return True

    def _seconds_to_ask(self, pod: Pod, claims: Sequence[PodClaim]) -> float:
        """For how many seconds the nomination still keeps what pods have left for this one, while the scheduler
        has yet to ask about the node, or to evict ordinary pods that were placed there since; 0 otherwise."""
        own = self._state.nominations.of(pod.metadata.uid)
        if own is None or not PreemptibleNodes(self._state, pod, *_limits(claims)).fits(own.node):
            return 0.0
        return max(own.until - now(), 0.0) if self._filtering.viable(pod, [own.node]) else 0.0

    def _seconds_for_scheduler(self, pod: Pod, claims: Sequence[PodClaim], demand: Demand) -> float:
        """For how many seconds to leave it to the scheduler to find a node, or to wait for pods that it evicts."""
        attempt, usage = self._pods.attempt(pod).extender, self._state.cluster.usage
        nominated = pod.status.nominated_node_name
        if nominated and usage.any_terminating(nominated, priority(pod)):
            seconds = TERMINATING_SECONDS if self._filtering.viable(pod, [nominated]) else 0.0
        else:
            seconds = SCHEDULER_SECONDS if self._is_viable_by_model(pod, claims, demand) else 0.0
        if seconds != attempt.deferred_for:
            attempt.deferred_for, attempt.deferred_since = seconds, now()
        return max(attempt.deferred_since + seconds - now(), 0.0)

    def _is_viable_by_model(self, pod: Pod, claims: Sequence[PodClaim], demand: Demand) -> bool:
        """Whether some node would be viable, by Parley's model, that the scheduler has not asked about, or would
        be after the scheduler's own evictions."""
        kinds: list[type[CandidateNodes]] = [CandidateNodes]
        if may_preempt(self._state.cluster, pod):
            kinds.append(PreemptibleNodes)
        for kind in kinds:
            nodes = kind(self._state, pod, *_limits(claims))
            search = Search(nodes, self._pods.attempt(pod).excluded, limit=self._negotiator.candidates)
            if survey(self._state, demand, search).viable:
                return True
        return False

    def _refused_by_scheduler(self, pod: Pod, claims: Sequence[PodClaim]) -> frozenset[str]:
        """The nodes that the pod fits by Parley's model, and that its scheduler does not propose, even after
        evictions: it has reasons of its own. Without the nominated node."""
        own, attempt = self._state.nominations.of(pod.metadata.uid), self._pods.attempt(pod).extender
        nodes = CandidateNodes(self._state, pod, *_limits(claims))
        known = attempt.proposed | attempt.preemptible | {own.node if own is not None else ""}
        return frozenset(name for name in self._state.ledger.nodes() if name not in known and nodes.fits(name))


def _limits(claims: Sequence[PodClaim]) -> tuple[list[ResourceClass], Set[str] | None]:
    """What limits the nodes: the claims' classes, and the nodes of the claims that are allocated already."""
    return [claim.class_ for claim in claims if claim.class_ is not None], common_nodes(claims)
