"""Decides whether pending claims can be allocated now, on which nodes, and if not, why: the same for all paths.

The native path, the scheduler extender's filter and bind, and immediate claims decide here, in the same order: the
parameters are read and typed and the class's limits checked (`admit`), the drivers are asked about candidate nodes
(`survey`), one of the viable nodes is selected (`best`). A claim that can't be allocated results in `Blocked`,
with the reason, its message, and the changes that may help. Reads the state, and changes nothing.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from parley.api import reasons
from parley.control.claims.podclaims import NODES, PREEMPTION, ROOM, PodClaim, Problem
from parley.control.decision.demand import Demand, demand_of
from parley.control.decision.eligible import EligibleNodes
from parley.control.decision.kept import kept_nodes, kept_units
from parley.control.decision.sight import seen_pod
from parley.control.decision.stranded import stranded
from parley.control.holding import Holding
from parley.control.limits import topic as limit_topic
from parley.control.state import State
from parley.negotiation.answers import Answers, by_reason, not_answered, viable_for_all, without
from parley.negotiation.nowhere import no_common_node, no_node_available, where
from parley.negotiation.rounds import DEFAULT_CANDIDATES, FIRST_CANDIDATES, Ask, Outcome, negotiate
from parley.negotiation.selection import ranked
from parley.negotiation.waiting import Helps, Topic
from parley.sdk import PodReference
from parley.sdk.checks import BadParameters
from parley.sdk.referenced import ParametersUnavailable


@dataclass(frozen=True, slots=True)
class Blocked:
    """The result if nothing can be allocated now: the problem, and what to wait for.

    `line` is equal for all that wait for the same thing; `helps` decides which changes on nodes may help them. If
    it is None, all may.
    """

    problem: Problem
    line: Hashable
    helps: Helps | None = None


Evictable = Callable[[str], bool]
"""Decides whether a node may become viable if pods of lower priority were evicted there."""


@dataclass(frozen=True, slots=True)
class Search:
    """The parameters of a search for viable nodes: where drivers are asked, and about how many nodes.

    `nodes` are the candidates, `excluded` those where a driver will never allocate, with its message. With
    `own_line` the pod does not wait in a line with others that want the same: what helps them may not help it, for
    instance because a scheduler has refused a node. Drivers are asked about at most `limit` nodes at once, until
    `enough` are viable; `ask_many`: about as many as possible from the beginning. `wider` are further nodes that
    were not viable: a change on one of them may help, too.
    """

    nodes: EligibleNodes
    excluded: Mapping[str, str]
    own_line: bool = False
    limit: int = DEFAULT_CANDIDATES
    enough: int = 1
    ask_many: bool = False
    wider: EligibleNodes | None = None


def admit(state: State, pod: PodReference, pending: Sequence[PodClaim], since: float) -> Demand | Blocked:
    """The claims' demand, if their parameters are valid and their class's limits allow them, otherwise why not.

    Objects that hold parameters count as they were at the time `since` (the event loop's clock) or later. Raises
    DriverFault.
    """
    own = tuple(("claim", pod.namespace, claim.name) for claim in pending)
    try:
        demand = demand_of(state.drivers, pod, pending, since, seen_pod(state, pod))
    except BadParameters as error:
        read: tuple[Topic, ...] = (error.topic,) if error.topic is not None else ()
        problem = Problem(reasons.PARAMETERS_INVALID, str(error), (*class_topics(pending), *own, *read))
        return Blocked(problem, str(error))
    except ParametersUnavailable as error:
        topics = (*class_topics(pending), *own, error.topic)
        if error.transient:  # meanwhile it waits for its drivers' resources as well
            topics += tuple(("driver", name) for name in _drivers(pending))
        return Blocked(Problem(error.code, str(error), topics, transient=error.transient), str(error))
    for driver in dict.fromkeys(demand.drivers[claim.entry] for claim in demand.standalone):
        if message := state.moved.problem(driver, pod.namespace):
            topics = (("driver", driver), *class_topics(demand.standalone))
            return Blocked(Problem(reasons.DRIVER_MOVED, message, topics), (reasons.DRIVER_MOVED, driver))
    counts = demand.units()
    for class_ in {claim.class_name: claim.class_ for claim in pending}.values():
        assert class_ is not None
        wanted = {c.uid: counts.get(c.entry, 1) for c in pending if c.class_name == class_.metadata.name}
        kept = kept_units(state, pod, class_.metadata.name) if class_.limits else {}
        if message := state.ledger.limits.excess(class_, pod.namespace, wanted, kept):
            topics = (limit_topic(class_.metadata.name, pod.namespace), ("class", class_.metadata.name))
            line = (reasons.LIMIT_REACHED, *topics, tuple(sorted(wanted.values())))
            return Blocked(Problem(reasons.LIMIT_REACHED, message, topics), line)
    return demand


def _drivers(pending: Sequence[PodClaim]) -> Sequence[str]:
    """The drivers of the claims' classes."""
    return list(dict.fromkeys(claim.class_.driver_name for claim in pending if claim.class_ is not None))


def survey(state: State, demand: Demand, search: Search, ask: Ask | None = None) -> Outcome:
    """Ask the embedded drivers about the candidates, with `ask` or else with `question`. Returns the outcome.

    Preferred nodes are asked about first, then the fullest, if claims are to be packed and a driver keeps its
    nodes in order. Raises DriverFault.
    """
    ask_many = search.ask_many or demand.needs_more_nodes
    first = demand.fullest() if demand.packs else ()
    return negotiate(
        search.nodes,
        ask or question(state, demand, search),
        in_order=search.nodes.beginning_with(first) if demand.packs or search.nodes.preferred else None,
        first=search.limit if ask_many else FIRST_CANDIDATES,
        limit=search.limit,
        enough=search.enough,
    )


def question(state: State, demand: Demand, search: Search) -> Ask:
    """Asks the embedded drivers about nodes, except those that are excluded, or kept for other pods."""
    kept = kept_nodes(state, search.nodes.uid, search.nodes.priority, demand)
    plain = demand.ask_function({**search.excluded, **kept} if kept else search.excluded)
    return with_room(plain, search.nodes, demand)


def with_room(plain: Ask, nodes: EligibleNodes, demand: Demand) -> Ask:
    """The same question, in whose answers only nodes with room for the claims' reservations are viable."""
    if not demand.reserving:
        return plain

    def answers(asked: Sequence[str]) -> Answers:
        found = plain(asked)
        viable = viable_for_all(asked, found)
        return without(
            found, {node: why for node in viable if (why := nodes.room_shortage(node, demand.reserving))}
        )

    return answers


def none_viable(
    state: State,
    claims: Sequence[PodClaim],
    demand: Demand,
    search: Search,
    outcome: Outcome,
    *,
    evictable: Evictable | None = None,
) -> Blocked:
    """Why none of the cluster's nodes is viable. `claims` are all of the pod's, allocated ones included. Without
    `evictable` a change on any node with pods of lower priority may help."""
    held = [claim.holding for claim in claims if claim.holding is not None]
    code, message = _why_nowhere(state, claims, held, search, outcome)
    problem = Problem(code, message, viability_topics(demand, claims))
    own = search.own_line or search.excluded
    line = search.nodes.uid if own else _equivalence_key(demand, claims, search)
    return Blocked(problem, line, _helps(state, demand, search, evictable))


def all_refused(
    state: State,
    claims: Sequence[PodClaim],
    demand: Demand,
    search: Search,
    refused: Set[str],
    *,
    evictable: Evictable | None = None,
) -> Blocked:
    """Why no node is selected although nodes are viable: the pod's scheduler `refused` all of these. The changes
    that may help are those on other nodes. Equal pods that were refused the same nodes have the same line."""
    nodes = by_reason(dict.fromkeys(sorted(refused), "viable, but refused by the scheduler"))
    message = f"{nodes}. See the pod's own conditions for the scheduler's reasons; Parley offers them again"
    problem = Problem(reasons.SCHEDULER_REFUSED, message, (*viability_topics(demand, claims), PREEMPTION))
    elsewhere = replace(search, excluded={**search.excluded, **dict.fromkeys(refused, "refused")})
    line = (_equivalence_key(demand, claims, search), frozenset(elsewhere.excluded))
    return Blocked(problem, line, _helps(state, demand, elsewhere, evictable))


def _equivalence_key(demand: Demand, claims: Sequence[PodClaim], search: Search) -> Hashable:
    """Equal for all that wait for the same thing."""
    return demand.equivalence_key, search.nodes.equivalence_key, _claim_topics(demand, claims)


def viability_topics(demand: Demand, claims: Sequence[PodClaim]) -> tuple[Topic, ...]:
    """The topics that may make other nodes viable. `claims` are all of the pod's, allocated ones included."""
    drivers = (("driver", driver) for driver in demand.requests)
    others = (*demand.standalone_topics, *_claim_topics(demand, claims), *class_topics(claims))
    return (*drivers, *others, NODES, ROOM)


def _claim_topics(demand: Demand, claims: Sequence[PodClaim]) -> tuple[Topic, ...]:
    """The topics of claims whose change may make other nodes viable. Allocated ones may be released, or moved.
    Named ones may be allocated for another pod first, which ties this pod to their node and leaves less to
    allocate."""
    held = {(one.holding.namespace, one.holding.claim) for one in claims if one.holding is not None}
    named = {
        (demand.pod.namespace, one.name)
        for one in claims
        if one.claim is not None and one.claim.spec.allocation_mode != "Immediate"
    }
    return tuple(("claim", *key) for key in sorted(held | named))


def _why_nowhere(
    state: State, claims: Sequence[PodClaim], held: Sequence[Holding], search: Search, outcome: Outcome
) -> tuple[str, str]:
    """Reason code and message."""
    if conflict := no_common_node({one.path: one.nodes for one in held}):
        return reasons.CONFLICTING_ALLOCATIONS, conflict
    if (found := stranded(claims, search.nodes)) is not None:
        return reasons.CLAIM_STRANDED, found.message
    if (failure := not_answered(outcome.answers)) is not None:
        return failure
    total = len(state.cluster.node_names())
    on_nodes = any(claim.class_ is None or claim.class_.node_part == "Required" for claim in claims)
    code, message = no_node_available(
        total,
        search.nodes.misfits,
        outcome.refused,
        asked=bool(outcome.candidates),
        on_nodes=on_nodes,
        bound_to=search.nodes.bound_to,
    )
    return code, message + "".join(f". Claim {one.path} is {where(one.nodes)}" for one in held)


def _helps(state: State, demand: Demand, search: Search, evictable: Evictable | None) -> Helps:
    """Decides which changes may help: every node was refused, so a change on a node helps only if it is eligible
    and all embedded drivers have room there, or if pods may be evicted there. Standalone drivers report by
    themselves when they have room."""
    asked = [(state.drivers[name], request) for name, request in demand.requests.items()]
    nodes, excluded = (search.wider or search.nodes).fresh_copy(), search.excluded
    priority, usage = nodes.priority, state.cluster.usage

    def has_room(node: str) -> bool:
        if not all(driver.has_room(request, node) for driver, request in asked) or nodes.misfit(node):
            return False
        return not (demand.reserving and nodes.room_shortage(node, demand.reserving))

    def has_lower(node: str) -> bool:
        if priority is None or not usage.any_below_on(node, priority):
            return False
        return evictable is None or evictable(node)

    def may_do(node: str) -> bool:
        return node not in excluded and (has_room(node) or has_lower(node))

    def helps(changed: Collection[str] | None) -> bool:
        if changed is not None:
            return any(map(may_do, changed))
        has_lower_anywhere = priority is not None and usage.any_below(priority)
        return has_lower_anywhere or all(driver.has_room_anywhere(request) for driver, request in asked)

    return helps


def best(
    state: State,
    demand: Demand,
    viable: Sequence[str],
    avoid: Set[str] = frozenset(),
    standalone: Mapping[str, Mapping[str, float]] | None = None,
) -> str:
    """The viable node to select, of which there is at least one. The rest as for `by_preference`."""
    return by_preference(state, demand, viable, avoid, standalone)[0]


def by_preference(
    state: State,
    demand: Demand,
    viable: Sequence[str],
    avoid: Set[str] = frozenset(),
    standalone: Mapping[str, Mapping[str, float]] | None = None,
) -> Sequence[str]:
    """The viable nodes, best first: the drivers' preferences decide, then the fewest pods, or the most where
    claims are packed; `avoid` come last.

    `standalone` has the preferences of standalone drivers. Raises DriverFault.
    """
    preferences = demand.scores(viable, standalone or {})
    return ranked(viable, preferences, avoid, state.cluster.usage.pods, packed=demand.packs)


def class_topics(claims: Sequence[PodClaim]) -> list[Topic]:
    """The topics that are woken when one of the claims' classes changes."""
    return [("class", claim.class_.metadata.name) for claim in claims if claim.class_ is not None]


def as_transient(blocked: Blocked, *topics: Topic) -> Blocked:
    """The same result as a transient one: it may pass within moments, with a change of one of the topics."""
    problem = blocked.problem
    return replace(blocked, problem=replace(problem, topics=(*problem.topics, *topics), transient=True))
