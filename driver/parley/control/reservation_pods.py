"""Reconciles the reservation pods of each node, which keep ordinary pods out of the room that claims reserve.

For claims that reserve with `hold: Nominated`. One pass over a node: create and nominate the missing ones,
nominate the pods that are about to use such room there (users of the claims, and pods that they yield to), delete
the rest. So these get the room without a moment in which others could take it. A pod for which the node has too
little is not nominated: it would keep others out, and not run. Neither is a pod that its scheduler has yet to try:
the first attempt fails while a pod's claim is not allocated, and a failed attempt ends the nomination. Users of a
higher priority than the reservation pods are not kept out by the scheduler.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from weakref import WeakValueDictionary

import structlog

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.names import API_VERSION
from parley.api.resources import PODS, SERVER_VERSION
from parley.api.versions import COUNTS_GATED_NOMINATIONS, of_server
from parley.control.holding import Holding
from parley.control.objects.pod import priority, reference, was_tried
from parley.control.objects.reservation_pod import ReservationPod, reservation_pods
from parley.control.publishing.events import Recorder
from parley.control.room import room_to_hold
from parley.control.state import State
from parley.kube.client import (
    REFUSALS,
    AlreadyExists,
    ApiError,
    Client,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
)
from parley.kube.queue import Requeue
from parley.negotiation.requests import requested
from parley.sdk import PodReference

REFUSED_SECONDS = 60.0
"""The pause before the next attempt after the API server refused a pod, or its deletion."""

SETTLING_SECONDS = 0.1
"""The pause after deletions in which the scheduler tries other pods again, in vain."""

FIRST_TRY_CHECKS, FIRST_TRY_SECONDS = 10, 0.1
"""Number and interval of checks whether schedulers have tried the pods that are about to get room."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReservationPodSettings:
    """The namespace of reservation pods, the `schedulers` whose pods they keep out, and their priority class.
    Without schedulers there are none."""

    namespace: str = "parley-system"
    schedulers: tuple[str, ...] = ()
    priority_class: str = ""


class ReservationPods:
    """Reconciles reservation pods, node by node."""

    def __init__(self, client: Client, state: State, recorder: Recorder, settings: ReservationPodSettings) -> None:
        self._client = client
        self._state = state
        self._recorder = recorder
        self._settings = settings
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        """By node: the order of writes matters, and `Records` calls this besides the queue's worker."""
        self._never_tried: dict[str, frozenset[str]] = {}
        """By node: the UIDs of pods that were waited for long enough, and that their schedulers have not tried."""
        self._gated: bool | None = None
        """Whether the schedulers count gated pods after a restart; None until the server's version is read."""

    async def sync(self, node: str) -> Requeue | None:
        """Reconcile the node. Raises what a client raises; then it is to be repeated."""
        requeue, failure = await self._sync(node)
        if failure is not None:
            raise failure
        return requeue

    async def hand_over(self, node: str, pod: Pod | None = None) -> None:
        """Give up the room for the pod and others that are about to be placed on the node, even if missing
        reservation pods can't be created: `sync` repeats that. Raises what a client raises if the room can't be
        given up."""
        if pod is not None:
            await self._await_first_try(node, pod)
        await self._sync(node)

    async def _sync(self, node: str) -> tuple[Requeue | None, Exception | None]:
        lock = self._locks.setdefault(node, asyncio.Lock())
        async with lock:
            return await self._reconcile(node)

    async def _reconcile(self, node: str) -> tuple[Requeue | None, Exception | None]:
        """Reconcile once. Returns when to requeue the node, and the error if missing pods can't be created."""
        if not self._settings.schedulers:
            await self._warn(node, "reservation pods are not enabled (reservationPods.enabled of the chart)")
        present = self._present(node)
        wanted, served = await self._wanted(node, present.values())
        if untried := self._untried_of(served):  # their first try is an event that requeues the node
            wanted, served = await self._wanted(node, present.values(), untried)
        if known := self._never_tried.pop(node, frozenset[str]()) & untried:
            self._never_tried[node] = known
        requeue, failure = None, None
        try:
            requeue = await self._provide(wanted, present, node)
        except (ApiError, OutcomeUnknown) as error:
            failure = error
        surplus = [pod for name, pod in present.items() if name not in wanted]
        if surplus and not await self._give_up(surplus, node, served):
            requeue = Requeue(REFUSED_SECONDS)
        return requeue, failure

    def _present(self, node: str) -> Mapping[str, Pod]:
        """The node's reservation pods, by name."""
        found = self._state.cluster.reservation_pods(node)
        return {pod.metadata.name: pod for pod in found if not pod.metadata.deletion_timestamp}

    async def _are_gated(self) -> bool:
        """Whether reservation pods have a scheduling gate, so that they are not placed. Read once: a
        kube-scheduler is not newer than the API server, and one that is older for a while is about to be
        upgraded."""
        if self._gated is None:
            try:
                found = of_server(await self._client.get(SERVER_VERSION, "version"))
            except (Forbidden, NotFound):
                found = None
            self._gated = found is None or found >= COUNTS_GATED_NOMINATIONS
        return self._gated

    async def _provide(
        self, wanted: Mapping[str, ReservationPod], present: Mapping[str, Pod], node: str
    ) -> Requeue | None:
        """Create and nominate the missing pods. If that is refused, users get their room all the same."""
        try:
            for name, missing in wanted.items():
                if name not in present:
                    await self._create(missing)
                elif present[name].status.nominated_node_name != node:
                    await self._nominate(reference(present[name]), node)
        except (*REFUSALS, NotFound) as error:
            await self._warn(node, f"the API server refused a reservation pod: {error.message}")
            return Requeue(REFUSED_SECONDS)
        return None

    async def _give_up(self, surplus: Sequence[Pod], node: str, served: Sequence[Pod]) -> bool:
        """Delete the pods; with the last one the room is free for the pods `served`. Returns whether all were
        deleted.

        Each deletion makes the scheduler try all pods again, and a pod that fails then loses its nomination. So
        users are nominated before the last deletion, when the attempts after the others have failed.
        """
        *first, last = sorted(surplus, key=_holds_amounts)
        deleted = [await self._delete(pod) for pod in first]
        if first:
            await asyncio.sleep(SETTLING_SECONDS)
        await self._nominate_served(node, served)
        return await self._delete(last) and all(deleted)

    async def _wanted(
        self, node: str, present: Iterable[Pod], untried: frozenset[str] = frozenset()
    ) -> tuple[Mapping[str, ReservationPod], Sequence[Pod]]:
        """The reservation pods that should exist, by name, and the users and borrowers that find the room they
        request, without those with the UIDs `untried`."""
        holdings, schedulers = self._nominated(node), self._settings.schedulers
        if not holdings or self._state.cluster.node(node) is None:
            return {}, ()
        gated = await self._are_gated()
        highest = max(map(priority, present), default=None)

        def is_kept_out(user: Pod) -> bool:
            """Whether reservation pods keep the pod out: they do at the same or a lower priority."""
            if user.metadata.uid in untried:
                return False
            return user.spec.scheduler_name in schedulers and (highest is None or priority(user) <= highest)

        room = room_to_hold(self._state, node, is_kept_out)
        amounts = room.amounts
        make = partial(
            reservation_pods, schedulers=schedulers, gated=gated, priority_class=self._settings.priority_class
        )
        pods = (make(node, it.uid, it.path, amounts[it.uid]) for it in holdings)
        return {pod.name: pod for pod in chain.from_iterable(pods)}, room.served

    def _nominated(self, node: str) -> Sequence[Holding]:
        return [holding for holding in self._state.ledger.reserving(node) if holding.is_nominated]

    async def _nominate_served(self, node: str, served: Sequence[Pod]) -> None:
        """Nominate the pods before the room that is held for them is given up, unless they are bound by now."""
        for pod in served:
            now = self._cached(pod)
            if now is not None and not now.status.nominated_node_name:
                await self._nominate(reference(pod), node)

    async def _await_first_try(self, node: str, pod: Pod) -> None:
        """Wait until its scheduler has tried the pod, if it gets room there that reservation pods hold. Not for
        long, and only once, since some are never tried; and nobody else waits for that."""
        if not self._is_untried(pod):
            return
        _, served = await self._wanted(node, self._present(node).values())
        own = [one for one in served if one.metadata.uid == pod.metadata.uid]
        for _ in range(FIRST_TRY_CHECKS):
            if self._untried_of(own) <= self._never_tried.get(node, frozenset[str]()):
                return
            await asyncio.sleep(FIRST_TRY_SECONDS)
        self._never_tried[node] = self._never_tried.get(node, frozenset[str]()) | self._untried_of(own)

    def _untried_of(self, pods: Iterable[Pod]) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in pods if self._is_untried(pod))

    def _is_untried(self, pod: Pod) -> bool:
        now = self._cached(pod)
        return now is not None and not now.status.nominated_node_name and not was_tried(now)

    def _cached(self, pod: Pod) -> Pod | None:
        """The pod as it is in the cache by now."""
        return self._state.cluster.pod_with_uid(reference(pod))

    async def _nominate(self, pod: PodReference, node: str) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        try:
            await self._client.patch(PODS, pod.name, body, pod.namespace, subresource="status")
        except (Invalid, NotFound):
            pass  # it is gone, or another one has its name by now: its event requeues the node

    async def _create(self, pod: ReservationPod) -> None:
        """Create the pod, then nominate it: the API server drops the status of a new object."""
        body = pod.body(self._settings.namespace)
        try:
            made = await self._client.create(PODS, body, self._settings.namespace)
        except AlreadyExists:
            return  # not in the cache yet; its event requeues the node
        await self._nominate(reference(made), pod.node)

    async def _delete(self, pod: Pod) -> bool:
        """Delete the pod. Returns False if the API server forbids that."""
        meta = pod.metadata
        try:
            await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0)
        except NotFound:
            pass  # it is gone
        except Forbidden as error:
            log.warning("a reservation pod is left", pod=f"{meta.namespace}/{meta.name}", error=error.message)
            return False
        return True

    async def _warn(self, node: str, why: str) -> None:
        """Write an event on each claim whose room is not held."""
        for holding in self._nominated(node):
            about = ("ResourceClaim", API_VERSION, holding.namespace, holding.claim, holding.uid)
            message = f"Ordinary pods may take what it reserves on node {node}: {why}"
            await self._recorder.warn(*about, reasons.ROOM_NOT_HELD, message)


def _holds_amounts(pod: Pod) -> bool:
    return bool(requested(pod))
