"""The binding cycle of the simulated kube-scheduler: nominate, reserve, wait, bind; undo that after an error.

As upstream, a claim that changed since the scheduling cycle is read and reserved in its current state, wherever it
is allocated. A claim that is reserved already is not read again, unless one of the pod's claims has binding
conditions: then all are checked every five seconds, and a claim that has lost its allocation is not ready. After
any error the scheduler undoes everything that it knows it has done, even if it is unknown whether the pod was
bound: the claims of a bound pod may then be reserved for nobody, until Parley or the claim controller reserves
them again. A reservation whose write was not answered stays. So does one that the informer had not seen at the
latest check of binding conditions, because that check replaces what the write returned. The scheduler undoes the
same if a pod of higher priority preempts one that is in its binding cycle and not being bound yet: the cycle is
cancelled, and the pod stays.
Source: plugins/dynamicresources (PreBind, bindClaim, isPodReadyForBinding, Unreserve), schedule_one.go and
framework/runtime/pods_in_prebind_map.go of 1.37.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.kube.client import ApiError, Client, Conflict, OutcomeUnknown
from parley.kube.clock import Clock
from parley.simulate.anti_affinity import Pod
from parley.simulate.placement import (
    BINDING_TIMEOUT,
    binding_failed,
    has_binding_conditions,
    ready_to_bind,
    timed_out,
)
from parley.simulate.pod_claims import is_reserved
from parley.simulate.scheduler_cache import SchedulerCache
from parley.simulate.status_writes import change_consumers, consumers, patch_claim, patch_pod_by_name

CHECK_SECONDS = 5.0
"""Seconds between two checks of binding conditions."""

_TRIES = 5
_AFTER_CONFLICT = 0.01


class Unbindable(Exception):
    """Raised if a claim's driver declined, a claim was deleted or deallocated before it was reserved, or the pod
    was preempted."""


class PodsInPreBind:
    """The binding cycles that can still be cancelled, by the pod's UID."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._cancelled: set[str] = set()

    @contextmanager
    def within(self, pod: Pod) -> Iterator[None]:
        """The block is the part of the pod's cycle before the binding. Raises Unbindable if it is cancelled."""
        uid, task = pod.metadata.uid, asyncio.current_task()
        assert task is not None
        self._tasks[uid] = task
        try:
            yield
        except asyncio.CancelledError:
            if uid not in self._cancelled or task.uncancel():
                raise
            raise Unbindable("preempted by a pod of higher priority") from None
        finally:
            self._tasks.pop(uid, None)
            self._cancelled.discard(uid)

    def cancel(self, pod: Pod) -> bool:
        """Cancel the pod's cycle. Returns whether it is in one, and not being bound yet."""
        uid = pod.metadata.uid
        if uid not in self._tasks:
            return False
        if uid not in self._cancelled:
            self._cancelled.add(uid)
            self._tasks[uid].cancel()
        return True


@dataclass(frozen=True, slots=True)
class BindingCycles:
    """The binding cycles of one scheduler: what they share."""

    client: Client
    cache: SchedulerCache
    clock: Clock
    in_prebind: PodsInPreBind = field(default_factory=PodsInPreBind)


async def bind(cycles: BindingCycles, pod: Pod, claims: Sequence[BuiltinClaim], node: str) -> str:
    """Bind the pod; returns why it failed, or "". After a failure reservations and nomination are undone.

    `pod` and `claims` are as the scheduling cycle read them. As upstream, no nomination is written that the cached
    pod already has, even if its removal is under way.
    """
    client, known = cycles.client, list(claims)
    try:
        if claims and pod.status.nominated_node_name != node:
            await patch_pod_by_name(client, pod, {"nominatedNodeName": node})
        if claims:
            with cycles.in_prebind.within(pod):
                await _prebind(cycles, pod, known)
        await _post(client, pod, node)
    except (ApiError, OutcomeUnknown, Unbindable) as error:
        await _undo(client, known, pod)
        return str(error)
    return ""


async def _prebind(cycles: BindingCycles, pod: Pod, known: list[BuiltinClaim]) -> None:
    for index, claim in enumerate(known):
        if not is_reserved(claim, pod):
            known[index] = await _reserve(cycles.client, pod, claim)
    if any(map(has_binding_conditions, known)):
        await _wait_until_bindable(cycles.cache, cycles.clock, known)


async def _reserve(client: Client, pod: Pod, claim: BuiltinClaim) -> BuiltinClaim:
    """Reserves the claim for the pod; returns the written claim. It may be allocated on other nodes than it was in
    the scheduling cycle."""
    for attempt in range(_TRIES):
        if attempt:
            await asyncio.sleep(_AFTER_CONFLICT)
            claim = await client.get(BUILTIN_CLAIMS, claim.metadata.name, claim.metadata.namespace)
        if claim.metadata.deletion_timestamp:
            raise Unbindable(f"claim {claim.metadata.name} got deleted in the meantime")
        if claim.status.allocation is None:
            raise Unbindable(f"claim {claim.metadata.name} got deallocated elsewhere in the meantime")
        try:
            users = [*consumers(claim), consumer(reference(pod))]
            return await patch_claim(client, claim, {"reservedFor": users})
        except Conflict:
            pass  # the claim changed: it is read again
    raise Unbindable(f"claim {claim.metadata.name} has been modified again and again")


async def _wait_until_bindable(cache: SchedulerCache, clock: Clock, known: list[BuiltinClaim]) -> None:
    """Return when all binding conditions hold; `known` is updated with the claims' latest state."""
    for _ in range(int(BINDING_TIMEOUT / CHECK_SECONDS)):
        if _all_ready(cache, clock(), known):
            return
        await asyncio.sleep(CHECK_SECONDS)
    raise Unbindable("device binding timeout")


def _all_ready(cache: SchedulerCache, time: datetime, known: list[BuiltinClaim]) -> bool:
    for index, claim in enumerate(known):
        now = cache.claim_named(claim)
        if now is None:
            raise Unbindable(f"claim {claim.metadata.name} is gone")
        known[index] = now
        if binding_failed(now):
            raise Unbindable(f"claim {claim.metadata.name} was declined")
        if timed_out(now, time):
            raise Unbindable("device binding timeout")
        if now.status.allocation is None or not ready_to_bind(now):
            return False
    return True


async def _post(client: Client, pod: Pod, node: str) -> None:
    meta = pod.metadata
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await client.create_subresource(PODS, meta.name, "binding", body, meta.namespace)


async def _undo(client: Client, known: Sequence[BuiltinClaim], pod: Pod) -> None:
    for claim in known:
        if claim.status.allocation is None or not is_reserved(claim, pod):
            continue
        try:
            await change_consumers(client, claim, lambda users: [c for c in users if c["uid"] != pod.metadata.uid])
        except (ApiError, OutcomeUnknown):
            pass  # upstream logs the error, and continues with the next claim
    await patch_pod_by_name(client, pod, {"nominatedNodeName": None})
