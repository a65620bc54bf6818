"""Selects nodes for pods without asking their standalone driver, by the `capacity` in its answer for another pod.

Only for pods whose claims of standalone drivers are generated, and all of one driver. Not for pods whose earlier
node was refused or failed: these are negotiated for. Nor are pods evicted because of an answer for another pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from parley.api.builtin import Pod
from parley.api.models import ClaimScheduling
from parley.control.decision.demand import Demand
from parley.control.decision.eligible import EligibleNodes
from parley.control.ledger import Ledger
from parley.control.objects.pod import reference
from parley.kube.cache import Key
from parley.negotiation.answers import Answer, viable_for_all
from parley.negotiation.rounds import Ask, Outcome
from parley.scheduler.answered_capacity import AnsweredCapacity
from parley.scheduler.attempts import StandaloneSession
from parley.scheduler.entries import capacity_of, scores_of
from parley.scheduler.pods import Pods, now
from parley.sdk import PodReference

HELD_SECONDS = 15.0
"""How long a pod waits at most for answers about other pods."""


class UnaskedPods:
    """Finds nodes for pods without asking their standalone driver, and updates `AnsweredCapacity` with what is
    answered, selected and allocated. At most `limit` nodes are candidates for a pod."""

    def __init__(self, ledger: Ledger, pods: Pods, limit: int) -> None:
        self._pods = pods
        self._limit = limit
        self._capacity = AnsweredCapacity(ledger)

    def is_eligible(self, pod: Pod, demand: Demand) -> bool:
        """Whether the pod may be placed without asking its driver: no driver has been asked about it yet."""
        attempt = self._pods.attempt(pod)
        begun = attempt.standalone.rounds or attempt.refused or attempt.avoided or attempt.excluded
        return not begun and not pod.spec.node_name and demand.standalone_equivalence_key is not None

    def hold(self, pod: Pod, demand: Demand) -> float:
        """How many seconds at most the pod has to wait for the answer about another pod; 0.0 if it need not
        wait."""
        attempt, wanted = self._pods.attempt(pod), demand.standalone_equivalence_key
        if self._capacity.nodes(wanted, now()):
            return 0.0
        mine, driver = attempt.standalone, demand.drivers[demand.standalone[0].entry]
        if mine.held_since is None:
            mine.held_since = now()
        if (left := mine.held_since + HELD_SECONDS - now()) <= 0:
            return 0.0
        key = (pod.metadata.namespace, pod.metadata.name)
        return max(min(left, self._capacity.hold(key, attempt.place, wanted, driver, now())), 0.0)

    def outcome(
        self, pod: Pod, session: StandaloneSession, demand: Demand, nodes: EligibleNodes, ask: Ask
    ) -> Outcome | None:
        """The outcome with the nodes that have enough for the pod; None if its driver has to be asked."""
        wanted = demand.standalone_equivalence_key
        known = self._capacity.nodes(wanted, now())
        candidates = tuple(node for node in known if nodes.fits(node) and not nodes.evicts(node))[: self._limit]
        answers = dict(ask(candidates)) if demand.requests and candidates else {}
        answers |= {claim.entry: Answer(candidates) for claim in demand.standalone}
        viable = viable_for_all(candidates, answers)
        if not viable:
            self._capacity.asked(pod.metadata.uid, wanted, now())
            return None
        session.scores = self._capacity.scores(wanted)
        return Outcome(session.negotiation.outcome.round, candidates, answers, viable)

    def answered(
        self, pod: Pod, session: StandaloneSession, demand: Demand, entries: Sequence[ClaimScheduling]
    ) -> None:
        """Record, once, what these answers for a pod say about other pods."""
        if demand.standalone_equivalence_key is None or tuple(entries) == session.recorded_entries:
            return
        session.recorded_entries = tuple(entries)
        mine = [entry for entry in entries if demand.drivers.get(entry.name) == entry.driver_name]
        if mine and all(entry.viable_nodes for entry in mine):
            uid, driver = pod.metadata.uid, mine[0].driver_name
            answer = (capacity_of(mine), scores_of(mine))
            self._requeue(self._capacity.answered(uid, demand.standalone_equivalence_key, driver, *answer, now()))

    def without_full(self, pod: Pod, demand: Demand, nodes: EligibleNodes, outcome: Outcome) -> Outcome:
        """The outcome for a pod that was asked about, without nodes that selections for other pods have filled
        since. If all nodes that need no evictions are full, they stay viable: that is no reason to evict pods."""
        if demand.standalone_equivalence_key is None:
            return outcome
        if not outcome.viable:
            self._requeue(self._capacity.none_viable(pod.metadata.uid, demand.standalone_equivalence_key))
        fitting = [node for node in outcome.viable if nodes.fits(node) and not nodes.evicts(node)]
        others = [node for node in outcome.viable if node not in fitting]
        left = (self._capacity.not_full(demand.standalone_equivalence_key, viable) for viable in (fitting, others))
        return replace(outcome, viable=tuple(chain.from_iterable(left)))

    def scores(self, demand: Demand, scores: Mapping[str, float]) -> Mapping[str, float]:
        """A driver's scores, adjusted by what was selected since."""
        return self._capacity.tie_breaking(demand.standalone_equivalence_key, scores)

    def selected(self, pod: Pod, demand: Demand, node: str) -> None:
        """Note that the node was selected, with or without asking the driver."""
        if demand.standalone_equivalence_key is not None:
            self._capacity.selected(reference(pod), demand.standalone_equivalence_key, node)

    def failed(self, demand: Demand, node: str) -> None:
        """Note that the driver could not allocate on the node."""
        self._capacity.failed(demand.standalone_equivalence_key, node)

    def allocated(self, pod: Pod) -> None:
        """Note that the claims show what the driver allocated."""
        self._capacity.ended(pod.metadata.uid)

    def ended(self, pod: PodReference) -> None:
        """Note that the pod waits for no driver any more."""
        self._capacity.ended(pod.uid)
        self._capacity.stop_holding((pod.namespace, pod.name))

    def _requeue(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._pods.requeue(key)
