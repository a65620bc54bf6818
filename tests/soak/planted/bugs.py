"""Bugs on purpose: each breaks one rule of the real code while it is planted, and the soak must find it.

A bug is planted in the process that calls; `parley`'s own modules are as before after the block.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tests.soak.cluster.processes import WHO
from tests.soak.kinds.classes import GUEST
from tests.soak.planted.bug import Bug, no_result, nothing
from tests.soak.planted.nodes import OF_NODES
from tests.soak.planted.preemption import OF_PREEMPTION
from tests.soak.planted.standalone import OF_STANDALONE

from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS
from parley.api.selectors import node_selector
from parley.control import restoring, room
from parley.control.allocation import Allocator
from parley.control.caches.cluster import ClusterCache
from parley.control.caches.own_writes import OwnWrites
from parley.control.claims import gathering, named
from parley.control.claims.mirrored import MadeMirrors
from parley.control.claims.podclaims import PodClaim
from parley.control.claims.reconciler import ClaimReconciler
from parley.control.holding import Holding
from parley.control.immediate import ImmediateClaims
from parley.control.ledger import Ledger
from parley.control.limits import Limits
from parley.control.objects import mirror as mirrors
from parley.control.publishing import podscheduling
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator
from parley.control.release.keeping import Keeping
from parley.control.release.releases import Releases
from parley.control.release.unseen_users import UnseenUsers
from parley.control.reservation_pods import ReservationPods
from parley.control.state import State
from parley.control.writes import MirrorWrites
from parley.drivers.device.inventory import Inventory
from parley.drivers.tokens import TokensDriver
from parley.kube.informer import Informer
from parley.kube.lease import LeaseElector
from parley.kube.queue import WorkQueue
from parley.negotiation.states import next_step
from parley.negotiation.waiting import WaitingLines
from parley.scheduler.changes import Changes
from parley.scheduler.extender.binding import Binder
from parley.scheduler.extender.posting import Posting
from parley.scheduler.extender.rejections import Rejections
from parley.scheduler.native import path
from parley.scheduler.placement import Placement
from parley.sdk import claim_conditions
from parley.sdk import recorded as sdk_records
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.reference_reader import ReferenceReader
from parley.simulate import admission


async def _never(*_: Any) -> bool:
    return False


def _leave_only(self: Ledger, holding: Holding) -> None:
    for pod in list(holding.pods.values()):
        self.leave(holding, pod)


def _ever_reserving() -> Callable[[Ledger, str], Collection[Holding]]:
    """What ever reserved room goes on doing so."""
    ever: defaultdict[Ledger, dict[tuple[str, str], Holding]] = defaultdict(dict)

    def reserving(self: Ledger, node: str) -> Collection[Holding]:
        ever[self].update({(node, holding.uid): holding for holding in _RESERVING(self, node)})
        return [holding for (on, _), holding in ever[self].items() if on == node]

    return reserving


_RESERVING = Ledger.reserving


def _for_parley_only(broken: Callable[..., Any], whole: Callable[..., Any]) -> Callable[..., Any]:
    """Kubernetes' parts use the same code, and are in order."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (broken if WHO.get().startswith("controller") else whole)(*args, **kwargs)

    return chosen


def _without(part: str, whole: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Makes the object without that part of its metadata."""

    def made(*args: Any, **kwargs: Any) -> dict[str, Any]:
        body = whole(*args, **kwargs)
        return {**body, "metadata": {name: value for name, value in body["metadata"].items() if name != part}}

    return made


def _settled_offer(*args: Any, **kwargs: Any) -> dict[str, Any]:
    body = _OFFER(*args, **kwargs)
    results = [{**r, "bindingConditions": [], "bindingFailureConditions": []} for r in body["devices"]["results"]]
    return {**body, "devices": {"results": results}}


def _elsewhere(nodes: Any) -> dict[str, Any]:
    return _SELECTOR([{"a": "b", "b": "c", "c": "d"}.get(node, "a") for node in nodes])


async def _ready_at_once(self: Binder, user: Any, _node: str, _until: float) -> Any:
    pod = self._cluster.pod((user.namespace, user.name))
    return pod, ()


async def _bind_any_version(self: Posting, pod: Any, node: str, **_: Any) -> None:
    await _BIND(self, pod, node, exactly=False)


async def _patch_blindly(self: MirrorWrites, mirror: Any, status: Any) -> Any:
    meta, body = mirror.metadata, {"status": status}
    written = await self._client.patch(BUILTIN_CLAIMS, meta.name, body, meta.namespace, subresource="status")
    self._cluster.own_writes.note(written.metadata)
    return written


def _owned_only(mirror: Any, driver: str) -> Any:
    return _COUNTED(mirror, driver) if mirrors.owner_pod(mirror) is not None else None


def _left_first(self: Keeping, holding: Holding, *, bound: bool) -> None:
    if holding.kept_until is None:
        _LEFT(self, holding, bound=bound)


def _adopt_used(state: State, claim: ResourceClaim) -> Holding | None:
    return _ADOPT_RECORD(state, claim) if claim.status.reserved_for else None


def _taken_back(self: Deallocator, holding: Holding) -> None:
    driver: Any = self._drivers[holding.driver].driver
    if holding.kept_until is not None:
        driver._inventory.release(holding.uid)
    _LEFT_BY_POD(self, holding)


async def _free_at_once(self: Deallocator, holding: Holding, *, pod_terminal: bool) -> None:
    await _FINISH(self, holding, pod_terminal=pod_terminal)
    driver: Any = self._drivers[holding.driver].driver
    driver._inventory.release(holding.uid)


def _needs_anything(self: Allocator, new: Any) -> str:
    _GOES(self, new)
    return ""


_FINISH, _GOES = Deallocator._finish, Allocator._set_uses
_LEFT, _LEFT_BY_POD, _ADOPT_RECORD = Keeping.pod_left, Deallocator._released, restoring.adopt_record

_WHOSE = admission._ownership
_COUNTED, _LET_IN = mirrors.counted, UnseenUsers.join_known
_BIND = Posting.bind
_FREE_FOR_ALL = [check for check in named.USABLE if check not in (named.in_use, named.allocating_for_another)]
_OFFER, _SELECTOR = mirrors.offer_body, node_selector

BUGS: Mapping[str, Bug] = {
    "the driver hands out what is held": Bug(
        ((Inventory, "_free_shares", lambda _self, _device, kind, _without: kind.slices),), ("handed out twice",)
    ),
    "what is released stays in the API": Bug(
        ((Records, "clear_mirror", nothing), (Records, "clear_claim", nothing)),
        ("bound too early", "handed out twice", "left over", "moved under a pod", "waits in vain"),
    ),
    "what is released stays with the driver": Bug(
        ((EmbeddedDriver, "deallocate", nothing),), ("left over", "waits in vain")
    ),
    "what is released stays in the ledger": Bug(
        ((Ledger, "drop", _leave_only),), ("left over", "waits in vain", "in circles")
    ),
    "a restart forgets named claims": Bug(
        ((restoring, "adopt_record", no_result),),
        ("handed out twice", "left over", "moved under a pod", "not reserved", "freed while kept"),
        meddling=True,
        lasting=True,
    ),
    "a restart forgets generated claims": Bug(
        ((restoring, "adopt", no_result),), ("handed out twice", "left over", "moved under a pod")
    ),
    "a leader never gives up": Bug(
        ((LeaseElector, "_remaining", lambda _self: 1.0),), ("wrote without lease",), lease=True
    ),
    "nobody wakes who waits": Bug(
        (
            (WaitingLines, "wake", lambda _self, _topic: []),
            (WaitingLines, "split_by_help", lambda *_, **__: ([], [])),
        ),
        ("waits in vain",),
    ),
    "a restart forgets what nodes owe": Bug(
        ((restoring, "_adopt_release", no_result),), ("handed out twice", "left over"), meddling=True
    ),
    "what nodes owe is not waited for": Bug(((Releases, "owe", nothing),), ("handed out twice",)),
    "nodes are not asked": Bug(((Releases, "request_receipts", nothing),), ("left over", "waits in vain")),
    "finalizers stay": Bug(
        ((ClaimReconciler, "_drop_finalizer", nothing),), ("left over", "waits in vain", "conditions disagree")
    ),
    "a bound pod's claims are freed like any": Bug(
        (
            (path, "next_step", lambda states, *, bound: next_step(states, bound=False)),
            (Placement, "release_misplaced", lambda self, pod, _: self.release_all(pod)),
        ),
        ("moved under a pod", "handed out twice", "not reserved"),
        meddling=True,
    ),
    "exclusive claims are shared": Bug(
        ((gathering, "USABLE", _FREE_FOR_ALL),), ("exclusive, two pods", "left over", "waits in vain")
    ),
    "an allocation names another node": Bug(
        ((mirrors, "node_selector", _elsewhere), (mirrors, "selector_body", _elsewhere)), ("bound elsewhere",)
    ),
    "an offer looks like an allocation": Bug(
        ((mirrors, "offer_body", _settled_offer),), ("bound too early", "in circles")
    ),
    "PodSchedulings have no owner": Bug(
        ((podscheduling, "body", _without("ownerReferences", podscheduling.body)),), ("left over",)
    ),
    "deletions go unseen": Bug(
        ((Informer, "_remove", _for_parley_only(no_result, Informer._remove)),),
        ("left over", "waits in vain", "handed out twice"),
    ),
    "failed work is not repeated": Bug(
        ((WorkQueue, "retry", _for_parley_only(no_result, WorkQueue.retry)),),
        ("left over", "waits in vain", "conditions disagree"),
        trouble=True,
    ),
    "the extender path binds before it allocates": Bug(
        ((Binder, "_ready", _ready_at_once),), ("bound too early",), extender=True
    ),
    "a binding may land after its claims are released": Bug(
        ((Posting, "void_bindings", nothing), (Posting, "bind", _bind_any_version)),
        ("bound too early", "bound elsewhere", "handed out twice", "moved under a pod"),
        trouble=True,
        extender=True,
        lost_bindings=True,
    ),
    "a scheduler is not notified that it may retry": Bug(
        ((Rejections, "_nudge", nothing),), ("waits in vain",), extender=True
    ),
    "a reservation that a scheduler dropped is not made again": Bug(
        ((PodClaim, "is_reserved", lambda _self, _pod: True),),
        ("not reserved", "waits in vain"),
        lost_bindings=True,
    ),
    "our own writes that are not seen yet are forgotten": Bug(
        ((OwnWrites, "is_stale", lambda _self, _cached: False),),
        ("bound too early", "handed out twice", "moved under a pod", "waits in vain", "left over", "in circles"),
        trouble=True,
        extender=True,
        lost_bindings=True,
    ),
    "a claim is ready whatever stands in the way": Bug(
        ((claim_conditions, "_not_ready", lambda *_: ConditionUpdate("Ready", True, "Ready", "")),),
        ("conditions disagree",),
    ),
    "nobody looks at claims whose node takes no pods any more, or does so again": Bug(
        ((Changes, "_enqueue_claims_on", no_result),),
        ("conditions disagree",),
        standing=True,
    ),
    "mirrors are written blindly": Bug(
        ((MirrorWrites, "patch", _patch_blindly),),
        ("bound too early", "handed out twice", "left over", "moved under a pod", "waits in vain", "in circles"),
        trouble=True,
        extender=True,
    ),
}

BUGS = {
    **BUGS,
    "any name of a request makes a mirror, and a generated one is freed with its own pod": Bug(
        (
            (admission, "_creation_refused", lambda _, __, kind: "" if kind.endswith("Template") else "no"),
            (admission, "is_shareable", lambda claim: claim.spec.devices.requests[0].name != "exclusive"),
            (Deallocator, "_is_deleted_with_pod", lambda _self, _holding: True),
            (UnseenUsers, "join_known", lambda self, holding: _LET_IN(self, holding) if holding.named else []),
        ),
        ("exclusive, two pods", "handed out twice", "waits in vain"),
        tenant=True,
    ),
    "a restart counts only what has its owner, which anybody may change": Bug(
        (
            (admission, "_ownership", lambda mirror: _WHOSE(mirror)[1:]),
            (restoring, "counted", _owned_only),
        ),
        ("handed out twice", "moved under a pod"),
        tenant=True,
    ),
}

BUGS = {
    **BUGS,
    **OF_PREEMPTION,
    **OF_NODES,
    **OF_STANDALONE,
    "no claim is kept": Bug(((Keeping, "pod_left", no_result),), ("freed while kept",), lasting=True),
    "a restart forgets until when claims are kept": Bug(
        ((restoring, "moment", no_result),), ("freed while kept",), lasting=True
    ),
    "the deadline of a kept claim counts from the first pod's end": Bug(
        ((Keeping, "pod_left", _left_first),), ("freed while kept",), lasting=True
    ),
    "the driver takes back what is kept": Bug(
        ((Deallocator, "_released", _taken_back),), ("handed out twice",), lasting=True
    ),
    "a restart forgets claims without users": Bug(
        ((restoring, "adopt_record", _adopt_used),), ("handed out twice", "freed while kept"), lasting=True
    ),
    "data stays where it was when its claim ends": Bug(
        ((Releases, "owes_removal", lambda *_: False),), ("handed out twice", "left over"), data=True
    ),
    "what data was on is free before it is removed": Bug(
        ((Deallocator, "_finish", _free_at_once),), ("handed out twice",), data=True
    ),
    "a kept claim is never released": Bug(
        ((Keeping, "seconds_left", lambda _self, holding: 60.0 if holding.kept_until else 0.0),),
        ("kept too long", "left over"),
        lasting=True,
    ),
    "what others need is released with its last user": Bug(
        ((Ledger, "used_by", lambda *_: ()),), ("freed under a view",), viewing=True
    ),
    "a restart forgets what allocations need": Bug(
        ((restoring, "_uses", lambda *_: ()),), ("freed under a view",), viewing=True
    ),
    "what is being released is needed anew": Bug(
        ((Allocator, "_set_uses", _needs_anything),),
        ("freed under a view",),
        trouble=True,
        extender=True,
        viewing=True,
        data=True,
    ),
    "two claims reserve the same room": Bug(
        ((room, "reservation_shortage", lambda *_: ""),), ("reserved twice",), reserving="Ledger", lasting=True
    ),
    "a restart forgets what is reserved": Bug(
        ((sdk_records, "_reserve", no_result),), ("reserved twice",), reserving="Ledger", lasting=True
    ),
    "a yielded reservation is counted as free for everybody": Bug(
        ((room, "_classes", lambda *_: [GUEST]),),
        ("room taken",),
        reserving="Ledger",
        yielding=True,
        lasting=True,
    ),
    "what was reserved stays reserved": Bug(
        ((Ledger, "reserving", _ever_reserving()),), ("waits in vain",), reserving="Ledger", lasting=True
    ),
    "room is held for claims that have ended": Bug(
        ((ReservationPods, "_give_up", nothing),),
        ("room not held", "left over"),
        reserving="Nominated",
        lasting=True,
    ),
    "reservation pods are not nominated": Bug(
        ((ReservationPods, "_nominate", nothing),), ("room not held",), reserving="Nominated", lasting=True
    ),
    "nobody looks at reservation pods that others deleted": Bug(
        ((Changes, "_enqueue_room_of", lambda *_: None),),
        ("room not held", "left over"),
        meddling=True,
        reserving="Nominated",
        lasting=True,
    ),
    "mirrors of templates that are gone are made again": Bug(
        ((MadeMirrors, "is_gone", _never),), ("in circles",), on_demand=True
    ),
    "nothing wakes immediate claims": Bug(
        ((ImmediateClaims, "wake", lambda *_, **__: None),), ("waits in vain: immediate claim",), standing=True
    ),
    "writes of what is gone are remembered": Bug(
        ((ClusterCache, "_has_claim", lambda *_: True),), ("left over: own writes",), trouble=True, meddling=True
    ),
    "limits are not looked at": Bug(((Limits, "excess", lambda *_: ""),), ("over the limit",), limiting=True),
    "nobody is woken when there is room below a limit": Bug(
        ((Limits, "forget", Limits._remove),), ("waits in vain",), limiting=True
    ),
    "parameters that were not understood are not read again": Bug(
        ((ReferenceReader, "reread_later", no_result),), ("waits in vain",), referring=True
    ),
    "a restart forgets tokens": Bug(((TokensDriver, "restore", no_result),), ("over the limit",), tokens=True),
}


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """The bug is in the code within the block."""
    bug = BUGS[name]
    with ExitStack() as stack:
        for where, attribute, broken in bug.patches:
            stack.enter_context(patch.object(where, attribute, broken))
        yield bug
