"""Which question standalone drivers are asked next: the rounds of a session, until a node is viable or no question
is left.

Unlike embedded drivers, which are asked anew at each reconciliation, a standalone driver answers for the nodes of
the latest round only. So the rounds also begin again when something may have changed for nodes of earlier ones.
"""

from dataclasses import replace

from parley.api.builtin import Pod
from parley.control.claims.podclaims import NODES, ROOM
from parley.control.decision.demand import Demand
from parley.control.decision.eligible import EligibleNodes
from parley.negotiation.answers import (
    Answers,
    Proposal,
    agreed_alternatives,
    no_other_node,
    refusals,
    viable_for_all,
)
from parley.negotiation.rounds import Ask, Negotiation, Outcome
from parley.negotiation.waiting import Topic
from parley.scheduler.attempts import StandaloneSession
from parley.scheduler.pods import Pods, now

_ELIGIBILITY: tuple[Topic, ...] = (NODES, ROOM)
"""The topics that determine which nodes are eligible."""


class StandaloneRounds:
    """Opens and closes the rounds of sessions, about `candidates` nodes each at most."""

    def __init__(self, pods: Pods, candidates: int) -> None:
        self._pods = pods
        self._candidates = candidates

    def begin(self, pod: Pod, demand: Demand, nodes: EligibleNodes, rounds: int) -> StandaloneSession:
        """A session whose first question is open. `rounds` is the number of the last question about the pod."""
        negotiation, revision = self._negotiation(pod, nodes, rounds), self._pods.revision(_ELIGIBILITY)
        return StandaloneSession(
            demand.standalone_question_key, negotiation, now(), revision, self._released(demand)
        )

    def close(
        self,
        pod: Pod,
        session: StandaloneSession,
        demand: Demand,
        answers: Answers,
        nodes: EligibleNodes,
        ask: Ask,
    ) -> Outcome | None:
        """Close the round, to which all answers are there: the outcome, or None if another round is open now.
        `ask` asks the embedded drivers."""
        _note_accepted(session, demand, answers)
        final = self._close(pod, session, answers, nodes)
        if final is None or (not final.viable and self._ask_further(pod, session, demand, answers, nodes, ask)):
            return None
        return final

    def _ask_further(
        self,
        pod: Pod,
        session: StandaloneSession,
        demand: Demand,
        answers: Answers,
        nodes: EligibleNodes,
        ask: Ask,
    ) -> bool:
        """Open another round, if one is due after all nodes were asked about and none is viable; whether it
        did."""
        return (
            self._widen(session, answers, nodes)
            or self._repeat(pod, session, answers, nodes)
            or self._start_over(pod, session, demand, answers, nodes)
            or self._ask_where_freed(pod, session, demand, nodes, ask)
        )

    def _widen(self, session: StandaloneSession, answers: Answers, nodes: EligibleNodes) -> bool:
        """Open a round about nodes that have become eligible, if there are any. Not if a driver said that it has
        no other nodes: it changes its answer by itself when it has."""
        revision = self._pods.revision(_ELIGIBILITY)
        if revision == session.nodes_revision or no_other_node(answers):
            return False
        session.nodes_revision = revision
        session.negotiation.widen(nodes)
        return not session.negotiation.over

    def _repeat(self, pod: Pod, session: StandaloneSession, answers: Answers, nodes: EligibleNodes) -> bool:
        """Open another round about nodes that were not viable, if drivers propose them now. With pauses, because a
        driver may refuse again what it proposes."""
        if session.repeats.left(now()) > 0 or not self._ask_about_proposed(pod, session, answers, nodes):
            return False
        session.repeats.begin(now())
        return True

    def _start_over(
        self, pod: Pod, session: StandaloneSession, demand: Demand, answers: Answers, nodes: EligibleNodes
    ) -> bool:
        """Ask about all nodes again, if a standalone driver has deallocated something since: its answer covers the
        nodes of the latest round only, and the others that it proposes may not be eligible. Not if a driver said
        that it has no other nodes. With a back-off."""
        released = self._released(demand)
        if released == session.released or no_other_node(answers) or session.repeats.left(now()) > 0:
            return False
        session.released = released
        session.repeats.begin(now())
        session.negotiation = self._negotiation(pod, nodes, session.negotiation.outcome.round)
        return not session.negotiation.over

    def _ask_where_freed(
        self, pod: Pod, session: StandaloneSession, demand: Demand, nodes: EligibleNodes, ask: Ask
    ) -> bool:
        """Open another round about nodes of earlier rounds that only embedded drivers refused, if these find them
        viable now. With the same pauses."""
        if not demand.requests or session.repeats.left(now()) > 0:
            return False
        revision = self._pods.revision((*(("driver", name) for name in sorted(demand.requests)), *_ELIGIBILITY))
        if revision == session.freed:
            return False
        session.freed = revision
        last = frozenset(session.negotiation.outcome.candidates)
        earlier = [node for node in session.accepted if node not in last and nodes.fits(node)]
        viable = viable_for_all(earlier, ask(earlier)) if earlier else ()
        if not viable:
            return False
        session.repeats.begin(now())
        proposal = Proposal(viable, ())
        session.negotiation = self._negotiation(pod, nodes, session.negotiation.outcome.round, proposal)
        return not session.negotiation.over

    def _released(self, demand: Demand) -> tuple[int, ...]:
        """A revision that changes whenever a standalone driver of the pod's deallocates something."""
        return self._pods.revision(demand.standalone_topics)

    def _ask_about_proposed(
        self, pod: Pod, session: StandaloneSession, answers: Answers, nodes: EligibleNodes
    ) -> bool:
        """Open a round about eligible nodes that the drivers propose, even if they were asked about before."""
        proposal = agreed_alternatives(answers)
        if proposal is None:
            return False
        again = self._negotiation(pod, nodes, session.negotiation.outcome.round, proposal)
        if again.over:
            return False
        session.negotiation = again
        return True

    def _close(
        self, pod: Pod, session: StandaloneSession, answers: Answers, nodes: EligibleNodes
    ) -> Outcome | None:
        """The same, as far as the candidates of this negotiation go."""
        negotiation = session.negotiation
        if negotiation.over:
            return self._reconsider(pod, session, answers, nodes)
        if negotiation.enough(answers):
            return negotiation.outcome.with_answers(answers)
        negotiation.close(answers)
        if not negotiation.over:
            return None
        session.final_answers = answers
        return negotiation.outcome

    def _reconsider(
        self, pod: Pod, session: StandaloneSession, answers: Answers, nodes: EligibleNodes
    ) -> Outcome | None:
        """The final outcome with answers that have changed since; None if that has opened another round."""
        outcome = session.negotiation.outcome
        changed = replace(
            outcome,
            answers=answers,
            viable=viable_for_all(outcome.candidates, answers),
            refused={**outcome.refused, **refusals(answers)},
        )
        if changed.viable or answers == session.final_answers:
            return changed
        session.final_answers = answers
        return None if self._ask_about_proposed(pod, session, answers, nodes) else changed

    def _negotiation(
        self, pod: Pod, nodes: EligibleNodes, rounds: int, start: Proposal | None = None
    ) -> Negotiation:
        attempt = self._pods.attempt(pod)
        enough = 1 + len(attempt.refused | attempt.avoided)
        limit = self._candidates
        in_order = nodes.beginning_with(()) if nodes.preferred else None
        return Negotiation(
            nodes, in_order=in_order, first=limit, limit=limit, enough=enough, round=rounds, start=start
        )


def _note_accepted(session: StandaloneSession, demand: Demand, answers: Answers) -> None:
    """Remember which nodes of the round all standalone drivers find viable."""
    given = [frozenset(answers[claim.entry].viable) for claim in demand.standalone if claim.entry in answers]
    for node in session.negotiation.outcome.candidates:
        session.accepted.pop(node, None)
        if all(node in viable for viable in given):
            session.accepted[node] = None
