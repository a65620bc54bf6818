"""Judges a scheduler's candidates for one pod, from memory. Holds nothing, writes nothing."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.cluster import reference
from parley.control.podclaims import PodClaim, Problem, Topic
from parley.control.state import State
from parley.negotiation.rounds import FIRST_CANDIDATES, Outcome, negotiate
from parley.negotiation.selection import select
from parley.negotiation.states import ClaimState
from parley.negotiation.waiting import Helps
from parley.scheduler.candidates import ProposedNodes, common_nodes
from parley.scheduler.extender.expected import expected_claims
from parley.scheduler.extender.holds import Hold, Holds
from parley.scheduler.extender.rivals import PROMISED, LeastPromised, beside
from parley.scheduler.extender.scope import foreign_topics, unserved
from parley.scheduler.pods import Pods
from parley.scheduler.prospects import prospects
from parley.scheduler.questions import Question, ask, excess, have_preferences, question, scores, units
from parley.scheduler.unviable import bad_parameters, beyond_limit, class_topics, nothing_viable, waiting_line
from parley.sdk.checks import BadParameters, DriverFault

HELD: Topic = ("held",)
"""Something that a pod was told is taken, or will not be."""

_UNUSABLE = {ClaimState.CLEARED, ClaimState.UNKNOWN, ClaimState.OFFERED, ClaimState.MISPLACED}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Nodes that will do, and what the pod is told with them; or the problem, with the line that waits for it, and
    which changes on nodes are of use to that.

    `undo`: what the pod holds is of no use and has to be given back first. `outside`: drivers outside are to be
    asked about the nodes, and to allocate, before one of them will do. `by_nodes`: pods are in that line only with
    the same nodes in question.
    """

    viable: tuple[str, ...] = ()
    hold: Hold | None = None
    problem: Problem | None = None
    line: Hashable = None
    helps: Helps | None = None
    undo: bool = False
    outside: bool = False
    by_nodes: bool = False


def unusable(pod: Pod, claims: Sequence[PodClaim]) -> bool:
    """Whether what an unbound pod's claims show is nothing that it could be bound with."""
    return any(claim.problem is None and claim.state(pod) in _UNUSABLE for claim in claims)


class Judge:
    """Finds the nodes that will do. `candidates` is how many drivers are asked about at a time."""

    def __init__(
        self,
        state: State,
        pods: Pods,
        holds: Holds,
        candidates: int,
    ) -> None:
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._pods = pods
        self._holds = holds
        self._candidates = candidates

    def judge(self, pod: Pod, names: Sequence[str], *, choosy: bool) -> Verdict:
        """Which of the nodes will do for the pod, beside what other pods were told.

        `choosy`: its scheduler has preferences, so that it is worth asking about more than the first few nodes.
        """
        claims = expected_claims(self._state, pod)
        if why := unserved(pod, claims):
            topics = foreign_topics(pod, claims)
            return Verdict(problem=Problem(reasons.OTHER_SCHEDULER, why, topics), line=pod.metadata.uid)
        holds_some = any(c.holding is not None and pod.metadata.uid in c.holding.pods for c in claims)
        problem = next((claim.problem for claim in claims if claim.problem is not None), None)
        if problem is not None:
            return Verdict(problem=problem, line=(problem.code, *problem.topics), undo=holds_some)
        if unusable(pod, claims):
            problem = Problem(reasons.ALLOCATION_FAILED, "what the pod held is being given back", (), True)
            return Verdict(problem=problem, line=pod.metadata.uid, undo=True)
        verdict = self._negotiate(pod, claims, names, choosy=choosy)
        if verdict.problem is not None and holds_some:
            return replace(verdict, undo=not verdict.outside)
        return verdict

    def viable(self, pod: Pod, names: Sequence[str]) -> frozenset[str]:
        """All of the nodes that will do as things stand, whatever others were told."""
        claims = expected_claims(self._state, pod)
        pending = [c for c in claims if c.problem is None and c.state(pod) is ClaimState.PENDING]
        if unserved(pod, claims) or any(c.problem is not None or c.outside for c in claims):
            return frozenset()
        nodes = self.nodes(pod, claims, common_nodes(claims), names)
        if not pending:
            return frozenset(nodes)
        try:
            asked = question(self._drivers, reference(pod), pending)
            excluded = self._pods.attempt(pod).excluded
            return frozenset(negotiate(nodes, ask(self._drivers, asked, excluded), enough=len(names)).viable)
        except (BadParameters, DriverFault):
            return frozenset()

    def nodes(
        self, pod: Pod, claims: Sequence[PodClaim], only: frozenset[str] | None, names: Sequence[str]
    ) -> ProposedNodes:
        """Those of the scheduler's candidates that come into question."""
        classes = [c.class_ for c in claims if c.class_]
        return LeastPromised(self._cluster, pod, classes, only, names, self._holds)

    def _negotiate(self, pod: Pod, claims: Sequence[PodClaim], names: Sequence[str], *, choosy: bool) -> Verdict:
        pending = [claim for claim in claims if claim.state(pod) is ClaimState.PENDING]
        meant = {c.uid: who for c in pending if (who := self._holds.node_of(c.uid, but=pod.metadata.uid))}
        for claim in pending:
            if claim.uid in meant and (claim.class_ is None or not claim.class_.shareable):
                return _in_use(claim, meant[claim.uid][0])
        nodes = self.nodes(pod, claims, _only(claims, meant), names)
        pending = [claim for claim in pending if claim.uid not in meant]
        if not pending:
            return self._joining(pod, claims, nodes, frozenset(meant))
        try:
            asked = question(self._drivers, reference(pod), pending)
        except BadParameters as error:
            problem, line = bad_parameters(pod, pending, str(error))
            return Verdict(problem=problem, line=line)
        if verdict := self._beyond(pod, asked, pending) or self._outside(asked):
            return verdict
        return self._asked(pod, claims, pending, asked, nodes, frozenset(meant), choosy=choosy)

    def _joining(
        self, pod: Pod, claims: Sequence[PodClaim], nodes: ProposedNodes, meant: frozenset[str]
    ) -> Verdict:
        """Nothing is to be allocated for the pod, but for the claims in `meant` if those that they are meant for
        come to nothing."""
        viable = tuple(nodes)
        if not viable:
            return self._nothing(pod, claims, None, nodes, Outcome(), soon=bool(meant))
        if not meant:
            return Verdict(viable)
        user = reference(pod)
        return Verdict(viable, Hold(user, question(self._drivers, user, ()), frozenset(viable), {}, meant))

    def _beyond(self, pod: Pod, asked: Question, pending: Sequence[PodClaim]) -> Verdict | None:
        namespace = pod.metadata.namespace
        over = excess(self._drivers, self._ledger.limits, namespace, asked, pending)
        if over is None:
            return None
        problem, line = beyond_limit(namespace, over)
        return Verdict(problem=problem, line=line)

    def _outside(self, asked: Question) -> Verdict | None:
        """Drivers outside are asked in the background; by what they allocate one node will do afterwards."""
        if not asked.outside:
            return None
        names = ", ".join(sorted({asked.drivers[claim.entry] for claim in asked.outside}))
        words = f"driver {names}, outside of the controller, is asked first"
        problem = Problem(reasons.WAITING_FOR_DRIVERS, words, tuple(class_topics(asked.outside)))
        return Verdict(problem=problem, line=None, outside=True)

    def _asked(
        self,
        pod: Pod,
        claims: Sequence[PodClaim],
        pending: Sequence[PodClaim],
        asked: Question,
        nodes: ProposedNodes,
        meant: frozenset[str],
        *,
        choosy: bool,
    ) -> Verdict:
        attempt = self._pods.attempt(pod)
        plain = ask(self._drivers, asked, attempt.excluded)
        choosy = choosy or have_preferences(self._drivers, asked)
        outcome = negotiate(
            nodes,
            beside(self._drivers, self._holds, reference(pod), asked, plain),
            first=self._candidates if choosy else FIRST_CANDIDATES,
            limit=self._candidates,
            enough=1 + len(attempt.left),
        )
        attempt.outcome, attempt.drivers = outcome, asked.drivers
        if not outcome.viable:
            soon = bool(meant) or any(PROMISED in words for words in outcome.refused.values())
            return self._nothing(pod, claims, asked, nodes, outcome, soon=soon)
        viable = tuple(node for node in outcome.viable if node not in attempt.left) or outcome.viable
        named = meant.union(claim.uid for claim in pending if claim.claim is not None)
        if named:
            preferences = scores(self._drivers, asked, viable, {})
            viable = tuple(filter(None, [select(viable, preferences, pods=self._cluster.usage.pods)]))
        hold = Hold(reference(pod), asked, frozenset(viable), self._units(asked, pending), named)
        return Verdict(viable, hold)

    def _units(self, asked: Question, pending: Sequence[PodClaim]) -> dict[str, dict[str, int]]:
        limited = [claim for claim in pending if claim.class_ is not None and claim.class_.limits]
        counts = units(self._drivers, asked) if limited else {}
        found: dict[str, dict[str, int]] = {}
        for claim in limited:
            found.setdefault(claim.class_name, {})[claim.uid] = counts.get(claim.entry, 1)
        return found

    def _nothing(
        self,
        pod: Pod,
        claims: Sequence[PodClaim],
        asked: Question | None,
        nodes: ProposedNodes,
        outcome: Outcome,
        *,
        soon: bool,
    ) -> Verdict:
        """`soon`: because of what other pods were told, which may be otherwise in a moment."""
        total = len(self._cluster.node_names())
        drivers = asked.requests if asked is not None else ()
        found = nothing_viable(total, claims, drivers, nodes.misfits, outcome)
        if soon:
            found = replace(found, topics=(*found.topics, HELD), transient=True)
        attempt = self._pods.attempt(pod)
        if asked is None:
            return Verdict(problem=found, line=pod.metadata.uid, by_nodes=True)
        helps = prospects(self._drivers, nodes, asked, attempt.excluded)
        line = waiting_line(pod, asked, attempt, nodes.only)
        return Verdict(problem=found, line=line, helps=helps, by_nodes=True)


def _only(claims: Sequence[PodClaim], meant: Mapping[str, tuple[Hold, str]]) -> frozenset[str] | None:
    """Where all is that is allocated, or is being allocated for other pods; None if nothing limits the nodes."""
    only = common_nodes(claims)
    for _, node in meant.values():
        only = frozenset([node]) if only is None else only & {node}
    return only


def _in_use(claim: PodClaim, other: Hold) -> Verdict:
    whom = f"pod {other.pod.namespace}/{other.pod.name}"
    words = f"claim {other.pod.namespace}/{claim.name} is being allocated for {whom}: wait until that is done"
    return Verdict(problem=Problem(reasons.CLAIM_IN_USE, words, (HELD,), True), line=(claim.uid, HELD))
