"""Planted bugs of the order in which pods are served, and of preemption."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from tests.soak.actions.priorities import Preemption
from tests.soak.planted.bug import Bug, no_result, nothing

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.control import allocation
from parley.control.claims.podclaims import PodClaim
from parley.control.decision import decide, kept
from parley.control.decision.demand import Demand
from parley.control.nominations import Nominations
from parley.control.objects.pod import priority as pod_priority
from parley.control.state import State
from parley.drivers.device import DeviceDriver
from parley.negotiation import victims
from parley.scheduler import claim_preemption, negotiator
from parley.scheduler import pods as waiting_pods
from parley.scheduler.candidates import CandidateNodes
from parley.scheduler.claim_preemption import ClaimPreemption
from parley.scheduler.claim_victims import ClaimVictims
from parley.scheduler.extender import binding, preempting
from parley.scheduler.extender.preempting import Preemptors

ALLOWED = Preemption.ALLOWED


def _equals_too(self: ClaimVictims, pod: Pod) -> bool:
    lower = pod_priority(pod) - (pod_priority(pod) == pod_priority(self._pod))
    return _MAY_BE_EVICTED(self, replace(pod, spec=replace(pod.spec, priority=lower)))


def _any_pod_below(self: ClaimVictims, pod: Pod) -> bool:
    return pod_priority(pod) < pod_priority(self._pod)


async def _delete_victim(self: ClaimPreemption, victim: Pod, *, dry_run: bool, **_: bool) -> bool:
    await _POST(self, victim, dry_run=True)
    if not dry_run:
        await self._client.delete(PODS, victim.metadata.name, victim.metadata.namespace)
    return True


def _never_enough(state: State, uid: str, least: int, node: str, demand: Demand) -> bool:
    own = state.nominations.of(uid)
    return (own is None or own.node != node) and _ENOUGH(state, uid, least, node, demand)


def _but_for_equals(self: Nominations, uid: str, priority: int | None, drivers: Any) -> dict[str, int]:
    return _SHARED(self, uid, None if priority is None else priority + 1, drivers)


def _take_whatever(state: State, _pod: Pod, demand: Demand, _claims: Sequence[PodClaim]) -> frozenset[str]:
    return frozenset(name for name in demand.requests if state.drivers[name].supports_preemption)


_MAY_BE_EVICTED, _POST = ClaimVictims._may_be_evicted, ClaimPreemption._post
_SHARED, _ENOUGH = Nominations.shared, kept._enough

OF_PREEMPTION: Mapping[str, Bug] = {
    "pods of equal priority are evicted": Bug(
        ((ClaimVictims, "_may_be_evicted", _equals_too),), ("wrongly evicted",), preemption=ALLOWED
    ),
    "victims' classes are not looked at": Bug(
        ((ClaimVictims, "_may_be_evicted", _any_pod_below),), ("wrongly evicted",), preemption=ALLOWED
    ),
    "neither the preemptor's policy nor its class is looked at": Bug(
        (
            (negotiator, "drivers_allowing_preemption", _take_whatever),
            (preempting, "drivers_allowing_preemption", _take_whatever),
            (claim_preemption, "drivers_allowing_preemption", _take_whatever),
        ),
        ("wrongly evicted",),
        preemption=ALLOWED,
    ),
    "drivers would have room, whoever leaves": Bug(
        ((DeviceDriver, "viable_without", lambda _self, _request, _node, uids: bool(uids)),),
        ("evicted in vain",),
        preemption=ALLOWED,
    ),
    "what else a preemptor needs of a node is not looked at": Bug(
        ((CandidateNodes, "misfit_with_usage", lambda *_: ""),), ("evicted in vain",), preemption=ALLOWED
    ),
    "what is kept is kept from its own pod": Bug(
        ((kept, "_enough", _never_enough),),
        ("evicted in vain", "preempts nobody"),
        preemption=ALLOWED,
    ),
    "all that are low enough are evicted": Bug(
        ((victims, "_fewest", lambda pods, *_: tuple(pods)),),
        ("evicted needlessly",),
        preemption=ALLOWED,
    ),
    "what is kept is open to pods of equal priority": Bug(
        ((Nominations, "shared", _but_for_equals),), ("given away", "evicted in vain"), preemption=ALLOWED
    ),
    "what others wait for is not left for them": Bug(
        ((kept, "_enough", lambda *_: True),), ("given away",), preemption=ALLOWED
    ),
    "nobody is evicted": Bug(((ClaimPreemption, "make_room", nothing),), ("preempts nobody",), preemption=ALLOWED),
    "nobody is evicted for pods of the second scheduler": Bug(
        ((Preemptors, "make_room", nothing),), ("preempts nobody",), extender=True, preemption=ALLOWED
    ),
    "what is kept is open to pods of the second scheduler": Bug(
        (
            (decide, "kept_nodes", lambda *_: {}),
            (binding, "kept_nodes", lambda *_: {}),
            (allocation, "kept_from", lambda *_: ""),
        ),
        ("given away", "evicted in vain"),
        extender=True,
        preemption=ALLOWED,
    ),
    "what is kept stays when its pod is bound or gone": Bug(
        ((Nominations, "end", no_result),), ("left over",), preemption=ALLOWED
    ),
    "pods stand in line by arrival alone": Bug(
        ((waiting_pods, "priority", lambda _pod: 0),), ("out of turn",), preemption=Preemption.NEVER
    ),
    "victims are deleted, budgets are only asked": Bug(
        ((ClaimPreemption, "_post", _delete_victim),), ("wrongly evicted",), preemption=ALLOWED
    ),
}
