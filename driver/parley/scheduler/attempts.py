"""What is remembered of an unbound pod between two reconciliations. Lost with the process, at no harm: the next
leader finds out again which nodes the scheduler refuses."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from parley.api.models import ClaimScheduling
from parley.control.nominations import KEPT_SECONDS
from parley.control.publishing.podscheduling import StandaloneClaim
from parley.kube.backoff import Backoff, Pauses
from parley.negotiation.answers import Answers
from parley.negotiation.rounds import Negotiation, Outcome
from parley.negotiation.waiting import Place
from parley.scheduler.in_vain import InVain

REFUSALS = Backoff(first=5.0, longest=300.0)
"""Before what the scheduler refused is offered again."""

CHANGES = Backoff(first=1.0, longest=60.0)
"""The same, if a node has changed meanwhile or a pod has left one: in a large cluster some do all the time."""

CREATIONS = Backoff(first=1.0, longest=300.0)
"""Before claims that the pod names are created again, which somebody deleted, or an owner that does not exist."""

FAILURES = Backoff(first=0.1, longest=300.0)
"""After the API server refused an allocation, or a driver failed: the pod is left alone, whatever wakes it."""

REPEATS = Backoff(first=0.5, longest=300.0)
"""Before standalone drivers are asked once more about nodes that they propose, and refused before."""

PATIENCE = Backoff(first=300.0, longest=4800.0)
"""For a pod that has all its claims to be bound, before they are taken back."""

BOUND_SECONDS = 60.0
"""So long a pod that has all its claims may take to be bound before its PodScheduling says so: longer than a busy
scheduler usually takes, because it costs a write more."""

EVICTIONS = Backoff(first=60.0, longest=4800.0)
"""Before a pod that had others evicted, and was not bound, has others evicted again."""

EVICTING_SECONDS = 5.0
"""So long a scheduler that took an allocation back may take to evict others there."""

LEAVING_SECONDS = 300.0
"""So long it is waited for pods that a scheduler evicts."""

CHOICE_SECONDS = 15.0
"""So long the scheduler may keep an offer reserved without naming a node."""

DECLINED_SECONDS = 30.0
"""So long it may leave one where it is that a driver declined: longer than a scheduler pauses after an error."""


@dataclass(frozen=True, slots=True)
class SelectedNode:
    """The node on which standalone drivers allocate, by the answers of which round, and since when (the event
    loop's clock)."""

    node: str
    round: int
    since: float


@dataclass(slots=True)
class StandaloneSession:
    """One pod's negotiation with its standalone drivers.

    Drivers answer rounds of `negotiation` until there is a `selection`; then they allocate. `wanted` is what they
    were asked for, `final_answers` ended the last round, if there is no node left to ask about. Of the entries
    `noted` the capacity is known. `scores` are set if a node is selected without a question. `nodes_revision` is
    that of the nodes when these were last looked at, `repeats` the pauses before nodes are asked about once more.
    `outdated`: nodes may be judged differently by now.
    """

    wanted: frozenset[Hashable]
    negotiation: Negotiation
    asked_at: float
    nodes_revision: tuple[int, ...] = ()
    repeats: Pauses = field(default_factory=lambda: Pauses(REPEATS))
    final_answers: Answers | None = None
    selection: SelectedNode | None = None
    noted: tuple[ClaimScheduling, ...] = ()
    scores: Mapping[str, float] | None = None
    outdated: bool = False

    @property
    def is_void(self) -> bool:
        """Whether another one is to begin. The pod may be looked at by this one still."""
        return self.outdated and self.selection is None

    @property
    def is_unasked(self) -> bool:
        """Whether a node is selected by what a driver answered for another pod."""
        return self.scores is not None

    def look_at_nodes_again(self) -> None:
        """Others may be eligible by now: drivers are asked about these, too."""
        self.nodes_revision = ()


@dataclass(slots=True)
class StandaloneAttempt:
    """The part of an attempt that concerns standalone drivers.

    `claims` are those that they are to allocate, `stand_ins` when one was last created for them, by name. `rounds`
    is the number of the last question, `resumed` whether an earlier leader's selection was looked for. Since
    `held_since` the pod waits for an answer for another one.
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

    `proposed` are the nodes that passed its own filters when they were last rejected, `preemptible` those where it
    would evict pods itself, `shunned` those that it refuses though the pod would fit. `passed`: it was answered a
    node last; `selected` is that one if there was no other in the answer, until the scheduler binds the pod.
    `not_taken` are selected nodes that it did not bind the pod to: another extender may reject them. Since
    `left_since` it is left to find a node itself, for the seconds `left_for`.
    """

    proposed: frozenset[str] = frozenset()
    preemptible: frozenset[str] = frozenset()
    shunned: frozenset[str] = frozenset()
    passed: bool = False
    selected: str = ""
    not_taken: set[str] = field(default_factory=set)
    left_for: float = 0.0
    left_since: float = 0.0

    def asked_again(self) -> None:
        """Its scheduler has begun to look for a node anew."""
        if self.selected:
            self.not_taken.add(self.selected)
        self.selected = ""

    def answered(self, viable: Sequence[str]) -> None:
        """It may choose from these nodes."""
        self.passed = bool(viable)
        self.selected = viable[0] if len(viable) == 1 else ""


@dataclass(slots=True)
class Attempt:
    """What is remembered of one unbound pod: its place in lines, nodes that were tried, pauses.

    `place` is where it stands in lines, by priority and the first look at each pod, which was at the time `begun`.
    `refused` are nodes that the scheduler refused lately; `excluded` those where a driver will never allocate,
    with its message, as long as the classes `excluded_by` are as they were; `left` those that the pod had to
    leave, to be avoided. `offered` are the nodes that the scheduler may choose from now, `made_room` the one that
    it was offered again because it evicted pods there for this one, or the one that the pod was nominated for
    without that; since `reserved_since` it has reserved them and names none, since `unchosen_since` it has not.
    `evicting` is the node that was
    selected last, if it has to evict others there, and `taken_back_at` when it took the allocation there back.
    Once it refused a node it gets to choose wherever it can (`exact`). Since `complete_since` the pod has all its
    claims; `unplaced` is how often they were taken back because it was not bound, `gave_way` how often it gave way
    to others in a row, `gives_way_since` when it began to; `tried`: its scheduler tries it though a claim that it
    needs is in use; until `turn_kept_until` others give way to it while its parameters are read. `lasting` is the
    message of what was to end by itself, and since when it is in the pod's way. What others gave up for it on a
    node is kept for it until `kept`. It pauses after `refusals` of everything that was offered, `failures` to
    allocate, `evictions` of others for it, and `creations` of claims for it; without a pause after failures two
    pods could wake each other for ever by what each releases. `in_vain` are the searches for somebody to evict
    for it that found nobody. Times are on the event loop's clock.
    """

    place: Place
    begun: float = 0.0
    outcome: Outcome = field(default_factory=Outcome)
    drivers: Mapping[str, str] = field(default_factory=dict)
    standalone: StandaloneAttempt = field(default_factory=StandaloneAttempt)
    extender: ExtenderAttempt = field(default_factory=ExtenderAttempt)
    refused: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    excluded: dict[str, str] = field(default_factory=dict)
    excluded_by: set[str] = field(default_factory=set)
    offered: tuple[str, ...] = ()
    made_room: str = ""
    evicting: str = ""
    taken_back_at: float = -inf
    exact: bool = False
    reserved_since: float | None = None
    unchosen_since: float | None = None
    complete_since: float | None = None
    unplaced: int = 0
    gave_way: int = 0
    gives_way_since: float | None = None
    tried: bool = False
    turn_kept_until: float | None = None
    lasting: tuple[str, float] = ("", 0.0)
    kept: dict[str, float] = field(default_factory=dict)
    in_vain: InVain = field(default_factory=InVain)
    refusals: Pauses = field(default_factory=lambda: Pauses(REFUSALS))
    failures: Pauses = field(default_factory=lambda: Pauses(FAILURES))
    evictions: Pauses = field(default_factory=lambda: Pauses(EVICTIONS))
    creations: Pauses = field(default_factory=lambda: Pauses(CREATIONS))

    def exclude(self, node: str, message: str, classes: Iterable[str]) -> None:
        """Drivers of these classes will never allocate on the node."""
        self.excluded[node] = message
        self.excluded_by.update(classes)

    def class_changed(self, name: str) -> None:
        """What a driver said about nodes was about the class as it was."""
        if name in self.excluded_by:
            self.excluded.clear()
            self.excluded_by.clear()

    def refuse(self, *nodes: str) -> None:
        """The scheduler did not place the pod on these nodes; it gets to choose from now on."""
        self.refused.update(nodes)
        self.exact = True

    def still_refused(self, nominated: str) -> set[str]:
        """The nodes that the scheduler refused, without the `nominated` one, where it makes room for the pod. That
        is offered again at once, also if the pod had to leave it, but only once: pods take a while to leave, and
        until then it is refused again, and nominated anew each time."""
        again = nominated if nominated != self.made_room else ""
        self.made_room = nominated or self.made_room
        self.left.discard(again)
        return self.refused - {again}

    def nominated_by_us(self, node: str) -> None:
        """The pod is nominated for the node for a moment, which is seen for longer: nobody makes room there."""
        self.made_room = node

    def node_selected(self, node: str, *, evicts: bool) -> None:
        """Drivers allocate for the pod on the node; `evicts`: its scheduler has to evict others there."""
        self.evicting, self.taken_back_at = (node if evicts else ""), -inf

    def taken_back(self, nodes: Collection[str], now: float) -> None:
        """The scheduler took back what was allocated on these nodes, which it also does before it evicts there."""
        if self.evicting in nodes:
            self.taken_back_at = now

    @property
    def evicted_on(self) -> str:
        """The node where its scheduler took an allocation back, to evict others there or for good; "" for none."""
        return self.evicting if self.taken_back_at > -inf else ""

    def until_evicted(self, now: float, *, leaving: bool) -> float:
        """For how many seconds nobody is to be evicted for the pod on another node: its scheduler may be about to
        evict others where its claims were, or these are `leaving` that node."""
        return max(self.taken_back_at + (LEAVING_SECONDS if leaving else EVICTING_SECONDS) - now, 0.0)

    def others_left(self) -> None:
        """The pod fits by now where its scheduler had to evict others: that is offered again."""
        self.refused.discard(self.evicting)
        self.left.discard(self.evicting)
        self.evicting, self.taken_back_at = "", -inf

    def offer(self, nodes: Sequence[str]) -> None:
        """The scheduler may choose from these nodes."""
        self.offered = tuple(nodes)
        self.reserved_since = self.unchosen_since = None

    def offer_ended(self) -> None:
        """The scheduler took the offer back, if there was one, without choosing any of its nodes."""
        if self.offered:
            self.refuse(*self.offered)
        self.offered = ()

    def until_withdrawn(self, now: float) -> float:
        """The offer is reserved and no node named: how many seconds the scheduler has left to name one."""
        if self.reserved_since is None:
            self.reserved_since = now
        return self.reserved_since + CHOICE_SECONDS - now

    def until_taken_back(self, now: float, *, ended: bool) -> float:
        """The offer is not reserved, and may have `ended`: how many seconds the scheduler has left for it."""
        if self.unchosen_since is None:
            self.unchosen_since = now
        longest = PATIENCE.delay(self.unplaced + 1)
        return self.unchosen_since + (min(DECLINED_SECONDS, longest) if ended else longest) - now

    def patience(self, now: float) -> float:
        """The pod has all its claims and no node: how many seconds its scheduler has left to bind it."""
        if self.complete_since is None:
            self.complete_since = now
        return self.complete_since + PATIENCE.delay(self.unplaced + 1) - now

    def until_late(self, now: float) -> float:
        """In how many seconds the pod, which has all its claims, should have been bound."""
        return (now if self.complete_since is None else self.complete_since) + BOUND_SECONDS - now

    def lose_patience(self, now: float) -> bool:
        """Others are to have what the pod has: if it should have been bound by now, it is taken back at once."""
        late = self.complete_since is not None and self.until_late(now) <= 0
        if late:
            self.complete_since = -inf
        return late

    def give_up_waiting(self) -> None:
        """The scheduler did not bind the pod in time."""
        self.complete_since = self.unchosen_since = None
        self.unplaced += 1

    def gives_way(self, now: float) -> None:
        """Others come first."""
        self.gave_way += 1
        if self.gives_way_since is None:
            self.gives_way_since = now

    def gives_way_for(self, now: float) -> float:
        """For how many seconds others have come first by now."""
        return 0.0 if self.gives_way_since is None else now - self.gives_way_since

    def lasts_for(self, message: str, now: float) -> float:
        """Something that should end by itself is in the pod's way: for how many seconds by now."""
        if self.lasting[0] != message:
            self.lasting = message, now
        return now - self.lasting[1]

    def kept_until(self, node: str, now: float, *, anew: bool) -> float:
        """How long the node's claims are kept for it, counted from when pods were evicted there `anew`."""
        if anew:
            self.kept.pop(node, None)
        return self.kept.setdefault(node, now + KEPT_SECONDS)

    def stuck(self, now: float) -> frozenset[str]:
        """The nodes where pods took longer to leave than that."""
        return frozenset(node for node, until in self.kept.items() if until <= now)

    @property
    def failed_everywhere(self) -> bool:
        """Whether drivers failed on all nodes that would do."""
        return self.left.issuperset(self.outcome.viable)

    def pause_if_nothing_else(self, now: float) -> None:
        """A driver failed. When they did on all nodes that would do, they are left alone for a growing while."""
        if self.failed_everywhere:
            self.failures.begin(now)

    def nodes_changed(self, now: float) -> None:
        """The scheduler may judge nodes differently by now, and may do so no sooner the more often it refused."""
        if self.refusals.cut_short(CHANGES) <= now:
            self.begin_again()

    def begin_again(self) -> None:
        """The pause is over, or something changed that the scheduler may judge differently."""
        self.refused.clear()
        self.refusals.end()
        session = self.standalone.session
        if session is not None and session.negotiation.over:
            session.outdated = True
