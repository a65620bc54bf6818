"""Reconciles one pod: releases what a pod that is gone held, or hands it to the path that negotiates for it.

`sync` is called for a pod whenever something about it may have changed, never twice at a time for the same pod.
It reads caches and ledger, and does what comes next. What goes wrong on the way is raised; the queue calls again.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Protocol

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.allocation import Allocator, Busy
from parley.control.caches.indexes import named_claims
from parley.control.claims.gathering import gather
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding
from parley.control.live import live_pod
from parley.control.objects.pod import done, over, reference
from parley.control.records import together
from parley.control.release.deallocation import Deallocator, Departure
from parley.control.state import State
from parley.kube.cache import Key
from parley.kube.client import REFUSALS, ApiError, Client, Conflict, OutcomeUnknown
from parley.kube.queue import Requeue
from parley.scheduler.claims_on_demand import ClaimsOnDemand
from parley.scheduler.pods import Pods, now
from parley.scheduler.result import AT_ONCE, Result
from parley.scheduler.withdrawal import Withdrawal
from parley.sdk import PodReference
from parley.sdk.checks import DriverFault


class SchedulingPath(Protocol):
    """One way in which pods get a node: the native way, or a scheduler's extender calls."""

    def owns(self, pod: Pod) -> bool:
        """Whether the pod is negotiated for here now."""
        ...

    def busy_with(self, pod: Pod) -> bool:
        """Whether something goes on here for the pod that nobody may interfere with."""
        ...

    async def reconcile(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Do what the pod needs next, and say what is to follow. Raises what a client raises."""
        ...

    async def settle(self, pod: PodReference) -> None:
        """After this no binding that was posted here before can land. Raises what a client raises."""
        ...

    def resume(self) -> None:
        """The state was restored: go on with what an earlier leader began."""
        ...

    def seen(self, pod: Pod) -> None:
        """The informer shows the pod anew, or changed in any way."""
        ...

    def terminal(self, pod: Pod) -> None:
        """The pod has ended, or is being deleted before it was bound."""
        ...

    def gone(self, pod: PodReference) -> None:
        """The pod's object is gone: forget it."""
        ...


class Reconciler:
    """Reconciles pods. Each pod belongs to the first of the `paths` that owns it; the last owns all."""

    def __init__(
        self,
        client: Client,
        state: State,
        pods: Pods,
        deallocator: Deallocator,
        allocator: Allocator,
        withdrawal: Withdrawal,
        paths: Sequence[SchedulingPath],
    ) -> None:
        self._client = client
        self._state = state
        self._pods = pods
        self._deallocator = deallocator
        self._allocator = allocator
        self._withdrawal = withdrawal
        self._paths = paths
        self._on_demand = ClaimsOnDemand(client, pods)
        self._unconfirmed: set[str] = set()
        """UIDs of pods that hold something and of which it is not known what became of them: by the record, but
        not seen yet, or gone between two lists of pods, and perhaps bound before that."""
        self._forced: dict[str, str] = {}
        """Nodes of pods that were deleted before their kubelet reported that they ended, by the pods' UIDs."""
        self._unbound: set[str] = set()
        """UIDs of pods that are gone, hold something, and were never bound."""
        self._noted: defaultdict[Key, set[str]] = defaultdict(set)
        """UIDs of pods that are gone and of which any of that is known, by their names."""

    def resume(self, unconfirmed: Collection[str]) -> None:
        """The state was restored. `unconfirmed` are the UIDs of pods that hold something by the API's record, and
        that the informer has not shown yet."""
        self._unconfirmed = set(unconfirmed)
        for user in (user for holding in self._state.ledger for user in holding.pods.values()):
            if user.uid in self._unconfirmed:
                self._noted[user.namespace, user.name].add(user.uid)
        for path in self._paths:
            path.resume()

    async def sync(self, key: Key) -> Requeue | None:
        """Reconcile the pod of that name. Raises what a client raises; then it is to be repeated."""
        self._pods.looking_at(key)
        pod = self._state.cluster.pod(key)
        try:
            return await self._reconcile(key, pod)
        except (Conflict, Busy):
            return Requeue()  # the cache was behind, or another pod's claim is ours too: look again
        except (DriverFault, *REFUSALS) as error:
            self._pods.leave_line(key)
            await self._report(key, error)
            raise  # it is tried again, after a growing pause
        except (ApiError, OutcomeUnknown):
            self._pods.stand_apart(key)  # others need not wait until this works
            raise
        except Exception:
            self._pods.leave_line(key)  # others need not wait until this works
            raise
        finally:
            self._pods.looked_at()
            if pod is not None:
                self._pods.forget_if_gone(reference(pod))
                self._while_kept(key, pod)

    def _while_kept(self, key: Key, pod: Pod) -> None:
        """What is kept for the pod is kept no longer than a time, whatever keeps it from being bound."""
        nomination = self._state.nominations.of(pod.metadata.uid)
        if nomination is None:
            return
        if (left := nomination.until - now()) > 0:
            self._pods.look_again(key, left)
        else:
            self._state.nominations.end(pod.metadata.uid)

    async def _report(self, key: Key, error: DriverFault | ApiError) -> None:
        """A driver failed, or the API server refused what the pod needs: its user has to know."""
        pod = self._state.cluster.pod(key)
        if pod is None or over(pod):
            return
        if isinstance(error, DriverFault):
            code, message = reasons.DRIVER_FAILED, str(error)
        else:
            code, message = reasons.WRITE_REFUSED, f"the API server refused a write: {error.message}"
        await self._pods.reporter.waits(pod, self._pods.attempt(pod), code, message)

    async def _reconcile(self, key: Key, pod: Pod | None) -> Requeue | None:
        await self._release_departed(key, pod)
        if pod is None or over(pod):
            self._pods.leave_line(key)
            if pod is not None:
                await self._terminal(pod)
            return None
        if any(path.busy_with(pod) for path in self._paths):
            return None
        claims = gather(self._state, pod)
        if await self._pods.reporter.looked_at(pod, claims):
            return AT_ONCE
        await self._deallocator.delete_replaced(pod)
        if await self._withdrawal.withdraw(pod, claims):
            return AT_ONCE
        path = next(path for path in self._paths if path.owns(pod))
        if await self._release_former(pod, path) or await self._on_demand.create(pod, claims):
            return AT_ONCE
        since = self._pods.latest_change
        requeue = await self._pods.arrange(key, pod, await path.reconcile(key, pod, claims), since)
        return requeue or self._on_demand.again(pod, claims)

    async def _release_former(self, pod: Pod, path: SchedulingPath) -> bool:
        """Whether the unbound pod held anything by a named claim that is gone, and another has its name. That one
        may wait for this very release. Raises Busy if the pod is bound by now: its containers may be using it."""
        if pod.spec.node_name:
            return False
        user = reference(pod)
        former = [holding for holding in self._state.ledger.of_pod(user) if self._is_of_former(holding)]
        if not former:
            return False
        await path.settle(user)
        live = await live_pod(self._client, user)
        if live is None or live.spec.node_name:
            raise Busy
        await self._deallocator.release(user, former, Departure(departed=False, bound=False))
        return True

    def _is_of_former(self, holding: Holding) -> bool:
        """Whether another claim has the name of the claim that it was allocated for."""
        claim = self._state.cluster.claim((holding.namespace, holding.claim)) if holding.named else None
        return claim is not None and claim.metadata.uid != holding.uid

    async def _terminal(self, pod: Pod) -> None:
        self._state.nominations.end(pod.metadata.uid)
        self._pods.reporter.ended(pod)
        for path in self._paths:
            path.terminal(pod)
        await self._deallocator.pod_ended(reference(pod))

    async def _release_departed(self, key: Key, pod: Pod | None) -> None:
        """What pods of that name held that are terminal or gone is released: for each driver by itself, because
        another one may take long, or fail."""
        by_driver: defaultdict[str, list[tuple[PodReference, Holding, Departure]]] = defaultdict(list)
        departed: set[str] = set()
        for holding in self._state.ledger.of_pod_name(*key):
            for user in [u for u in holding.pods.values() if (u.namespace, u.name) == key]:
                if pod is not None and pod.metadata.uid == user.uid and not done(pod):
                    continue
                nodes: tuple[str, ...] = (self._forced[user.uid],) if user.uid in self._forced else ()
                if user.uid in self._unconfirmed:
                    live = await live_pod(self._client, user)
                    if live is not None and not done(live):
                        continue
                    nodes = () if live is not None else tuple(holding.nodes or ())
                departed.add(user.uid)
                same = pod is not None and pod.metadata.uid == user.uid
                bound = bool(pod.spec.node_name) if pod is not None and same else user.uid not in self._unbound
                departure = Departure(departed=True, bound=bound, prepared_on=nodes)
                by_driver[holding.driver].append((user, holding, departure))
        try:
            await together(map(self._release_each, by_driver.values()))
        finally:
            self._forget_departed(key, departed)

    async def _release_each(self, departing: Sequence[tuple[PodReference, Holding, Departure]]) -> None:
        """Raises the first error when all were tried: what is wrong with one claim is not the others'."""
        errors: list[Exception] = []
        for user, holding, departure in departing:
            try:
                await self._deallocator.release(user, [holding], departure)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _forget_departed(self, key: Key, departed: Collection[str]) -> None:
        """What is known of pods that hold nothing any more is not needed."""
        held = {uid for holding in self._state.ledger.of_pod_name(*key) for uid in holding.pods}
        noted = self._noted.get(key, set())
        for uid in noted.union(departed) - held:  # of some others may have released all
            self._forced.pop(uid, None)
            self._unconfirmed.discard(uid)
            self._unbound.discard(uid)
        if not noted & held:
            self._noted.pop(key, None)

    def pod_seen(self, pod: Pod) -> None:
        """The informer shows the pod anew, or changed in any way."""
        self._unconfirmed.discard(pod.metadata.uid)
        for path in self._paths:
            path.seen(pod)
        if over(pod):
            self._allocator.abort(pod.metadata.uid)

    def pod_done(self, pod: Pod) -> None:
        """The pod has ended; `sync` releases what it holds."""
        if pod.spec.node_name:
            self._count_in(pod, pod.spec.node_name)

    def pod_gone(self, pod: Pod) -> None:
        """Forget what was remembered of the pod; `sync` releases what it holds."""
        user, cluster = reference(pod), self._state.cluster
        self._allocator.abort(user.uid)
        self._state.nominations.gone(user.uid)
        running_on = "" if done(pod) else pod.spec.node_name
        unwatched = cluster.listing_pods and not pod.spec.node_name  # it may have been bound since it was seen
        if running_on or unwatched:
            self._count_in(pod, running_on)
        if self._state.ledger.of_pod(user):
            self._noted[user.namespace, user.name].add(user.uid)
            if running_on:
                self._forced[user.uid] = running_on
            if unwatched:
                self._unconfirmed.add(user.uid)
            elif not pod.spec.node_name:
                self._unbound.add(user.uid)
        self._deallocator.pod_gone(pod)
        for path in self._paths:
            path.gone(user)
        self._pods.gone(user)

    def _count_in(self, pod: Pod, node: str) -> None:
        """A scheduler may have let the pod into what others use, and nobody has looked at it since: it leaves what
        it may have been started with like any user. `node` is where, "" if that is not known."""
        ledger = self._state.ledger
        for key in named_claims(pod):
            holding = ledger.of_claim(*key)
            if holding is None or not holding.shareable or holding.standalone or not holding.joinable:
                continue
            if not node or holding.may_run_on(node):
                ledger.join(holding, reference(pod))
