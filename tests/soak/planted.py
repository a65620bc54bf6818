"""Bugs on purpose: each breaks one rule of the real code while it is planted, and the soak must find it.

A bug is planted in the process that calls; `parley`'s own modules are as before after the block.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from tests.soak.priorities import Preemption
from tests.soak.processes import WHO

from parley.api.builtin import Pod
from parley.api.conditions import ConditionUpdate
from parley.api.models import ResourceClaim
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.api.selectors import node_selector
from parley.control import restoring, room
from parley.control.caches.cluster import priority as pod_priority
from parley.control.caches.own_writes import OwnWrites
from parley.control.claims import gathering, named
from parley.control.claims.podclaims import PodClaim
from parley.control.claims.reconciler import ClaimReconciler
from parley.control.decision.demand import Demand
from parley.control.ledger import Holding, Ledger
from parley.control.nominations import Nominations
from parley.control.objects import mirror as mirrors
from parley.control.publishing import podscheduling
from parley.control.records import Records
from parley.control.release.giving_back import GivingBack
from parley.control.release.keeping import Keeping
from parley.control.release.releasing import Releases
from parley.control.release.unseen_users import UnseenUsers
from parley.control.state import State
from parley.control.writes import MirrorWrites
from parley.drivers.device import DeviceDriver
from parley.drivers.device.inventory import Inventory
from parley.kube.informer import Informer
from parley.kube.lease import LeaseElector
from parley.kube.queue import WorkQueue
from parley.negotiation import victims
from parley.negotiation.states import next_step
from parley.negotiation.waiting import WaitingLines
from parley.scheduler import negotiator
from parley.scheduler import pods as waiting_pods
from parley.scheduler.candidates import CandidateNodes
from parley.scheduler.changes import Changes
from parley.scheduler.claim_preemption import ClaimPreemption
from parley.scheduler.claim_victims import ClaimVictims
from parley.scheduler.extender.binding import Binder
from parley.scheduler.extender.posting import Posting
from parley.scheduler.extender.rejections import Rejections
from parley.scheduler.native import door
from parley.sdk import claim_conditions
from parley.sdk import recorded as sdk_records
from parley.sdk.embedded import EmbeddedDriver
from parley.simulate import admission

ALLOWED = Preemption.ALLOWED

Patch = tuple[Any, str, Any]
"""An object, its attribute, and what stands there while the bug is planted."""


@dataclass(frozen=True, slots=True)
class Bug:
    """What is broken, the rules of which one must notice, and whether that takes two controllers, a bad network,
    meddlers, pods for the extender door, lost responses to bindings, a hostile tenant, classes that keep claims
    or pods that leave data on nodes, or claims that reserve room there; and what there is of priorities."""

    patches: tuple[Patch, ...]
    rules: tuple[str, ...]
    lease: bool = False
    trouble: bool = False
    meddling: bool = False
    extender: bool = False
    lost_bindings: bool = False
    tenant: bool = False
    lasting: bool = False
    preemption: Preemption = Preemption.NONE
    data: bool = False
    reserving: bool = False


async def _nothing(*_: Any, **__: Any) -> None:
    """Does not what it should."""


def _no_result(*_: Any, **__: Any) -> None:
    """Neither does this."""


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
    self._cluster.wrote(written)
    return written


def _owned_only(mirror: Any, driver: str) -> Any:
    return _COUNTED(mirror, driver) if mirrors.owner_pod(mirror) is not None else None


def _left_first(self: Keeping, holding: Holding, *, bound: bool) -> None:
    if holding.kept_until is None:
        _LEFT(self, holding, bound=bound)


def _adopt_used(state: State, claim: ResourceClaim) -> Holding | None:
    return _ADOPT_RECORD(state, claim) if claim.status.reserved_for else None


def _taken_back(self: GivingBack, holding: Holding) -> None:
    driver: Any = self._drivers[holding.driver].driver
    if holding.kept_until is not None:
        driver._inventory.release(holding.uid)
    _LEFT_BY_POD(self, holding)


async def _free_at_once(self: GivingBack, holding: Holding, *, departed: bool) -> None:
    await _FINISH(self, holding, departed=departed)
    driver: Any = self._drivers[holding.driver].driver
    driver._inventory.release(holding.uid)


_FINISH = GivingBack._finish
_LEFT, _LEFT_BY_POD, _ADOPT_RECORD = Keeping.left, GivingBack._left, restoring.adopt_record


def _equals_too(self: ClaimVictims, pod: Pod) -> bool:
    lower = pod_priority(pod) - (pod_priority(pod) == pod_priority(self._pod))
    return _MAY_BE_EVICTED(self, replace(pod, spec=replace(pod.spec, priority=lower)))


def _any_pod_below(self: ClaimVictims, pod: Pod) -> bool:
    return pod_priority(pod) < pod_priority(self._pod)


async def _delete_victim(self: ClaimPreemption, victim: Pod, *, dry_run: bool) -> bool:
    await _POST(self, victim, dry_run=True)
    if not dry_run:
        await self._client.delete(PODS, victim.metadata.name, victim.metadata.namespace)
    return True


def _closed_to_all(self: Nominations, uid: str, priority: int | None, drivers: Any) -> dict[str, str]:
    own = self.of(uid)
    return {**_CLOSED(self, uid, priority, drivers), **({own.node: "kept"} if own is not None else {})}


def _open_to_equals(self: Nominations, uid: str, priority: int | None, drivers: Any) -> dict[str, str]:
    return _CLOSED(self, uid, None if priority is None else priority + 1, drivers)


def _take_whatever(state: State, _pod: Pod, demand: Demand, _claims: Sequence[PodClaim]) -> frozenset[str]:
    return frozenset(name for name in demand.requests if state.drivers[name].foresees)


_CLOSED, _MAY_BE_EVICTED, _POST = Nominations.closed, ClaimVictims._may_be_evicted, ClaimPreemption._post
_WHOSE = admission._whose
_COUNTED, _LET_IN = mirrors.counted, UnseenUsers.join_known
_BIND = Posting.bind
_FREE_FOR_ALL = [check for check in named.USABLE if check not in (named.in_use, named.allocating_for_another)]
_OFFER, _SELECTOR = mirrors.offer_body, node_selector

BUGS: Mapping[str, Bug] = {
    "the driver hands out what is held": Bug(
        ((Inventory, "_free_shares", lambda _self, _device, kind, _without: kind.slices),), ("handed out twice",)
    ),
    "what is given back stays in the API": Bug(
        ((Records, "clear_mirror", _nothing), (Records, "clear_claim", _nothing)),
        ("bound too early", "handed out twice", "left over", "moved under a pod", "waits in vain"),
    ),
    "what is given back stays with the driver": Bug(
        ((EmbeddedDriver, "deallocate", _nothing),), ("left over", "waits in vain")
    ),
    "what is given back stays in the ledger": Bug(
        ((Ledger, "drop", _leave_only),), ("left over", "waits in vain", "in circles")
    ),
    "a restart forgets named claims": Bug(
        ((restoring, "adopt_record", _no_result),),
        ("handed out twice", "left over", "moved under a pod", "waits in vain"),
    ),
    "a restart forgets generated claims": Bug(
        ((restoring, "adopt", _no_result),), ("handed out twice", "left over", "moved under a pod")
    ),
    "a leader never gives up": Bug(
        ((LeaseElector, "_remaining", lambda _self: 1.0),), ("wrote without lease",), lease=True
    ),
    "nobody wakes who waits": Bug(
        (
            (WaitingLines, "wake", lambda _self, _topic: []),
            (WaitingLines, "sort_out", lambda _self, _topic, _nodes: ([], [])),
        ),
        ("waits in vain",),
    ),
    "a restart forgets what nodes owe": Bug(
        ((restoring, "_adopt_release", _no_result),), ("handed out twice", "left over")
    ),
    "what nodes owe is not waited for": Bug(((Releases, "owe", _no_result),), ("handed out twice",)),
    "nodes are not asked": Bug(((Releases, "ask", _nothing),), ("left over", "waits in vain")),
    "finalizers stay": Bug(
        ((ClaimReconciler, "_drop_finalizer", _nothing),), ("left over", "waits in vain", "conditions disagree")
    ),
    "a bound pod's claims are freed like any": Bug(
        ((door, "next_step", lambda states, *, bound: next_step(states, bound=False)),),
        ("moved under a pod", "handed out twice", "not reserved"),
        meddling=True,
    ),
    "exclusive claims are shared": Bug(
        ((gathering, "USABLE", _FREE_FOR_ALL),), ("exclusive, two pods", "left over", "waits in vain")
    ),
    "an allocation names another node": Bug(((mirrors, "node_selector", _elsewhere),), ("bound elsewhere",)),
    "an offer looks like an allocation": Bug(
        ((mirrors, "offer_body", _settled_offer),), ("bound too early", "in circles")
    ),
    "PodSchedulings have no owner": Bug(
        ((podscheduling, "body", _without("ownerReferences", podscheduling.body)),), ("left over",)
    ),
    "deletions go unseen": Bug(
        ((Informer, "_remove", _for_parley_only(_no_result, Informer._remove)),),
        ("left over", "waits in vain", "handed out twice"),
    ),
    "failed work is not repeated": Bug(
        ((WorkQueue, "retry", _for_parley_only(_no_result, WorkQueue.retry)),),
        ("left over", "waits in vain", "conditions disagree"),
        trouble=True,
    ),
    "the extender door binds before it allocates": Bug(
        ((Binder, "_ready", _ready_at_once),), ("bound too early",), extender=True
    ),
    "a binding may land after its claims are given back": Bug(
        ((Posting, "settle", _nothing), (Posting, "bind", _bind_any_version)),
        ("bound too early", "bound elsewhere", "handed out twice", "moved under a pod"),
        trouble=True,
        extender=True,
        lost_bindings=True,
    ),
    "a scheduler is not notified that it may retry": Bug(
        ((Rejections, "_nudge", _nothing),), ("waits in vain",), extender=True
    ),
    "a reservation that a scheduler dropped is not made again": Bug(
        ((PodClaim, "is_reserved", lambda _self, _pod: True),),
        ("not reserved", "waits in vain"),
        lost_bindings=True,
    ),
    "our own writes that are not seen yet are forgotten": Bug(
        ((OwnWrites, "unseen", lambda _self, _cached: False),),
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
        ((Changes, "_look_at_claims_on", _no_result),),
        ("conditions disagree",),
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
            (admission, "_not_theirs", lambda _title, _rights, kind: "" if kind.endswith("Template") else "no"),
            (admission, "is_shareable", lambda claim: claim.spec.devices.requests[0].name != "exclusive"),
            (GivingBack, "_vanishes", lambda _self, _holding: True),
            (UnseenUsers, "join_known", lambda self, holding: _LET_IN(self, holding) if holding.named else []),
        ),
        ("exclusive, two pods", "handed out twice", "waits in vain"),
        tenant=True,
    ),
    "a restart counts only what has its owner, which anybody may change": Bug(
        (
            (admission, "_whose", lambda mirror: _WHOSE(mirror)[1:]),
            (restoring, "counted", _owned_only),
        ),
        ("handed out twice",),
        tenant=True,
    ),
}


BUGS = {
    **BUGS,
    "no claim is kept": Bug(((Keeping, "left", _no_result),), ("freed while kept",), lasting=True),
    "a restart forgets until when claims are kept": Bug(
        ((restoring, "moment", _no_result),), ("freed while kept",), lasting=True
    ),
    "the deadline of a kept claim counts from the first pod's end": Bug(
        ((Keeping, "left", _left_first),), ("freed while kept",), lasting=True
    ),
    "the driver takes back what is kept": Bug(
        ((GivingBack, "_left", _taken_back),), ("handed out twice",), lasting=True
    ),
    "a restart forgets claims without users": Bug(
        ((restoring, "adopt_record", _adopt_used),), ("handed out twice", "freed while kept"), lasting=True
    ),
    "data stays where it was when its claim ends": Bug(
        ((Releases, "owes_removal", lambda *_: False),), ("handed out twice", "left over"), data=True
    ),
    "what data was on is free before it is removed": Bug(
        ((GivingBack, "_finish", _free_at_once),), ("handed out twice",), data=True
    ),
    "a kept claim is never given back": Bug(
        ((Keeping, "seconds_left", lambda _self, holding: 60.0 if holding.kept_until else 0.0),),
        ("kept too long", "left over"),
        lasting=True,
    ),
    "two claims reserve the same room": Bug(
        ((room, "crowded", lambda *_: ""),), ("reserved twice",), reserving=True, lasting=True
    ),
    "a restart forgets what is reserved": Bug(
        ((sdk_records, "_reserve", _no_result),), ("reserved twice",), reserving=True, lasting=True
    ),
    "what was reserved stays reserved": Bug(
        ((Ledger, "reserving", _ever_reserving()),), ("waits in vain",), reserving=True, lasting=True
    ),
    "pods of equal priority are evicted": Bug(
        ((ClaimVictims, "_may_be_evicted", _equals_too),), ("wrongly evicted",), preemption=ALLOWED
    ),
    "victims' classes are not looked at": Bug(
        ((ClaimVictims, "_may_be_evicted", _any_pod_below),), ("wrongly evicted",), preemption=ALLOWED
    ),
    "neither the preemptor's policy nor its class is looked at": Bug(
        ((negotiator, "may_take", _take_whatever),),
        ("wrongly evicted",),
        preemption=ALLOWED,
    ),
    "drivers would have room, whoever leaves": Bug(
        ((DeviceDriver, "viable_without", lambda _self, _request, _node, uids: bool(uids)),),
        ("evicted in vain",),
        preemption=ALLOWED,
    ),
    "what else a preemptor needs of a node is not looked at": Bug(
        ((CandidateNodes, "misfit_beside", lambda *_: ""),), ("evicted in vain",), preemption=ALLOWED
    ),
    "what is kept is kept from its own pod": Bug(
        ((Nominations, "closed", _closed_to_all),),
        ("evicted in vain", "preempts nobody"),
        preemption=ALLOWED,
    ),
    "all that are low enough are evicted": Bug(
        ((victims, "_fewest", lambda pods, *_: tuple(pods)),),
        ("evicted needlessly",),
        preemption=ALLOWED,
    ),
    "what is kept is open to pods of equal priority": Bug(
        ((Nominations, "closed", _open_to_equals),), ("given away",), preemption=ALLOWED
    ),
    "nobody is evicted": Bug(
        ((ClaimPreemption, "make_room", _nothing),), ("preempts nobody",), preemption=ALLOWED
    ),
    "what is kept stays when its pod is bound or gone": Bug(
        ((Nominations, "end", _no_result),), ("left over",), preemption=ALLOWED
    ),
    "pods stand in line by arrival alone": Bug(
        ((waiting_pods, "priority", lambda _pod: 0),), ("out of turn",), preemption=Preemption.NEVER
    ),
    "victims are deleted, budgets are only asked": Bug(
        ((ClaimPreemption, "_post", _delete_victim),), ("wrongly evicted",), preemption=ALLOWED
    ),
}


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """The bug is in the code within the block."""
    bug = BUGS[name]
    with ExitStack() as stack:
        for where, attribute, broken in bug.patches:
            stack.enter_context(patch.object(where, attribute, broken))
        yield bug
