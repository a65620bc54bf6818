"""Keeps the reservation pods of each node as they should be: ordinary pods are kept out of what claims reserve.

For claims that reserve with `hold: Nominated`. One pass over a node: create and nominate what is missing, nominate
the pods that are about to use such room there (users of the claims, and pods that they yield to), delete the rest.
So a pod that comes for the room gets it without a moment in which others could take it. One for which the node
has too little is not nominated: it would keep others out, and not run. Neither is one that its scheduler has yet
to try: the first attempt fails while a pod's claim is not allocated, and one that fails ends the nomination. Users
of a higher priority than the reservation pods are let in by the scheduler.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from weakref import WeakValueDictionary

import structlog

from parley.api import reasons
from parley.api.builtin import Pod
from parley.api.names import API_VERSION
from parley.api.resources import PODS, SERVER_VERSION
from parley.api.versions import COUNTS_GATED_NOMINATIONS, of_server
from parley.control.holding import Holding
from parley.control.objects.pod import priority, reference, tried
from parley.control.objects.reservation_pod import ReservationPod, reservation_pods
from parley.control.publishing.events import Recorder
from parley.control.room import left_to_hold
from parley.control.state import State
from parley.kube.client import REFUSALS, AlreadyExists, ApiError, Client, Forbidden, Invalid, NotFound
from parley.kube.queue import Requeue
from parley.negotiation.requests import requested
from parley.sdk import PodReference

REFUSED_SECONDS = 60.0
"""Until the next attempt after the API server refused a pod, or its deletion, unless something changes before."""

SETTLING_SECONDS = 0.1
"""For pods that a deletion made the scheduler try in vain."""

LOOKS, LOOK_SECONDS = 10, 0.1
"""For the schedulers' first attempts at pods that are about to get room."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReservationPodSettings:
    """Where reservation pods are made, against the pods of which `schedulers`, and their priority class. Without
    schedulers there are none."""

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
        """By node: the order of writes matters, and whoever records users calls beside the queue's worker."""
        self._never_tried: dict[str, frozenset[str]] = {}
        """By node: the UIDs of pods that nobody waits for any more until their schedulers have tried them."""
        self._gated: bool | None = None
        """Whether the schedulers count gated pods after a restart; None before anybody asked."""

    async def sync(self, node: str) -> Requeue | None:
        """Reconcile the node. Raises what a client raises; then it is to be repeated."""
        requeue, failure = await self._sync(node)
        if failure is not None:
            raise failure
        return requeue

    async def hand_over(self, node: str) -> None:
        """Let those have the node's room that are about to be placed there, also if what is missing can't be made:
        that is left to `sync`. Raises what a client raises if the room can't be given up."""
        await self._sync(node)

    async def _sync(self, node: str) -> tuple[Requeue | None, ApiError | None]:
        lock = self._locks.setdefault(node, asyncio.Lock())
        async with lock:
            return await self._reconcile(node)

    async def _reconcile(self, node: str) -> tuple[Requeue | None, ApiError | None]:
        """When the node is to be looked at again, and why not all that is missing could be made."""
        if not self._settings.schedulers:
            await self._warn(node, "reservation pods are not enabled (reservationPods.enabled of the chart)")
        found = self._state.cluster.reservation_pods(node)
        present = {pod.metadata.name: pod for pod in found if not pod.metadata.deletion_timestamp}
        wanted, served = await self._wanted(node, present.values())
        if untried := await self._untried(node, served):
            wanted, served = await self._wanted(node, present.values(), untried)
        requeue, failure = None, None
        try:
            requeue = await self._provide(wanted, present, node)
        except ApiError as error:
            failure = error
        surplus = [pod for name, pod in present.items() if name not in wanted]
        if surplus and not await self._give_up(surplus, node, served):
            requeue = Requeue(REFUSED_SECONDS)
        return requeue, failure

    async def _are_gated(self) -> bool:
        """Whether reservation pods are kept from being placed by a gate. Asked once: a kube-scheduler is not newer
        than the API server, and one that is older for a while is about to be upgraded."""
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
        """Create and nominate what is missing. What can't be is not held; users get their room all the same."""
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
        """Delete the pods; with the last one the room goes to those that it was held for. Returns whether all were
        deleted.

        Each deletion makes the scheduler try all pods again, and a pod that fails then loses its nomination. So
        users are nominated before the last one, when those that were tried have failed.
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
        """The pods that are to be there, by name, and users and guests that find what they request, without those
        with the UIDs `untried`."""
        holdings, schedulers = self._nominated(node), self._settings.schedulers
        if not holdings or self._state.cluster.node(node) is None:
            return {}, ()
        gated = await self._are_gated()
        highest = max(map(priority, present), default=None)

        def is_kept_out(user: Pod) -> bool:
            """Schedulers count nominated pods for those of the same or a lower priority alone."""
            if user.metadata.uid in untried:
                return False
            return user.spec.scheduler_name in schedulers and (highest is None or priority(user) <= highest)

        found = left_to_hold(self._state, node, is_kept_out)
        left = found.amounts
        pods = (
            reservation_pods(node, one.uid, one.path, left[one.uid], schedulers, gated=gated) for one in holdings
        )
        return {pod.name: pod for pod in chain.from_iterable(pods)}, found.served

    def _nominated(self, node: str) -> Sequence[Holding]:
        return [holding for holding in self._state.ledger.reserving(node) if holding.is_nominated]

    async def _nominate_served(self, node: str, served: Sequence[Pod]) -> None:
        """Before the room that is held for them is given up. Who is bound meanwhile has it already."""
        for pod in served:
            now = self._now(pod)
            if now is not None and not now.status.nominated_node_name:
                await self._nominate(reference(pod), node)

    async def _untried(self, node: str, served: Sequence[Pod]) -> frozenset[str]:
        """The UIDs of those that their schedulers have not tried. What comes new is waited for, but not for long,
        however many they are: some are never tried. When one is, its change leads here again."""
        known = self._never_tried.pop(node, frozenset())
        untried = self._untried_of(served)
        for _ in range(LOOKS):
            if untried <= known:
                break
            await asyncio.sleep(LOOK_SECONDS)
            untried = self._untried_of(served)
        if untried:
            self._never_tried[node] = untried
        return untried

    def _untried_of(self, pods: Iterable[Pod]) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in pods if self._is_untried(pod))

    def _is_untried(self, pod: Pod) -> bool:
        now = self._now(pod)
        return now is not None and not now.status.nominated_node_name and not tried(now)

    def _now(self, pod: Pod) -> Pod | None:
        """The pod as it is in the cache by now."""
        return self._state.cluster.that_pod(reference(pod))

    async def _nominate(self, pod: PodReference, node: str) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        try:
            await self._client.patch(PODS, pod.name, body, pod.namespace, subresource="status")
        except (Invalid, NotFound):
            pass  # it is gone, or another one has its name by now: its change leads here again

    async def _create(self, pod: ReservationPod) -> None:
        """It is nominated afterwards: of an object that is made with a status the API server drops the status."""
        body = pod.body(self._settings.namespace, self._settings.priority_class)
        try:
            made = await self._client.create(PODS, body, self._settings.namespace)
        except AlreadyExists:
            return  # the cache has yet to show it
        await self._nominate(reference(made), pod.node)

    async def _delete(self, pod: Pod) -> bool:
        """False if the API server does not let Parley delete it."""
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
        """An event on each claim whose room is not held."""
        for holding in self._nominated(node):
            about = ("ResourceClaim", API_VERSION, holding.namespace, holding.claim, holding.uid)
            message = f"Ordinary pods may take what it reserves on node {node}: {why}"
            await self._recorder.warn(*about, reasons.ROOM_NOT_HELD, message)


def _holds_amounts(pod: Pod) -> bool:
    return bool(requested(pod))
