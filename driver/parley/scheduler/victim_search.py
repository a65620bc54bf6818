"""Searches all nodes for victims without blocking the event loop: a cluster may have thousands of nodes, and
thousands of pods that wait in vain.

The nodes are examined a few at a time, between other tasks. The plan is then made at once among the promising
ones. If a search found no victims, the next one examines only the nodes on which something has changed since.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest

from parley.control.claims.podclaims import PREEMPTION
from parley.control.decision.decide import viability_topics
from parley.control.state import State
from parley.negotiation.preemption import NODES_COMPARED
from parley.negotiation.waiting import Topic
from parley.scheduler.attempts import Attempt
from parley.scheduler.claim_victims import ClaimVictims, Exclusions, Plan, PreemptionPotential, Preemptor
from parley.scheduler.pods import Pods

AT_A_TIME = 8
"""How many nodes are examined before the search yields to other tasks."""


class VictimSearch:
    """Searches for victims, for all pods."""

    def __init__(self, state: State, pods: Pods) -> None:
        self._state = state
        self._pods = pods

    async def potential_nodes(
        self, preemptor: Preemptor, attempt: Attempt, exclusions: Exclusions
    ) -> Sequence[str]:
        """The nodes among which to make a plan, best first. Raises DriverFault."""
        change, victims = self._pods.latest_change, ClaimVictims(self._state, preemptor, exclusions)
        search_key = victims.search_key
        found = dict[str, PreemptionPotential]()
        for number, node in enumerate(self._to_examine(preemptor, attempt, victims), start=1):
            if (potential := victims.potential(node)) is not None:
                found[node] = potential
            if not number % AT_A_TIME:
                await asyncio.sleep(0)
                victims = ClaimVictims(self._state, preemptor, exclusions)
        if not found:
            attempt.victimless.remember(search_key, change, self._nodes_of(exclusions.spared))
            return ()
        attempt.victimless.forget(search_key)
        first = nsmallest(NODES_COMPARED, found, key=lambda node: (found[node], node))
        own = [node for node, potential in found.items() if not potential.not_nominated]
        return [*dict.fromkeys([*own, *first])]

    def _to_examine(self, preemptor: Preemptor, attempt: Attempt, victims: ClaimVictims) -> Collection[str]:
        search_key = victims.search_key
        held, since = self._state.ledger.nodes(), attempt.victimless.since(search_key)
        changed = self._pods.nodes_since(_topics(preemptor), since) if since is not None else None
        if changed is None:
            return list(held)
        return [node for node in sorted(changed | attempt.victimless.recheck(search_key)) if node in held]

    def _nodes_of(self, uids: Iterable[str]) -> frozenset[str]:
        """The nodes of these pods."""
        nodes = (self._state.cluster.usage.node_of(uid) for uid in uids)
        return frozenset(node for node in nodes if node is not None)

    def still_helps(self, preemptor: Preemptor, plan: Plan, exclusions: Exclusions) -> bool:
        """Whether evictions by the plan, which was made with these exclusions, still help. Raises DriverFault."""
        return ClaimVictims(self._state, preemptor, exclusions).still_helps(plan)

    def plan(self, preemptor: Preemptor, exclusions: Exclusions, potential_nodes: Sequence[str]) -> Plan | None:
        """The best plan among these nodes at present. Raises DriverFault."""
        return (
            ClaimVictims(self._state, preemptor, exclusions, potential_nodes).plan() if potential_nodes else None
        )


def _topics(preemptor: Preemptor) -> tuple[Topic, ...]:
    return (*viability_topics(preemptor.demand, preemptor.claims), PREEMPTION)
