"""Evicts pods of lower priority for what they hold, honouring budgets and grace periods: by the eviction API.

A pod for which no node is viable gets the plan that does least harm (`claim_victims`), a nomination for its node,
and only then the evictions. They are bounded: a pod has one plan at a time, and after each eviction a pause that
doubles; all pods together, and those of one namespace, have a limit (`eviction_budget`). A pod can only evict pods
of lower priority, so pods can't evict each other in turns.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import structlog

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.control.allocation import Busy
from parley.control.claims.podclaims import PodClaim, Problem
from parley.control.decision.decide import viability_topics
from parley.control.nominations import Nomination
from parley.control.objects.pod import is_done, path_of, priority, reference
from parley.control.state import State
from parley.kube.client import (
    REFUSALS,
    Client,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
)
from parley.kube.errors import is_right_lacking
from parley.negotiation.requests import requested
from parley.negotiation.reservations import with_reserved
from parley.negotiation.waiting import Topic
from parley.scheduler.claim_victims import Exclusions, Plan, Preemptor, drivers_allowing_preemption
from parley.scheduler.eviction_budget import EvictionBudget
from parley.scheduler.eviction_messages import described, eviction_forbidden, victims_of
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import Wait
from parley.scheduler.victim_search import VictimSearch

SPARED_SECONDS = 30.0
"""How long, at least, plans spare a pod that the API server did not let Parley evict."""

DOUBTED_SECONDS = 600.0
"""For how long after that a dry run asks the API server about such a pod before the preemptor is nominated."""

FORBIDDEN_SECONDS = 60.0
"""How long nothing is evicted after Parley's account turned out to lack the right to evict."""

BINDING_SECONDS = 2.0
"""The delay before checking again whether a pod is bound."""

DEALLOCATING_SECONDS = 1.0
"""The delay before checking again whether a claim whose last users have ended is deallocated."""

ALLOCATING_SECONDS = 1.0
"""The delay before checking again whether a driver still allocates a named claim for another pod."""

PLANS = 4
"""How many plans are tried in a row if evictions are refused, for example by disruption budgets."""

NEXT_PLANS_SECONDS = 1.0
"""The delay before further plans are tried."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Postponed:
    """Evictions could help the pod, but none are made now: the reason, and after how many seconds to try again.
    `code` is empty if that is not worth a reason code of its own."""

    code: str
    message: str
    after: float


class _Pause(NamedTuple):
    """The end of a pause after a refused eviction, and the message about the refusal."""

    until: float
    message: str


_NOT_FORBIDDEN = _Pause(0.0, "")


class _EvictionRefused(Exception):
    """Raised when the API server refused to evict a pod."""

    def __init__(self, victim: Pod, message: str) -> None:
        super().__init__(message)
        self.victim = victim


class ClaimPreemption:
    """Preemption for claims: plans which pods to evict for a pod, nominates a node for it, and evicts them."""

    def __init__(self, client: Client, state: State, pods: Pods) -> None:
        self._client = client
        self._state = state
        self._nominations = state.nominations
        self._pods = pods
        self._search = VictimSearch(state, pods)
        self._evicting = False
        """One plan at a time is carried out: if two needed the last disruption that a budget allows, one of them
        would have its other pods evicted in vain."""
        self._budget = EvictionBudget()
        self._spared: dict[str, _Pause] = {}
        self._forbidden = _NOT_FORBIDDEN

    async def make_room(self, preemptor: Preemptor) -> Wait | Postponed | None:
        """Evict pods for the preemptor. Returns what it waits for while pods terminate, or why evictions are
        postponed; None if no pods are terminating or may be evicted that hold what it needs.

        Raises Busy if the pod is deleted or bound meanwhile, DriverFault, and what a client raises.
        """
        pod, claims = preemptor.pod, preemptor.claims
        attempt = self._pods.attempt(pod)
        if attempt.refusals.until and not attempt.refusals.left(now()):
            attempt.begin_again()
        if releasing := self._claim_being_released(claims):
            self._nominations.end(pod.metadata.uid)
            return Postponed("", f"claim {releasing} is about to be released", DEALLOCATING_SECONDS)
        at_most = inf
        for _ in range(PLANS):
            exclusions = self._exclusions(pod, self._spared_now())
            plan = await self._plan(preemptor, exclusions)
            self._check_still_waiting(pod)
            if allocating := self._claim_being_allocated(pod, claims):
                return Postponed("", f"claim {allocating} is being allocated for another pod", ALLOCATING_SECONDS)
            if plan is None or not (plan.victims or plan.terminating):
                break
            if plan.victims and (postponed := self._postponed(pod, plan)):
                self._nominations.end(pod.metadata.uid)
                return postponed
            try:
                await self._recheck_refused(plan)
                self._nominate(preemptor, plan)
                await self._evict(preemptor, plan, exclusions)
            except _EvictionRefused as error:
                self._spare(error)
                continue
            except Forbidden as error:
                log.warning("eviction forbidden", pod=path_of(pod), error=error.message)
                self._forbidden = _Pause(now() + FORBIDDEN_SECONDS, eviction_forbidden(claims))
                self._nominations.end(pod.metadata.uid)
                return self._postponed(pod, plan)
            return self._waits(pod, viability_topics(preemptor.demand, claims), plan)
        else:
            at_most = NEXT_PLANS_SECONDS
        self._nominations.end(pod.metadata.uid)
        later = [await self._postponed_until_evictable(preemptor), await self._postponed_until_offered(preemptor)]
        soonest = min((one for one in later if one is not None), key=lambda one: one.after, default=None)
        return replace(soonest, after=min(soonest.after, at_most)) if soonest is not None else None

    def _claim_being_released(self, claims: Sequence[PodClaim]) -> str:
        """A claim of the pod whose users have all ended: it may soon be allocated anywhere. "" for none."""
        cluster = self._state.cluster
        for holding in (claim.holding for claim in claims if claim.holding is not None):
            users = [cluster.pod_with_uid(user) for user in holding.pods.values()]
            if users and all(pod is None or is_done(pod) for pod in users):
                return holding.path
        return ""

    def _claim_being_allocated(self, pod: Pod, claims: Sequence[PodClaim]) -> str:
        """A claim of the pod that a driver is allocating for another one; it is not known yet on which node, or
        whether it succeeds. "" for none."""
        ledger = self._state.ledger
        return next((one.name for one in claims if ledger.allocates(one.uid, but=pod.metadata.uid)), "")

    def _exclusions(self, pod: Pod, spared: Collection[str] = ()) -> Exclusions:
        attempt = self._pods.attempt(pod)
        excluded = attempt.refused.union(attempt.excluded, attempt.extender.refused)
        return Exclusions(excluded, spared, attempt.stuck(now()))

    async def _plan(self, preemptor: Preemptor, exclusions: Exclusions) -> Plan | None:
        """The best plan at present. The search yields to other tasks."""
        attempt = self._pods.attempt(preemptor.pod)
        return self._search.plan(
            preemptor, exclusions, await self._search.potential_nodes(preemptor, attempt, exclusions)
        )

    async def _postponed_until_offered(self, preemptor: Preemptor) -> Postponed | None:
        """The postponement if there is a plan on nodes that the scheduler refused: these are offered later."""
        attempt = self._pods.attempt(preemptor.pod)
        if not attempt.refused:
            return None
        exclusions = Exclusions(frozenset(attempt.excluded), (), attempt.stuck(now()))
        plan = await self._plan(preemptor, exclusions)
        if plan is None or not (plan.victims or plan.terminating):
            return None
        message = f"Pods on node {plan.node} may be evicted for it after a pause: the scheduler refused it there"
        return Postponed("", message, attempt.refusals.left_or_begin(now()))

    async def _recheck_refused(self, plan: Plan) -> None:
        """Ask the API server, in a dry run, about victims that it refused to evict before, or about any of them if
        the right to evict was lacking: a nomination in vain would have all pods that wait for the node reconciled.
        Raises what `_post` does, and Busy if it would evict them now: another plan may be better by then."""
        doubted = [victim for victim in plan.victims if victim.metadata.uid in self._spared]
        asked = doubted or (plan.victims[:1] if self._forbidden.message else ())
        for victim in asked:
            await self._post(victim, dry_run=True)
        for victim in doubted:
            self._spared.pop(victim.metadata.uid, None)
        if asked:
            self._forbidden = _NOT_FORBIDDEN
            raise Busy

    def _spare(self, error: _EvictionRefused) -> None:
        """Spare the pod for so long that all other victims can be tried meanwhile: otherwise the first ones would
        be tried again and again, and the last ones never."""
        seconds = max(SPARED_SECONDS, 2 * NEXT_PLANS_SECONDS * len(self._spared) / PLANS)
        message = f"could not be evicted: {error}"
        self._spared[error.victim.metadata.uid] = _Pause(now() + seconds, message)

    def _spared_now(self) -> Mapping[str, _Pause]:
        time = now()
        self._spared = {uid: one for uid, one in self._spared.items() if one.until > time - DOUBTED_SECONDS}
        return {uid: one for uid, one in self._spared.items() if one.until > time}

    async def _postponed_until_evictable(self, preemptor: Preemptor) -> Postponed | None:
        """The postponement if there is a plan with victims that are spared at present."""
        spared = self._spared_now()
        plan = await self._plan(preemptor, self._exclusions(preemptor.pod)) if spared else None
        for victim in plan.victims if plan is not None else ():
            if (pause := spared.get(victim.metadata.uid)) is not None:
                message = f"{described(preemptor.pod, victim)} {pause.message}"
                return Postponed("", message, max(pause.until - now(), 0.0))
        return None

    def _postponed(self, pod: Pod, plan: Plan) -> Postponed | None:
        """The postponement if the right to evict is lacking, too many pods were evicted lately for the pod or in
        all, or a victim is about to be bound, which takes moments: evicted before, it would be deleted without
        having run. None if the plan can be carried out now."""
        time = now()
        if self._forbidden.until > time:
            return Postponed(reasons.EVICTION_FORBIDDEN, self._forbidden.message, self._forbidden.until - time)
        if unbound := [victim for victim in plan.victims if not victim.spec.node_name]:
            self._expire_late(unbound)
            return Postponed(
                "", f"{described(pod, unbound[0])} of lower priority is about to be bound", BINDING_SECONDS
            )
        pause = self._pods.attempt(pod).evictions.left(time)
        if pause > 0 and self._is_under_way(pod, plan):
            return None
        pause = max(pause, self._budget.seconds_left(pod.metadata.namespace, len(plan.victims), time))
        if pause <= 0:
            return None
        return Postponed("", "Pods are evicted for it after a pause, as some were before", pause)

    def _expire_late(self, unbound: Sequence[Pod]) -> None:
        """Have the claims of overdue pods released: their schedulers may never bind them, or only much later."""
        for victim in unbound:
            if self._pods.attempt(victim).expire_if_late(now()):
                self._pods.requeue((victim.metadata.namespace, victim.metadata.name))

    def _is_under_way(self, pod: Pod, plan: Plan) -> bool:
        """Whether the plan's victims are the rest of an earlier plan whose evictions were interrupted."""
        nomination = self._nominations.of(pod.metadata.uid)
        if nomination is None or nomination.node != plan.node:
            return False
        return nomination.terminating.issuperset(victim.metadata.uid for victim in plan.victims)

    def _nominate(self, preemptor: Preemptor, plan: Plan) -> None:
        """Nominate the node for the preemptor: before evictions, and for a limited time however long they take."""
        pod = preemptor.pod
        until = self._pods.attempt(pod).keep_until(plan.node, now(), anew=bool(plan.victims))
        nomination = Nomination(
            reference(pod),
            priority(pod),
            plan.node,
            preemptor.demand.requests,
            with_reserved(requested(pod), [one.amounts for one in preemptor.demand.reserving]),
            plan.terminating.union(victim.metadata.uid for victim in plan.victims),
            plan.freed,
            until,
            {claim.uid: claim.name for claim in preemptor.claims if claim.is_free},
        )
        for loser in self._nominations.add(nomination):
            self._pods.requeue((loser.namespace, loser.name))

    async def _evict(self, preemptor: Preemptor, plan: Plan, exclusions: Exclusions) -> None:
        """Evict the plan's victims; several only if the API server accepts all the evictions in a dry run. Raises
        Busy also while another plan is carried out: the pod needs a new plan after that."""
        if self._evicting:
            raise Busy
        self._evicting = True
        try:
            await self._evict_all(preemptor, plan, exclusions)
        finally:
            self._evicting = False

    async def _evict_all(self, preemptor: Preemptor, plan: Plan, exclusions: Exclusions) -> None:
        pod = preemptor.pod
        if len(plan.victims) > 1:
            for victim in plan.victims:
                await self._post(victim, dry_run=True)
        evicted = False
        try:
            for number, victim in enumerate(plan.victims):
                self._check_still_helps(preemptor, replace(plan, victims=plan.victims[number:]), exclusions)
                if not await self._post(victim, dry_run=False, tested=len(plan.victims) > 1):
                    continue
                evicted = True
                self._budget.note(pod.metadata.namespace, now())
                self._note_evicted(victim)
                log.info("evicted", pod=path_of(victim), node=plan.node, preemptor=path_of(pod))
                await self._pods.reporter.preempted(victim, pod, plan.node)
            self._check_still_waiting(pod)
        finally:
            if evicted:
                self._pods.attempt(pod).evictions.begin(now())

    def _note_evicted(self, victim: Pod) -> None:
        """Note that the pod was evicted, unless it was gone before the answer came: then it has left already."""
        if self._state.cluster.has_pod(reference(victim)):
            self._nominations.evicted([victim.metadata.uid])

    def _check_still_helps(self, preemptor: Preemptor, plan: Plan, exclusions: Exclusions) -> None:
        """Raise Busy if the preemptor waits no more or needs another plan: a pod of higher priority has taken its
        nomination, or what was free there; a class does not allow evictions any more; one of the plan's victims
        has ended; or enough is free there by now. Raises DriverFault."""
        pod = preemptor.pod
        self._check_still_waiting(pod)
        nomination = self._nominations.of(pod.metadata.uid)
        if nomination is None or nomination.node != plan.node:
            raise Busy
        if preemptor.drivers != drivers_allowing_preemption(self._state, pod, preemptor.demand, preemptor.claims):
            raise Busy
        if not self._search.still_helps(preemptor, plan, exclusions):
            raise Busy

    def _check_still_waiting(self, pod: Pod) -> None:
        """End the nomination and raise Busy if the pod is done, gone or bound: no more pods are to be evicted."""
        known = self._state.cluster.pod_with_uid(reference(pod))
        if known is None or is_done(known) or known.spec.node_name:
            self._nominations.end(pod.metadata.uid)
            raise Busy
        if self._pods.attempt(pod).extender.passed:
            raise Busy  # filter has answered its scheduler with viable nodes meanwhile

    async def _post(self, victim: Pod, *, dry_run: bool, tested: bool = False) -> bool:
        """Post an eviction; returns False if the pod is gone. Raises Forbidden if the right to evict is lacking,
        and _EvictionRefused if a disruption budget, admission, or something else that may pass or concerns this
        pod alone prevents it. If the eviction has just passed a dry run (`tested`), a server error is raised as
        ServerError, so that it is retried: other victims may have been evicted already."""
        meta = victim.metadata
        options = {"preconditions": {"uid": meta.uid}, **({"dryRun": ["All"]} if dry_run else {})}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": options,
        }
        try:
            await self._client.create_subresource(PODS, meta.name, "eviction", body, meta.namespace)
        except NotFound:
            return False
        except (*REFUSALS, TooManyRequests, ServerError) as error:
            if is_right_lacking(error) or (tested and isinstance(error, ServerError)):
                raise
            raise _EvictionRefused(victim, error.message) from None
        return True

    def _waits(self, pod: Pod, topics: tuple[Topic, ...], plan: Plan) -> Wait:
        message = f"node {plan.node}: {victims_of(pod, plan)}; what they hold there is kept for this pod"
        if plan.scheduler_evicts:
            message += ", and its scheduler has to evict other pods of lower priority there"
        problem = Problem(reasons.PREEMPTING, message, topics)
        until = self._pods.attempt(pod).kept[plan.node]
        return Wait((reasons.PREEMPTING, pod.metadata.uid), problem.topics, problem, after=max(until - now(), 0.0))
