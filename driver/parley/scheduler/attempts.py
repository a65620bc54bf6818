"""The in-memory state of an unbound pod between two reconciliations. It may be lost with the process: the next
leader finds out again which nodes the scheduler refuses."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from parley.api.builtin import Pod
from parley.api.models import ClaimScheduling
from parley.control.nominations import KEPT_SECONDS
from parley.control.publishing.podscheduling import StandaloneClaim
from parley.kube.backoff import Backoff, Pauses
from parley.negotiation.answers import Answers
from parley.negotiation.rounds import Negotiation, Outcome
from parley.negotiation.waiting import Place
from parley.scheduler.victimless import VictimlessSearches

REFUSALS = Backoff(first=5.0, longest=300.0)
"""Before nodes that the scheduler refused are offered again."""

CHANGES = Backoff(first=1.0, longest=60.0)
"""Replaces `REFUSALS` once a node has changed or a pod has left one: in a large cluster some always do."""

CREATIONS = Backoff(first=1.0, longest=300.0)
"""Before named claims are created again: somebody may delete them, or they have an owner that does not exist."""

FAILURES = Backoff(first=0.1, longest=300.0)
"""After the API server refused an allocation, or a driver failed: until then nothing is tried for the pod."""

REPEATS = Backoff(first=0.5, longest=300.0)
"""Before standalone drivers are asked again about nodes that they propose after refusing them."""

PATIENCE = Backoff(first=300.0, longest=4800.0)
"""How long a pod that has all its claims may take to be bound before they are released."""

BOUND_SECONDS = 60.0
"""How long a pod that has all its claims may take to be bound before its PodScheduling reports it: longer than a
busy scheduler usually takes, because the report costs a write."""

EVICTIONS = Backoff(first=60.0, longest=4800.0)
"""Before pods are evicted again for a pod that was not bound after earlier evictions."""

EVICTING_SECONDS = 5.0
"""How long a scheduler that cleared an allocation may take to evict others on that node."""

NOMINATED_SECONDS = 900.0
"""How long a scheduler may take to bind a pod to the node that it nominated: kube-scheduler waits for 600 s for
binding conditions. A nomination by another client may stay for ever."""

TERMINATING_SECONDS = 300.0
"""How long to wait for pods that a scheduler evicts."""

CHOICE_SECONDS = 15.0
"""How long the scheduler may keep an offer reserved without naming a node."""

DECLINED_SECONDS = 30.0
"""So long it may leave one where it is that a driver declined: longer than a scheduler pauses after an error."""


@dataclass(frozen=True, slots=True)
class SelectedNode:
    """The node on which standalone drivers allocate, the round whose answers it was selected by, and the time of
    the selection (event loop's clock)."""

    node: str
    round: int
    since: float


@dataclass(slots=True)
class StandaloneSession:
    """One pod's negotiation with its standalone drivers.

    Drivers answer rounds of `negotiation` until there is a `selection`; then they allocate. `wanted` is what they
    were asked for, `final_answers` the answers to the last round, once there is no node left to ask about.
    `recorded_entries` are the entries whose capacity was recorded. `scores` are set if a node is selected without
    asking. `nodes_revision` is the nodes' revision when they were last evaluated, `released` that of the drivers'
    deallocations when all nodes were last asked about, `repeats` the pauses before nodes are asked about again.
    `accepted` are the nodes that all of these drivers found viable, `freed` the revision at which embedded drivers
    were last asked about those of earlier rounds.
    `outdated`: a new evaluation of the nodes may have another result.
    """

    wanted: frozenset[Hashable]
    negotiation: Negotiation
    asked_at: float
    nodes_revision: tuple[int, ...] = ()
    released: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()
    accepted: dict[str, None] = field(default_factory=dict)
    repeats: Pauses = field(default_factory=lambda: Pauses(REPEATS))
    final_answers: Answers | None = None
    selection: SelectedNode | None = None
    recorded_entries: tuple[ClaimScheduling, ...] = ()
    scores: Mapping[str, float] | None = None
    outdated: bool = False

    @property
    def is_void(self) -> bool:
        """Whether a new session has to replace this one at the next reconciliation."""
        return self.outdated and self.selection is None

    @property
    def is_unasked(self) -> bool:
        """Whether a node is selected by a driver's answer for another pod."""
        return self.scores is not None

    def reevaluate_nodes(self) -> None:
        """Make the next reconciliation ask drivers about nodes that have become eligible."""
        self.nodes_revision = ()


@dataclass(slots=True)
class StandaloneAttempt:
    """The part of an attempt that concerns standalone drivers.

    `claims` are the claims that they are to allocate, `stand_ins` the times when stand-ins were last created for
    them, by name. `rounds` is the number of the last question, `resumed` whether an earlier leader's selection was
    looked for, `held_since` the time since which the pod waits for an answer about another pod.
    """

    claims: tuple[StandaloneClaim, ...] = ()
    session: StandaloneSession | None = None
    stand_ins: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    resumed: bool = False
    held_since: float | None = None


@dataclass(slots=True)
class ExtenderAttempt:
    """The part of an attempt that concerns a scheduler with an extender.

    `proposed` are the nodes that passed the scheduler's own filters when Parley last rejected them, `preemptible`
    those where it would evict pods itself, `refused` those that it refuses although the pod would fit. `passed`:
    the last filter answer had viable nodes; `selected` is the node if there was only one, until the pod is bound.
    `not_taken` are selected nodes that it did not bind the pod to: another extender may reject them. Finding a
    node is left to the scheduler for `deferred_for` seconds since `deferred_since`.
    """

    proposed: frozenset[str] = frozenset()
    preemptible: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    passed: bool = False
    selected: str = ""
    not_taken: set[str] = field(default_factory=set)
    deferred_for: float = 0.0
    deferred_since: float = 0.0

    def filter_called(self) -> None:
        """Note that the scheduler has called filter again, so that it did not take the node selected before."""
        if self.selected:
            self.not_taken.add(self.selected)
        self.selected = ""

    def filter_answered(self, viable: Sequence[str]) -> None:
        """Note the viable nodes in the filter's answer, from which the scheduler may choose."""
        self.passed = bool(viable)
        self.selected = viable[0] if len(viable) == 1 else ""


@dataclass(slots=True)
class Attempt:
    """The state kept for one unbound pod: its place in lines, the nodes that were tried, its pauses.

    Waiting: `place` is the pod's place in lines, by priority and then by when it was first reconciled (`begun`).
    `gave_way` is how often in a row it gave way to others, `yielding_since` since when. `retried_by_scheduler`:
    its scheduler tries it although a claim that it needs is in use. Until `turn_kept_until` others give way to it
    while its parameters are read. `transient_problem`: its message, and since when the pod has had the problem.
    Nodes: `refused` were refused by the scheduler lately. On `excluded` ones a driver will never allocate, for the
    reason given, until one of the classes `excluded_by` changes. `avoided` are those that the pod had to leave.
    `offered` are those from which the scheduler may choose; since `reserved_since` it has reserved them without
    naming one, since `unchosen_since` it has not reserved them. `made_room` was offered again because the
    scheduler evicted pods there, or Parley nominated the pod for it. `evicting` was selected last and needs
    evictions by the scheduler, which cleared the allocation there at `cleared_at`. `nominated_since`: the node for
    which the pod is nominated, and since when. `exact`: the scheduler has refused a node, and chooses
    wherever it can from then on.
    Claims: the pod has had all of them since `complete_since`; `unplaced` is how often they were released because
    it was not bound. Until `kept` what others gave up for the pod on a node is kept for it. It pauses after
    `refusals` of everything offered, `failures` to allocate (or two pods could wake each other for ever by what
    each releases), `evictions` for it, and `creations` of claims for it. `victimless` are searches for pods to
    evict for it that found none. Times are on the event loop's clock.
    """

    place: Place
    begun: float = 0.0
    outcome: Outcome = field(default_factory=Outcome)
    drivers: Mapping[str, str] = field(default_factory=dict)
    standalone: StandaloneAttempt = field(default_factory=StandaloneAttempt)
    extender: ExtenderAttempt = field(default_factory=ExtenderAttempt)
    refused: set[str] = field(default_factory=set)
    avoided: set[str] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)
    excluded_by: set[str] = field(default_factory=set)
    offered: tuple[str, ...] = ()
    made_room: str = ""
    evicting: str = ""
    cleared_at: float = -inf
    nominated_since: tuple[str, float] = ("", 0.0)
    exact: bool = False
    reserved_since: float | None = None
    unchosen_since: float | None = None
    complete_since: float | None = None
    unplaced: int = 0
    gave_way: int = 0
    yielding_since: float | None = None
    retried_by_scheduler: bool = False
    turn_kept_until: float | None = None
    transient_problem: tuple[str, float] = ("", 0.0)
    kept: dict[str, float] = field(default_factory=dict)
    victimless: VictimlessSearches = field(default_factory=VictimlessSearches)
    refusals: Pauses = field(default_factory=lambda: Pauses(REFUSALS))
    failures: Pauses = field(default_factory=lambda: Pauses(FAILURES))
    evictions: Pauses = field(default_factory=lambda: Pauses(EVICTIONS))
    creations: Pauses = field(default_factory=lambda: Pauses(CREATIONS))

    def exclude(self, node: str, message: str, classes: Iterable[str]) -> None:
        """Exclude the node: drivers of these classes will never allocate on it."""
        self.excluded[node] = message
        self.excluded_by.update(classes)

    def class_changed(self, name: str) -> None:
        """Drop the exclusions if they were about the class, which has changed."""
        if name in self.excluded_by:
            self.excluded.clear()
            self.excluded_by.clear()

    def refuse(self, *nodes: str) -> None:
        """Note that the scheduler did not place the pod on these nodes; it gets to choose from now on."""
        self.refused.update(nodes)
        self.exact = True

    def still_refused(self, nominated: str) -> set[str]:
        """The nodes that the scheduler refused, without the `nominated` one, where it makes room for the pod. That
        one is offered again at once, even if the pod had to leave it, but only once: its pods take a while to
        leave, and until then the scheduler refuses it again, and nominates the pod anew each time."""
        again = nominated if nominated != self.made_room else ""
        self.made_room = nominated or self.made_room
        self.avoided.discard(again)
        return self.refused - {again}

    def nominated_seconds_left(self, pod: Pod, now: float) -> float:
        """For how many seconds nothing is allocated elsewhere by evictions: the scheduler may be binding the pod
        to the node that it nominated, which was not offered again since. 0 without such a node."""
        node = pod.status.nominated_node_name
        if node != self.nominated_since[0]:
            self.nominated_since = node, now
        if not node or node == self.made_room:
            return 0.0
        return max(self.nominated_since[1] + NOMINATED_SECONDS - now, 0.0)

    def nominated_by_us(self, node: str) -> None:
        """Note that Parley nominates the pod briefly. The cache may show it for longer: no room is made there."""
        self.made_room = node

    def node_selected(self, node: str, *, evicts: bool) -> None:
        """Note that drivers allocate on the node; `evicts`: the pod's scheduler has to evict others there."""
        self.evicting, self.cleared_at = (node if evicts else ""), -inf

    def allocation_cleared(self, nodes: Collection[str], now: float) -> None:
        """Note that the scheduler cleared the allocation on these nodes, which it also does before evictions."""
        if self.evicting in nodes:
            self.cleared_at = now

    @property
    def evicted_on(self) -> str:
        """The node where the scheduler cleared the allocation, for evictions or for good; "" if there is none."""
        return self.evicting if self.cleared_at > -inf else ""

    def eviction_seconds_left(self, now: float, *, terminating: bool) -> float:
        """For how many seconds no pods are to be evicted on another node: the scheduler may be about to evict pods
        where the claims were allocated, or these are `terminating` already."""
        return max(self.cleared_at + (TERMINATING_SECONDS if terminating else EVICTING_SECONDS) - now, 0.0)

    def evictions_finished(self) -> None:
        """Let the node where the scheduler had to evict pods be offered again: the pod fits there now."""
        self.refused.discard(self.evicting)
        self.avoided.discard(self.evicting)
        self.evicting, self.cleared_at = "", -inf

    def offer(self, nodes: Sequence[str]) -> None:
        """Note that the scheduler may choose from these nodes."""
        self.offered = tuple(nodes)
        self.reserved_since = self.unchosen_since = None

    def offer_ended(self) -> None:
        """Note that the scheduler cleared the offer, if there was one, without choosing any of its nodes."""
        if self.offered:
            self.refuse(*self.offered)
        self.offered = ()

    def choice_seconds_left(self, now: float) -> float:
        """How many seconds the scheduler, which has reserved the offer, has left to name a node."""
        if self.reserved_since is None:
            self.reserved_since = now
        return self.reserved_since + CHOICE_SECONDS - now

    def offer_seconds_left(self, now: float, *, ended: bool) -> float:
        """How many seconds the scheduler has left to reserve the offer, or to clear it if a driver `ended` it."""
        if self.unchosen_since is None:
            self.unchosen_since = now
        longest = PATIENCE.delay(self.unplaced + 1)
        return self.unchosen_since + (min(DECLINED_SECONDS, longest) if ended else longest) - now

    def binding_seconds_left(self, now: float) -> float:
        """How many seconds the scheduler has left to bind the pod before all its claims are released."""
        if self.complete_since is None:
            self.complete_since = now
        return self.complete_since + PATIENCE.delay(self.unplaced + 1) - now

    def seconds_until_late(self, now: float) -> float:
        """In how many seconds the pod, which has all its claims, should have been bound."""
        return (now if self.complete_since is None else self.complete_since) + BOUND_SECONDS - now

    def expire_if_late(self, now: float) -> bool:
        """Let the pod's claims be released at once if it should have been bound by now: another pod needs them."""
        late = self.complete_since is not None and self.seconds_until_late(now) <= 0
        if late:
            self.complete_since = -inf
        return late

    def not_bound_in_time(self) -> None:
        """Note that the scheduler did not bind the pod in time."""
        self.complete_since = self.unchosen_since = None
        self.unplaced += 1

    def note_yield(self, now: float) -> None:
        """Note that the pod gave way to others."""
        self.gave_way += 1
        if self.yielding_since is None:
            self.yielding_since = now

    def seconds_yielding(self, now: float) -> float:
        """For how many seconds the pod has been giving way to others."""
        return 0.0 if self.yielding_since is None else now - self.yielding_since

    def transient_for(self, message: str, now: float) -> float:
        """For how many seconds the pod has had this problem, which should end by itself."""
        if self.transient_problem[0] != message:
            self.transient_problem = message, now
        return now - self.transient_problem[1]

    def keep_until(self, node: str, now: float, *, anew: bool) -> float:
        """Until when the node's claims are kept for the pod, from its last evictions there (`anew`: now)."""
        if anew:
            self.kept.pop(node, None)
        return self.kept.setdefault(node, now + KEPT_SECONDS)

    def stuck(self, now: float) -> frozenset[str]:
        """The nodes where pods took longer to leave than their claims are kept."""
        return frozenset(node for node, until in self.kept.items() if until <= now)

    @property
    def failed_everywhere(self) -> bool:
        """Whether drivers failed on all viable nodes."""
        return self.avoided.issuperset(self.outcome.viable)

    def pause_if_failed_everywhere(self, now: float) -> None:
        """Begin a growing pause after a driver's failure, if drivers have failed on all viable nodes."""
        if self.failed_everywhere:
            self.failures.begin(now)

    def nodes_changed(self, now: float) -> None:
        """Shorten the pause after refusals, which grows with each: the scheduler may accept changed nodes."""
        if self.refusals.cut_short(CHANGES) <= now:
            self.begin_again()

    def begin_again(self) -> None:
        """Forget the scheduler's refusals: their pause is over, or something relevant to them has changed."""
        self.refused.clear()
        self.refusals.end()
        session = self.standalone.session
        if session is not None and session.negotiation.over:
            session.outdated = True
