"""Reconciles one pod: releases what terminal and deleted pods held, or hands the pod to its scheduling path.

The work queue calls `sync` for a pod whenever something about it may have changed, never concurrently for the same
pod. `sync` reads the caches and the ledger and takes the next step. Errors are raised, and the queue retries.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Protocol

from parley.api import reasons
from parley.api.builtin import Pod
from parley.control.allocation import Allocator, Busy, Saturated
from parley.control.caches.indexes import named_claims
from parley.control.claims.gathering import gather
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding
from parley.control.live import live_pod, live_pod_if_unchanged
from parley.control.objects.pod import is_done, is_terminal, reference
from parley.control.records import run_all
from parley.control.release.deallocation import Deallocator, ReleaseContext
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

SATURATED_SECONDS = 5.0
"""How long a driver may take no more calls before the pods that wait for that say so."""


class SchedulingPath(Protocol):
    """One of the ways in which pods get a node: the native path, or the extender path."""

    def owns(self, pod: Pod) -> bool:
        """Whether this path negotiates for the pod at present."""
        ...

    def is_binding(self, pod: Pod) -> bool:
        """Whether this path is binding the pod, during which it must not be reconciled."""
        ...

    async def reconcile(self, key: Key, pod: Pod, claims: Sequence[PodClaim]) -> Result:
        """Take the pod's next step and return what follows. Raises what a client raises."""
        ...

    async def void_bindings(self, pod: PodReference) -> None:
        """Make sure that no binding this path posted earlier can still land. Raises what a client raises."""
        ...

    def resume(self) -> None:
        """Continue what an earlier leader began. Called once, when the state has been restored."""
        ...

    def pod_updated(self, pod: Pod) -> None:
        """Event handler: the informer delivered the pod, added or changed in any way."""
        ...

    def pod_terminal(self, pod: Pod) -> None:
        """Called when the pod has ended, or is being deleted before it was bound."""
        ...

    def pod_gone(self, pod: PodReference) -> None:
        """The pod's object is gone: forget it. Called by the event handler, and after a reconciliation that was
        under way then."""
        ...


class Reconciler:
    """Reconciles pods. Each pod belongs to the first of the `paths` that owns it; the last path owns all pods."""

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
        """UIDs of pods that hold claims and whose fate is unknown: pods in the API's records that the informer has
        not shown yet, and pods that vanished between two lists of pods and may have been bound before that."""
        self._forced_on: dict[str, str] = {}
        """Nodes of pods that were deleted before their kubelet reported that they ended, by pod UID."""
        self._never_bound: set[str] = set()
        """UIDs of pods that are gone, still hold claims, and were never bound."""
        self._tracked: defaultdict[Key, set[str]] = defaultdict(set)
        """UIDs in any of the three sets above, by the pods' namespace and name."""

    def resume(self, unconfirmed: Collection[str]) -> None:
        """Continue after the state was restored. `unconfirmed` are the UIDs of pods that hold claims according to
        the API's records, and that the informer has not shown yet."""
        self._unconfirmed = set(unconfirmed)
        for user in (user for holding in self._state.ledger for user in holding.pods.values()):
            if user.uid in self._unconfirmed:
                self._tracked[user.namespace, user.name].add(user.uid)
        for path in self._paths:
            path.resume()

    async def sync(self, key: Key) -> Requeue | None:
        """Reconcile the pod with that key. Raises what a client raises; the caller then retries."""
        self._pods.reconcile_started(key)
        pod = self._state.cluster.pod(key)
        try:
            return await self._reconcile(key, pod)
        except Saturated as error:
            self._pods.leave_turn(key)  # its driver may take no calls for a long time
            await self._report_saturated(key, error)
            return Requeue()
        except (Conflict, Busy):
            return Requeue()  # the cache was behind, or another pod is using the same claim right now
        except (DriverFault, *REFUSALS) as error:
            self._pods.leave_line(key)
            await self._report(key, error)
            raise  # the queue retries with back-off
        except (ApiError, OutcomeUnknown):
            self._pods.move_to_own_line(key)  # other pods need not wait until this works
            raise
        except Exception:
            self._pods.leave_line(key)  # other pods need not wait until this works
            raise
        finally:
            self._pods.reconcile_finished()
            if pod is not None:
                self._forget_if_gone(reference(pod))
                self._limit_nomination(key, pod)

    def _forget_if_gone(self, pod: PodReference) -> None:
        """Forget what was noted about the pod after its deletion, by the reconciliation that was under way."""
        if self._pods.forget_if_gone(pod):
            for path in self._paths:
                path.pod_gone(pod)

    def _limit_nomination(self, key: Key, pod: Pod) -> None:
        """End the pod's nomination when its time is over, whatever keeps the pod from being bound."""
        nomination = self._state.nominations.of(pod.metadata.uid)
        if nomination is None:
            return
        if (left := nomination.until - now()) > 0:
            self._pods.requeue(key, left)
        else:
            self._state.nominations.end(pod.metadata.uid)

    async def _report(self, key: Key, error: DriverFault | ApiError) -> None:
        """Tell the pod's user that a driver failed, or that the API server refused a write for the pod."""
        pod = self._state.cluster.pod(key)
        if pod is None or is_done(pod):
            return
        if isinstance(error, DriverFault):
            code, message = reasons.DRIVER_FAILED, str(error)
        else:
            code, message = reasons.WRITE_REFUSED, f"the API server refused a write: {error.message}"
        await self._pods.reporter.waits(pod, self._pods.attempt(pod), code, message)

    async def _report_saturated(self, key: Key, error: Saturated) -> None:
        """Tell the pod's user that its driver takes no calls, if it has not for a while."""
        pod, message = self._state.cluster.pod(key), str(error)
        if pod is None or is_done(pod):
            return
        attempt = self._pods.attempt(pod)
        if attempt.transient_for(message, now()) >= SATURATED_SECONDS:
            await self._pods.reporter.waits(pod, attempt, reasons.ALLOCATION_FAILED, message)

    async def _reconcile(self, key: Key, pod: Pod | None) -> Requeue | None:
        await self._release_terminal(key, pod)
        if pod is None or is_done(pod):
            self._pods.leave_line(key)
            if pod is not None:
                await self._terminal(pod)
            return None
        if any(path.is_binding(pod) for path in self._paths):
            return None
        claims = gather(self._state, pod)
        if await self._pods.reporter.reconciling(pod, claims):
            return AT_ONCE
        await self._deallocator.delete_replaced_stand_ins(pod)
        if await self._withdrawal.withdraw(pod, claims):
            return AT_ONCE
        path = next(path for path in self._paths if path.owns(pod))
        if await self._release_replaced(pod, path) or await self._on_demand.create(pod, claims):
            return AT_ONCE
        since = self._pods.latest_change
        requeue = await self._pods.apply(key, pod, await path.reconcile(key, pod, claims), since)
        return requeue or self._on_demand.requeue(pod, claims)

    async def _release_replaced(self, pod: Pod, path: SchedulingPath) -> bool:
        """Release what the unbound pod holds of named claims that were replaced by others of the same name, which
        may wait for it. Returns whether it held any. Raises Busy if it is bound: its containers may use them."""
        if pod.spec.node_name:
            return False
        user = reference(pod)
        replaced = [holding for holding in self._state.ledger.of_pod(user) if self._is_replaced(holding)]
        if not replaced:
            return False
        await path.void_bindings(user)
        live = await live_pod_if_unchanged(self._client, self._state, user)
        if live is None or live.spec.node_name:
            raise Busy
        await self._deallocator.release(user, replaced, ReleaseContext(pod_terminal=False, bound=False))
        if not self._state.ledger.of_pod(user):
            self._state.cluster.stop_assuming(user)  # else its own requests may leave it no room on that node
        self._pods.attempt(pod).complete_since = None
        return True

    def _is_replaced(self, holding: Holding) -> bool:
        """Whether the claim of this holding was replaced by another claim of the same name."""
        cluster, key = self._state.cluster, (holding.namespace, holding.claim)
        return holding.named and not cluster.claim_with_uid(key, holding.uid) and cluster.claim(key) is not None

    async def _terminal(self, pod: Pod) -> None:
        self._state.nominations.end(pod.metadata.uid)
        self._pods.reporter.ended(pod)
        for path in self._paths:
            path.pod_terminal(pod)
        await self._deallocator.pod_ended(reference(pod))

    async def _release_terminal(self, key: Key, pod: Pod | None) -> None:
        """Release what terminal and deleted pods of that name held. Each driver is handled separately, because
        another one may take long, or fail."""
        by_driver: defaultdict[str, list[tuple[PodReference, Holding, ReleaseContext]]] = defaultdict(list)
        terminal: set[str] = set()
        for holding in self._state.ledger.of_pod_name(*key):
            for user in [u for u in holding.pods.values() if (u.namespace, u.name) == key]:
                if pod is not None and pod.metadata.uid == user.uid and not is_done(pod):
                    continue
                nodes: tuple[str, ...] = (self._forced_on[user.uid],) if user.uid in self._forced_on else ()
                if user.uid in self._unconfirmed:
                    live = await live_pod(self._client, user)
                    if live is not None and not is_terminal(live):
                        continue
                    nodes = () if live is not None else tuple(holding.nodes or ())
                terminal.add(user.uid)
                same = pod is not None and pod.metadata.uid == user.uid
                bound = bool(pod.spec.node_name) if pod is not None and same else user.uid not in self._never_bound
                context = ReleaseContext(pod_terminal=True, bound=bound, prepared_on=nodes)
                by_driver[holding.driver].append((user, holding, context))
        try:
            await run_all(map(self._release_each, by_driver.values()))
        finally:
            self._forget_terminal(key, terminal)

    async def _release_each(self, releases: Sequence[tuple[PodReference, Holding, ReleaseContext]]) -> None:
        """Release all of these, then raise the first error: one claim's failure must not stop the others."""
        errors: list[Exception] = []
        for user, holding, context in releases:
            try:
                await self._deallocator.release(user, [holding], context)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _forget_terminal(self, key: Key, terminal: Collection[str]) -> None:
        """Drop what was tracked about pods of that name that hold nothing any more."""
        held = {uid for holding in self._state.ledger.of_pod_name(*key) for uid in holding.pods}
        tracked = self._tracked.get(key, set())
        for uid in tracked.union(terminal) - held:  # somebody else may have released what they held
            self._forced_on.pop(uid, None)
            self._unconfirmed.discard(uid)
            self._never_bound.discard(uid)
        if not tracked & held:
            self._tracked.pop(key, None)

    def pod_updated(self, pod: Pod) -> None:
        """Event handler: the informer delivered the pod, added or changed in any way."""
        self._unconfirmed.discard(pod.metadata.uid)
        for path in self._paths:
            path.pod_updated(pod)
        if is_done(pod):
            self._allocator.abort(pod.metadata.uid)

    def pod_ended(self, pod: Pod) -> None:
        """Event handler: the pod has ended. `sync` releases what it holds."""
        if pod.spec.node_name:
            self._count_as_user(pod, pod.spec.node_name)

    def pod_gone(self, pod: Pod) -> None:
        """Event handler: the pod's object is gone. `sync` releases what it holds."""
        user, cluster = reference(pod), self._state.cluster
        self._allocator.abort(user.uid)
        self._state.nominations.pod_gone(user.uid)
        running_on = "" if is_terminal(pod) else pod.spec.node_name
        unwatched = cluster.listing_pods and not pod.spec.node_name  # it may have been bound since the last event
        if running_on or unwatched:
            self._count_as_user(pod, running_on)
        if self._state.ledger.of_pod(user):
            self._tracked[user.namespace, user.name].add(user.uid)
            if running_on:
                self._forced_on[user.uid] = running_on
            if unwatched:
                self._unconfirmed.add(user.uid)
            elif not pod.spec.node_name:
                self._never_bound.add(user.uid)
        self._deallocator.pod_gone(pod)
        for path in self._paths:
            path.pod_gone(user)
        self._pods.pod_gone(user)

    def _count_as_user(self, pod: Pod, node: str) -> None:
        """Count the pod among the users of shared claims that a scheduler may have reserved for it unnoticed, so
        that they are released for it as for any user. `node` is where it ran, "" if that is not known."""
        ledger = self._state.ledger
        for key in named_claims(pod):
            holding = ledger.of_claim(*key)
            if holding is None or not holding.shareable or holding.standalone or not holding.joinable:
                continue
            if not node or holding.may_run_on(node):
                ledger.join(holding, reference(pod))
