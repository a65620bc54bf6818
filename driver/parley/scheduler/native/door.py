"""One pod's way through the native door: look at what is, take the one step that comes first, repeat.

`sync` is called for a pod whenever something about it may have changed, never twice at a time for the same pod.
It reads caches and ledger, decides at once (no await between looking and holding), and acts. What goes wrong
on the way is raised, and the queue calls again.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.control.allocation import Allocator, Busy
from parley.control.cluster import Key, done, over, reference
from parley.control.gathering import gather
from parley.control.giving_back import GivingBack
from parley.control.podclaims import PodClaim, Problem, Topic
from parley.control.records import Records
from parley.control.restoring import adopt
from parley.control.state import State
from parley.kube.client import ApiError, BadRequest, Client, Conflict, Forbidden, Invalid, NotFound
from parley.negotiation.states import ClaimState, Step, next_step
from parley.scheduler.candidates import common_nodes
from parley.scheduler.native.negotiating import Negotiator
from parley.scheduler.native.turns import out_of_turn
from parley.scheduler.placing import Placing
from parley.scheduler.pods import KeptOut, Pods
from parley.scheduler.talks import Talks
from parley.sdk import PodReference
from parley.sdk.checks import DriverFault


class OtherDoor(Protocol):
    """Negotiates for some of the pods, until they are bound; what follows is the same for all."""

    def owns(self, pod: Pod) -> bool: ...
    def resume(self) -> None: ...
    def busy_with(self, pod: Pod) -> bool: ...
    async def look(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None: ...
    def gone(self, pod: PodReference) -> None: ...


class NativeDoor:
    """Negotiates for pods of any scheduler. Whoever feeds the queue also calls `wake` and `pod_gone`."""

    def __init__(
        self,
        client: Client,
        state: State,
        allocator: Allocator,
        records: Records,
        giving_back: GivingBack,
        pods: Pods,
        talks: Talks,
        placing: Placing,
        negotiator: Negotiator,
        other: OtherDoor | None = None,
    ) -> None:
        self._client = client
        self._state = state
        self._cluster = state.cluster
        self._ledger = state.ledger
        self._drivers = state.drivers
        self._allocator = allocator
        self._records = records
        self._giving_back = giving_back
        self._telling = pods.telling
        self._pods = pods
        self._talks = talks
        self._placing = placing
        self._other = other
        self._negotiator = negotiator
        self.unconfirmed: set[str] = set()
        """UIDs of pods that hold something and of which it is not known what became of them: by the record, but
        not seen yet, or gone between two lists of pods, and perhaps bound before that."""
        self._forced: dict[str, str] = {}

    def wake(self, topic: Topic, nodes: Collection[str] | None = None) -> None:
        """Something changed, on these nodes alone if they are given: look again at the pods that it may help."""
        self._pods.wake(topic, nodes)

    def resume(self) -> None:
        """After the cluster was restored: go on with what an earlier leader asked drivers outside to allocate."""
        for scheduling in self._cluster.schedulings():
            pod = self._cluster.pod((scheduling.metadata.namespace, scheduling.metadata.name))
            if pod is not None and scheduling.spec.selected_node and not done(pod):
                self._talks.resume(pod, scheduling)
        if self._other is not None:
            self._other.resume()

    async def sync(self, key: Key) -> None:
        """Take the next step for the pod of that name. Raises what a client raises; then it is to be repeated."""
        try:
            await self._look(key, self._cluster.pod(key))
        except (Conflict, Busy):
            self._pods.retry(key)  # the cache was behind, or another pod's claim is ours too: look again
        except (DriverFault, BadRequest, Forbidden, Invalid) as error:
            self._pods.leave_line(key)
            await self._tell(key, error)
            raise  # it is tried again, after a growing pause
        except Exception:
            self._pods.leave_line(key)  # others need not wait until this works
            raise

    async def _tell(self, key: Key, error: DriverFault | ApiError) -> None:
        """A driver failed, or the API server refused what the pod needs: its user has to know."""
        pod = self._cluster.pod(key)
        if pod is None or over(pod):
            return
        if isinstance(error, DriverFault):
            code, message = reasons.DRIVER_FAILED, str(error)
        else:
            code, message = reasons.WRITE_REFUSED, f"the API server refused a write: {error.message}"
        await self._telling.waits(pod, self._pods.attempt(pod), code, message)

    async def _look(self, key: Key, pod: Pod | None) -> None:
        await self._depart(key, pod)
        if pod is None or over(pod):
            self._pods.leave_line(key)
            if pod is not None:
                self._telling.ended(pod)
                self._talks.end(pod)
                await self._giving_back.pod_ended(reference(pod))
            return
        if self._other is not None and self._other.busy_with(pod):
            return
        claims = gather(self._state, pod)
        self._telling.looked_at(pod, ours=bool(claims))
        if self._other is not None and not pod.spec.node_name and self._other.owns(pod):
            await self._other.look(key, pod, claims)
            return
        if claims and not pod.spec.scheduling_gates:
            await self._step(key, pod, claims)

    async def _depart(self, key: Key, pod: Pod | None) -> None:
        """What pods of that name held that are done or gone is free."""
        left: set[str] = set()
        for holding in self._ledger.of_pod_name(*key):
            for user in [u for u in holding.pods.values() if (u.namespace, u.name) == key]:
                if pod is not None and pod.metadata.uid == user.uid and not done(pod):
                    continue
                nodes: tuple[str, ...] = (self._forced[user.uid],) if user.uid in self._forced else ()
                if user.uid in self.unconfirmed:
                    live = await self._live(user)
                    if live is not None and not done(live):
                        continue
                    nodes = () if live is not None else holding.nodes or ()
                left.add(user.uid)
                await self._giving_back.give_back(user, [holding], departed=True, prepared_on=nodes)
        for uid in left:
            self._forced.pop(uid, None)
            self.unconfirmed.discard(uid)

    async def _live(self, user: PodReference) -> Pod | None:
        try:
            live = await self._client.get(PODS, user.name, user.namespace)
        except NotFound:
            return None
        return live if live.metadata.uid == user.uid else None

    def pod_gone(self, pod: PodReference, *, running_on: str = "", unseen: bool = False) -> None:
        """Forget what was remembered of the pod; `sync` releases what it holds.

        `running_on`: the node whose kubelet has not said that the pod ended. `unseen`: it was not bound when it
        was seen last, and nobody watched since.
        """
        self.pod_ended(pod.uid)
        if running_on and self._ledger.of_pod(pod):
            self._forced[pod.uid] = running_on
        if unseen and self._ledger.of_pod(pod):
            self.unconfirmed.add(pod.uid)
        self._talks.give_up(pod)
        self._pods.gone(pod)
        if self._other is not None:
            self._other.gone(pod)

    def pod_ended(self, uid: str) -> None:
        """Nothing is allocated for the pod any more; a driver that does so now is stopped."""
        self._allocator.abort(uid)

    async def _step(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None:
        problem = next((claim.problem for claim in claims if claim.problem is not None), None)
        problem = problem or out_of_turn(self._pods, self._allocator, pod, claims)
        if problem is not None:
            await self._stuck(key, pod, problem)
            return
        step = next_step((claim.state(pod) for claim in claims), bound=bool(pod.spec.node_name))
        match step:
            case Step.NOTHING if stale := [c for c in claims if c.claim and c.state(pod) is ClaimState.STALE]:
                topics = [("claim", pod.metadata.namespace, claim.name) for claim in stale]
                self._pods.stay(key, "a mirror was written and is not seen yet", topics)
            case Step.NOTHING:
                self._pods.leave_line(key)
                self._settled(pod, claims)
            case Step.NEGOTIATE:
                await self._negotiator.negotiate(key, pod, claims)
            case Step.FOLLOW_OFFER if self._half_offered(pod, claims) or self._bound_in_vain(pod, claims):
                self._pods.attempt(pod).offer_ended()
                await self._take_back(key, pod, claims)
            case Step.FOLLOW_OFFER:
                await self._placing.follow_offer(key, pod, claims)
            case Step.WRITE if not pod.spec.node_name and common_nodes(claims) == frozenset():
                await self._take_back(key, pod, claims)
            case Step.WRITE:
                if any(claim.holding is not None and claim.holding.recorded for claim in claims):
                    await self._placing.check_current(pod)  # somebody removed what we wrote, perhaps with reason
                await self._placing.write(key, pod, claims)
            case Step.ADOPT:
                self._adopt(pod, claims)
                self._pods.retry(key)
            case Step.TAKE_BACK:
                await self._take_back(key, pod, claims)

    def _half_offered(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Whether some claims are offered and others are not, so that nobody can follow: the others' write failed,
        or they were cleared. The scheduler clears one claim only."""
        pending = any(claim.state(pod) is ClaimState.PENDING for claim in claims)
        return pending and not pod.spec.node_name

    def _bound_in_vain(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Whether a driver has declined the offer and the pod was bound all the same, by a late binding: the
        scheduler, which otherwise takes back what was declined, looks at it no more."""
        return bool(pod.spec.node_name) and any(
            claim.offer_ended for claim in claims if claim.state(pod) is ClaimState.OFFERED
        )

    async def _stuck(self, key: Key, pod: Pod, problem: Problem) -> None:
        if not pod.spec.node_name:
            await self._placing.give_back_all(pod)
        if problem.transient:
            self._pods.stay(key, KeptOut(problem.message), problem.topics)
        else:
            line = KeptOut((problem.code, *problem.topics))
            await self._pods.wait(key, pod, problem.code, problem.message, line, problem.topics)

    def _settled(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        """Everything is recorded; tell how it went once the binding is there."""
        if pod.spec.node_name and all(claim.state(pod) is ClaimState.ALLOCATED for claim in claims):
            holdings = {c.entry: c.holding for c in claims if c.holding is not None}
            drivers = {entry: h.driver for entry, h in holdings.items() if not h.outside}
            outside = len(drivers) < len(holdings)
            self._talks.give_up(reference(pod))
            self._telling.bound(pod, drivers, self._pods.settled(pod), outside=outside)

    def _adopt(self, pod: Pod, claims: Sequence[PodClaim]) -> None:
        for claim in claims:
            if claim.mirror is not None and claim.state(pod) is ClaimState.UNKNOWN:
                adopt(self._state, claim.mirror, outside=True)

    async def _take_back(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> None:
        await self._placing.check_current(pod)
        attempt = self._pods.attempt(pod)
        cleared = [c.holding for c in claims if c.state(pod) is ClaimState.CLEARED and c.holding]
        if cleared:
            everywhere = all(holding.nodes is None for holding in cleared)
            nodes = frozenset(attempt.outcome.viable if everywhere else (h.node for h in cleared))
            attempt.refuse(*nodes)
            self._telling.refused(pod, nodes)
        attempt.offered = ()
        for claim in claims:
            unheld = claim.state(pod) in (ClaimState.UNKNOWN, ClaimState.OFFERED)
            if claim.mirror is not None and (unheld or claim.is_given_up(pod)):
                await self._records.clear(claim.mirror, claim.holding)  # not if it was reserved again meanwhile
        await self._placing.give_back_all(pod, cleared)
        self._pods.look_again(key)
