"""The binding cycle of the simulated kube-scheduler: nominate, reserve, wait, bind, or undo what is known of it.

As upstream a claim that changed since the scheduling cycle is read and reserved as it is now, wherever it is
allocated by then. A claim that was reserved before is not looked at again, unless one of the pod's claims has
binding conditions: these are looked at every five seconds, and a claim that has lost its allocation is not ready.
After any error all is undone that the scheduler knows of, also where nobody knows whether the pod was bound: what
a bound pod uses may be reserved for nobody then, until Parley or the claim controller sees to it; and what was
reserved without an answer stays reserved. So it is when a pod of higher priority takes the place of one that is
not bound yet: its cycle is given up, and the pod stays.
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
from parley.simulate.status_writes import change_consumers, consumers, patch_claim, patch_pod_named_so

LOOK_SECONDS = 5.0
"""Between two looks at binding conditions."""

_TRIES = 5
_AFTER_CONFLICT = 0.01


class Unbindable(Exception):
    """Raised when a claim's driver declined, a claim is gone or lost its allocation before it was reserved, or the
    pod was preempted."""


class PodsInPreBind:
    """Binding cycles that can be given up still, by the pod's UID."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._cancelled: set[str] = set()

    @contextmanager
    def within(self, pod: Pod) -> Iterator[None]:
        """The block is the part of the pod's cycle before the binding. Raises Unbindable if it is given up."""
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
        """Give the pod's cycle up. Returns whether it is in one, and not being bound yet."""
        uid = pod.metadata.uid
        if uid not in self._tasks:
            return False
        if uid not in self._cancelled:
            self._cancelled.add(uid)
            self._tasks[uid].cancel()
        return True


@dataclass(frozen=True, slots=True)
class Binder:
    """What binding cycles of one scheduler share."""

    client: Client
    cache: SchedulerCache
    clock: Clock
    in_prebind: PodsInPreBind = field(default_factory=PodsInPreBind)


async def bind(binder: Binder, pod: Pod, claims: Sequence[BuiltinClaim], node: str) -> str:
    """Bind the pod; returns why it failed, or "". On failure reservations and nomination are undone.

    `pod` and `claims` are as the scheduling cycle found them. As upstream a nomination that the pod seems to have
    is not written, though its end may be under way.
    """
    client, known = binder.client, list(claims)
    try:
        if claims and pod.status.nominated_node_name != node:
            await patch_pod_named_so(client, pod, {"nominatedNodeName": node})
        if claims:
            with binder.in_prebind.within(pod):
                await _prebind(binder, pod, known)
        await _post(client, pod, node)
    except (ApiError, OutcomeUnknown, Unbindable) as error:
        await _undo(client, known, pod)
        return str(error)
    return ""


async def _prebind(binder: Binder, pod: Pod, known: list[BuiltinClaim]) -> None:
    for index, claim in enumerate(known):
        if not is_reserved(claim, pod):
            known[index] = await _reserve(binder.client, pod, claim)
    if any(map(has_binding_conditions, known)):
        await _bindable(binder.cache, binder.clock, known)


async def _reserve(client: Client, pod: Pod, claim: BuiltinClaim) -> BuiltinClaim:
    """The claim as it was reserved. It may be allocated elsewhere than the scheduling cycle saw it."""
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
            pass  # something changed; what, is read
    raise Unbindable(f"claim {claim.metadata.name} has been modified again and again")


async def _bindable(cache: SchedulerCache, clock: Clock, known: list[BuiltinClaim]) -> None:
    """Return when all binding conditions hold; `known` has the claims as they were last seen."""
    for _ in range(int(BINDING_TIMEOUT / LOOK_SECONDS)):
        if _all_ready(cache, clock(), known):
            return
        await asyncio.sleep(LOOK_SECONDS)
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
            pass  # upstream logs it, and goes on with the next
    await patch_pod_named_so(client, pod, {"nominatedNodeName": None})
