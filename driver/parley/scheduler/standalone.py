"""Negotiations with standalone drivers, which are asked, and answer, through the PodScheduling. Never blocks.

A session goes through rounds like any negotiation, but an answer may take a while, and may change until a node is
selected. Embedded drivers are asked again at each reconciliation: their answers are cheap and always current. A
standalone driver is not asked if its answer for another pod says that there is enough for this one, too. When a
node is selected, the standalone drivers allocate, and record what they allocated in the claims.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.models import ClaimScheduling, PodScheduling
from parley.control.allocation import Busy
from parley.control.claims.podclaims import PodClaim
from parley.control.decision.demand import Demand
from parley.control.decision.eligible import EligibleNodes
from parley.control.objects.pod import reference
from parley.control.objects.standin import is_stand_in
from parley.control.presence import DriverPresence
from parley.control.publishing.podscheduling import StandaloneClaim
from parley.control.records import Records
from parley.control.state import State
from parley.control.wakeups import Wakeups
from parley.kube.queue import Requeue
from parley.negotiation.answers import Answer
from parley.negotiation.rounds import Ask, Outcome
from parley.negotiation.waiting import Topic
from parley.scheduler.attempts import SelectedNode, StandaloneSession
from parley.scheduler.entries import answer_of, scores_of
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import Wait
from parley.scheduler.standalone_rounds import StandaloneRounds
from parley.scheduler.unasked import UnaskedPods
from parley.sdk import PodReference
from parley.sdk.checks import ANSWER_SECONDS

LAG_SECONDS = 1.0
"""How long the cache may lag behind the creation of a stand-in, before it is created again."""

QUIET_SECONDS = 10.0
"""How long a driver may allocate for a pod that it was not asked about before the PodScheduling shows that the pod
waits for it, which saves most pods a write."""

ALLOCATE_GRACE_SECONDS = 60.0
"""A standalone driver enforces the class's time limit itself; this much later the node is given up in any case."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Drivers could not allocate on the selected node. `permanent`: claims whose drivers never will."""

    node: str
    message: str
    permanent: tuple[PodClaim, ...]


class StandaloneSessions:
    """Negotiates with standalone drivers. Each pod has at most one session, which is part of its attempt."""

    def __init__(
        self,
        state: State,
        records: Records,
        pods: Pods,
        wakeups: Wakeups,
        presence: DriverPresence,
        candidates: int,
    ) -> None:
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._records = records
        self._pods = pods
        self._wakeups = wakeups
        self._presence = presence
        self._rounds = StandaloneRounds(pods, candidates)
        self._unasked = UnaskedPods(state.ledger, pods, candidates)

    async def advance(
        self, pod: Pod, demand: Demand, nodes: EligibleNodes, ask: Ask
    ) -> Outcome | Failure | Wait | Requeue | None:
        """Begin or advance the session: returns an outcome, a failure on the selected node, or what is awaited."""
        mine = self._pods.attempt(pod).standalone
        if (stale := self._stale_scheduling(pod)) is not None:
            await self._records.delete_scheduling(stale)
            return None
        if (
            mine.session is None
            or mine.session.is_void
            or not demand.standalone_question_key <= mine.session.wanted
        ):
            self.give_up(reference(pod))
            mine.claims = tuple(
                StandaloneClaim(c.entry, demand.drivers[c.entry], c.name) for c in demand.standalone
            )
            may_be_unasked = self.scheduling(pod) is None and self._unasked.is_eligible(pod, demand)
            if may_be_unasked and (left := self._unasked.hold(pod, demand)):
                return Requeue(left)
            mine.session = self._begin(pod, demand, nodes)
            if may_be_unasked and (known := self._unasked.outcome(pod, mine.session, demand, nodes, ask)):
                mine.rounds = known.round
                return known
        await self._make_stand_ins(pod, demand)
        session = mine.session
        if session.selection is not None:
            return self._allocation_status(pod, session, session.selection, demand)
        result = await self._collect_answers(pod, session, demand, nodes, ask)
        return self._unasked.without_full(pod, demand, nodes, result) if isinstance(result, Outcome) else result

    async def _make_stand_ins(self, pod: Pod, demand: Demand, *, begun: bool = False) -> None:
        """Create the missing stand-ins. One that was just created gets time to appear in the cache; it may also
        have been deleted at once with its pod, unseen. `begun`: the driver was told to allocate them."""
        for claim in demand.standalone:
            if claim.written is None and self._stand_in_due(pod, claim) <= 0:
                await self._records.stand_ins.create(pod, claim, demand.drivers[claim.entry] if begun else "")
                self._pods.attempt(pod).standalone.stand_ins[claim.name] = now()

    def _stand_in_due(self, pod: Pod, claim: PodClaim) -> float:
        """In how many seconds to create the claim's stand-in, if it is not in the cache by then."""
        return self._pods.attempt(pod).standalone.stand_ins.get(claim.name, -LAG_SECONDS) + LAG_SECONDS - now()

    def _waits(self, pod: Pod, demand: Demand, topics: Sequence[Topic], after: float | None) -> Wait:
        """The wait for the drivers, for `after` seconds at most, or until a stand-in has to be created again."""
        due = [self._stand_in_due(pod, claim) for claim in demand.standalone if claim.written is None]
        limits = [*due, *([] if after is None else [after])]
        return Wait(pod.metadata.uid, topics, after=max(min(limits), 0.0) if limits else None)

    def _begin(self, pod: Pod, demand: Demand, nodes: EligibleNodes) -> StandaloneSession:
        """A new session; after a restart, one that goes on with the node that was selected before."""
        attempt, before = self._pods.attempt(pod), self.scheduling(pod)
        rounds = max(attempt.standalone.rounds, before.spec.round if before is not None else 0)
        session = self._rounds.begin(pod, demand, nodes, rounds)
        if before is not None and before.spec.selected_node and not attempt.standalone.resumed:
            same = {claim.resource_claim_name for claim in before.spec.claims}
            if all(claim.name in same for claim in demand.standalone):
                attempt.outcome = Outcome(rounds, tuple(before.spec.candidate_nodes))
                attempt.drivers = demand.drivers
                if self._cluster.has_pod(reference(pod)):
                    self._expect_claims(pod, demand)
                self._set_selection(pod, session, demand, before.spec.selected_node, rounds)
        attempt.standalone.resumed = True
        return session

    def scheduling(self, pod: Pod) -> PodScheduling | None:
        """The pod's PodScheduling in the cache."""
        found = self._cluster.scheduling((pod.metadata.namespace, pod.metadata.name))
        owners = found.metadata.owner_references if found is not None else ()
        return found if any(owner.uid == pod.metadata.uid for owner in owners) else None

    def _stale_scheduling(self, pod: Pod) -> PodScheduling | None:
        """The PodScheduling of an earlier pod of the same name, whose answers must not count for this one."""
        found = self._cluster.scheduling((pod.metadata.namespace, pod.metadata.name))
        return found if found is not None and self.scheduling(pod) is None else None

    async def _collect_answers(
        self, pod: Pod, session: StandaloneSession, demand: Demand, nodes: EligibleNodes, ask: Ask
    ) -> Outcome | Wait:
        attempt = self._pods.attempt(pod)
        while True:
            outcome = session.negotiation.outcome
            attempt.standalone.rounds = outcome.round
            answers, missing = self._answers(pod, outcome, demand, ask)
            attempt.outcome, attempt.drivers = replace(outcome, answers=answers), demand.drivers
            if missing and outcome.candidates:
                return await self._expect(pod, session, demand, missing)
            self._unasked.answered(pod, session, demand, self._entries(pod))
            if (final := self._rounds.close(pod, session, demand, answers, nodes, ask)) is not None:
                return final
            session.asked_at = now()

    def repeats_in(self, pod: Pod) -> float | None:
        """In how many seconds nodes may be asked about again; None if there is no pause."""
        session = self._pods.attempt(pod).standalone.session
        return (session.repeats.left(now()) or None) if session is not None else None

    def _answers(
        self, pod: Pod, outcome: Outcome, demand: Demand, ask: Ask
    ) -> tuple[dict[str, Answer], list[str]]:
        """The answers to the open round by entry, and the standalone drivers that have not answered yet."""
        entries = {entry.name: entry for entry in self._entries(pod)}
        excluded = self._pods.attempt(pod).excluded
        answers = dict(ask(outcome.candidates)) if demand.requests else {}
        missing: list[str] = []
        for claim in demand.standalone:
            entry, driver = entries.get(claim.entry), demand.drivers[claim.entry]
            if entry is None or entry.driver_name != driver or entry.round != outcome.round:
                missing.append(driver)
                continue
            self._presence.answered(driver)
            answers[claim.entry] = answer_of(entry, outcome.candidates, excluded)
        return answers, sorted(set(missing))

    def _entries(self, pod: Pod) -> Sequence[ClaimScheduling]:
        scheduling = self.scheduling(pod)
        return scheduling.status.claims if scheduling is not None else ()

    async def _expect(self, pod: Pod, session: StandaloneSession, demand: Demand, missing: Sequence[str]) -> Wait:
        """The wait for the drivers that have not answered; reports those that did not answer in time."""
        classes = sorted({c.class_name for c in demand.standalone if demand.drivers[c.entry] in missing})
        left = session.asked_at + ANSWER_SECONDS - now()
        code, message = reasons.WAITING_FOR_DRIVERS, f"yet to answer: driver {', driver '.join(missing)}"
        if left <= 0:
            code = reasons.DRIVER_NOT_ANSWERING
            message = (
                f"no answer within {ANSWER_SECONDS:g} s from standalone driver {', '.join(missing)}: "
                f"start it, or correct driverName of class {', '.join(classes)}"
            )
            for driver in missing:
                self._presence.silent(driver)
            await self._pods.reporter.warn(pod, code, message)
        self._pods.reporter.asking_drivers(pod, self._pods.attempt(pod), code, message)
        topics = [("class", name) for name in classes]
        return self._waits(pod, demand, topics, left if left > 0 else None)

    def scores(self, pod: Pod, outcome: Outcome, demand: Demand) -> Mapping[str, Mapping[str, float]]:
        """The preferences of the standalone drivers, from 0 to 1, by driver and node."""
        session = self._pods.attempt(pod).standalone.session
        found: defaultdict[str, list[ClaimScheduling]] = defaultdict(list)
        for entry in self._entries(pod):
            if entry.round == outcome.round and demand.drivers.get(entry.name) == entry.driver_name:
                found[entry.driver_name].append(entry)
        scores: dict[str, Mapping[str, float]] = {driver: scores_of(entries) for driver, entries in found.items()}
        if session is not None and session.scores is not None:
            scores = {demand.drivers[claim.entry]: session.scores for claim in demand.standalone}
        return {driver: self._unasked.scores(demand, of_driver) for driver, of_driver in scores.items()}

    def expect(self, pod: Pod, demand: Demand) -> None:
        """Expect that standalone drivers allocate for the pod: from now on no other pod gets these claims, nor
        their part of limits. Raises Busy if one of them is being allocated for another pod by now, or if the pod
        is gone: nothing would end it."""
        if not self._cluster.has_pod(reference(pod)):
            raise Busy
        expected = (self._ledger.expected_for(pod.metadata.namespace, claim.name) for claim in demand.standalone)
        if any(other is not None and other.uid != pod.metadata.uid for other in expected):
            raise Busy
        self._expect_claims(pod, demand)

    def _expect_claims(self, pod: Pod, demand: Demand) -> None:
        for claim in demand.standalone:
            assert claim.class_ is not None
            self._ledger.expect(reference(pod), claim.name, claim.uid, claim.class_.metadata.name)

    def end_expected(self, pod: PodReference) -> None:
        """Expect no allocations for the pod any more, and wake the pods that wait for its claims."""
        for namespace, name in self._ledger.end_expected(pod, self._cluster.has_begun):
            self._wakeups.wake(("claim", namespace, name))

    async def select(self, pod: Pod, demand: Demand, node: str) -> Wait | None:
        """Select the node, on which the standalone drivers then allocate. Returns what the pod waits for. Raises
        Busy if one of the claims is being allocated for another pod by now."""
        self.expect(pod, demand)
        session = self._pods.attempt(pod).standalone.session
        assert session is not None
        selection = self._set_selection(pod, session, demand, node, session.negotiation.outcome.round)
        if session.is_unasked:
            # First the selection, then the stand-ins: without it the driver removes its finalizer from these.
            self._allocation_status(pod, session, selection, demand)
            await self._pods.reporter.flush(pod)
            await self._make_stand_ins(pod, demand, begun=True)
        status = self._allocation_status(pod, session, selection, demand)
        return status if isinstance(status, Wait) else None

    def allocated(self, pod: Pod) -> None:
        """Note that the claims show what the drivers allocated on the selected node."""
        self._unasked.allocated(pod)

    def resume(self, pod: Pod, scheduling: PodScheduling) -> None:
        """Expect the allocations on the node that an earlier leader selected: they are for this pod."""
        for asked in scheduling.spec.claims:
            key = (pod.metadata.namespace, asked.resource_claim_name)
            claim, mirror = self._cluster.claim(key), self._cluster.mirror(key)
            if claim is not None and mirror is not None:
                uid = mirror.metadata.uid if is_stand_in(claim) else claim.metadata.uid
                self._ledger.expect(reference(pod), claim.metadata.name, uid, claim.spec.resource_class_name)

    def _set_selection(
        self, pod: Pod, session: StandaloneSession, demand: Demand, node: str, chosen_in: int
    ) -> SelectedNode:
        session.selection = SelectedNode(node, chosen_in, now())
        self._unasked.selected(pod, demand, node)
        return session.selection

    def _allocation_status(
        self, pod: Pod, session: StandaloneSession, selection: SelectedNode, demand: Demand
    ) -> Failure | Wait:
        """The failure of a driver on the selected node, also by timeout; otherwise the wait for the drivers."""
        failures = [
            (claim, entry.failure)
            for entry in self._entries(pod)
            for claim in demand.standalone
            if claim.entry == entry.name
            and demand.drivers[claim.entry] == entry.driver_name
            and entry.round == selection.round
            and entry.failure is not None
            and entry.failure.node_name == selection.node
        ]
        if failures:
            causes = "; ".join(sorted({f"driver {demand.drivers[c.entry]}: {f.message}" for c, f in failures}))
            message = f"could not allocate on node {selection.node}: {causes}"
            self._unasked.failed(demand, selection.node)
            return Failure(selection.node, message, tuple(c for c, f in failures if f.permanent))
        limit = ALLOCATE_GRACE_SECONDS + max(
            c.class_.allocation_timeout_seconds for c in demand.standalone if c.class_ is not None
        )
        left = selection.since + limit - now()
        drivers = sorted({demand.drivers[claim.entry] for claim in demand.standalone})
        if left <= 0:
            message = (
                f"gave up node {selection.node}: {', '.join(drivers)} allocated nothing on it within {limit:g} s"
            )
            return Failure(selection.node, message, ())
        attempt = self._pods.attempt(pod)
        work = ", ".join(f"{one.driver} (claim {one.claim})" for one in attempt.standalone.claims)
        message = f"allocating on node {selection.node}: {work}"
        quiet = selection.since + QUIET_SECONDS - now() if session.is_unasked else 0.0
        code = reasons.ALLOCATING
        self._pods.reporter.asking_drivers(pod, attempt, code, message, selected=selection.node, quiet=quiet > 0)
        topics = sorted({("class", c.class_name) for c in demand.standalone})
        return self._waits(pod, demand, topics, min(left, quiet) if quiet > 0 else left)

    def give_up(self, pod: PodReference) -> None:
        """Stop waiting for allocations by standalone drivers, and wake the pods that wait for these claims. The
        pod counts for the selected node no longer, unless other claims of it are allocated there."""
        self._unasked.ended(pod)
        if not self._ledger.of_pod(pod):
            self._cluster.stop_assuming(pod)
        self.end_expected(pod)

    def end(self, pod: Pod) -> None:
        """End the session: its questions become void, and a selected node is given up at once."""
        self.give_up(reference(pod))
        attempt = self._pods.existing_attempt(reference(pod))
        if attempt is None or attempt.standalone.session is None:
            return
        selection, attempt.standalone.session = attempt.standalone.session.selection, None
        if selection is not None:
            attempt.avoided.add(selection.node)
            message = f"node {selection.node} was given up; others are tried"
            self._pods.reporter.asking_drivers(pod, attempt, reasons.WAITING_FOR_DRIVERS, message)
