"""Planted bugs when claims are released, or kept without users."""

from collections.abc import Mapping
from typing import Any

from tests.soak.planted.bug import Bug, no_result, nothing

from parley.control.allocation import Allocator
from parley.control.claims.reconciler import ClaimReconciler
from parley.control.holding import Holding, Phase
from parley.control.ledger import Ledger
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator
from parley.control.release.releases import Releases
from parley.control.release.unused_claims import UnusedClaimDeadlines
from parley.negotiation.states import next_step
from parley.scheduler.native import path
from parley.scheduler.placement import Placement
from parley.sdk.embedded import EmbeddedDriver


def _leave_only(self: Ledger, holding: Holding) -> None:
    for pod in list(holding.pods.values()):
        self.leave(holding, pod)


def _left_first(self: UnusedClaimDeadlines, holding: Holding, *, bound: bool) -> None:
    if holding.kept_until is None:
        _LEFT(self, holding, bound=bound)


def _taken_back(self: Deallocator, holding: Holding) -> None:
    driver: Any = self._drivers[holding.driver].driver
    if holding.kept_until is not None:
        driver._inventory.release(holding.uid)
    _LEFT_BY_POD(self, holding)


async def _free_at_once(self: Deallocator, holding: Holding, *, pod_terminal: bool) -> None:
    await _FINISH(self, holding, pod_terminal=pod_terminal)
    driver: Any = self._drivers[holding.driver].driver
    driver._inventory.release(holding.uid)


def _renew_always(self: UnusedClaimDeadlines, holding: Holding) -> None:
    removing, holding.removing = holding.removing, False
    _RENEW(self, holding)
    holding.removing = removing


async def _keep_once_more(self: Deallocator, holding: Holding) -> bool:
    kept = vars(self).setdefault("kept", set())
    if holding.phase is Phase.RELEASING and not holding.owed and holding.uid not in kept:
        kept.add(holding.uid)
        holding.removing = False
    return await _FREE(self, holding)


def _needs_anything(self: Allocator, new: Any) -> str:
    _GOES(self, new)
    return ""


_FINISH = Deallocator._finish
_FREE = Deallocator._free_if_confirmed
_RENEW = UnusedClaimDeadlines.renew
_GOES = Allocator._set_uses
_LEFT = UnusedClaimDeadlines.pod_left
_LEFT_BY_POD = Deallocator._released

OF_RELEASE: Mapping[str, Bug] = {
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
        interference=True,
    ),
    "no claim is kept": Bug(
        ((UnusedClaimDeadlines, "pod_left", no_result),), ("freed while kept",), kept_claims=True
    ),
    "the deadline of a kept claim counts from the first pod's end": Bug(
        ((UnusedClaimDeadlines, "pod_left", _left_first),), ("freed while kept",), kept_claims=True
    ),
    "the driver takes back what is kept": Bug(
        ((Deallocator, "_released", _taken_back),), ("handed out twice",), kept_claims=True
    ),
    "a kept claim is never released": Bug(
        ((UnusedClaimDeadlines, "seconds_left", lambda _self, holding: 60.0 if holding.kept_until else 0.0),),
        ("kept too long", "left over"),
        kept_claims=True,
    ),
    "data stays where it was when its claim ends": Bug(
        ((Releases, "owes_removal", lambda *_: False),), ("handed out twice", "left over"), node_data=True
    ),
    "what data was on is free before it is removed": Bug(
        ((Deallocator, "_finish", _free_at_once),), ("handed out twice",), node_data=True
    ),
    "a claim is kept after its data was removed": Bug(
        ((UnusedClaimDeadlines, "renew", _renew_always), (Deallocator, "_free_if_confirmed", _keep_once_more)),
        ("removed too early",),
        kept_claims=True,
        node_data=True,
    ),
    "what others need is released with its last user": Bug(
        ((Ledger, "used_by", lambda *_: ()),), ("freed under a view",), views=True
    ),
    "what is being released is needed anew": Bug(
        ((Allocator, "_set_uses", _needs_anything),),
        ("freed under a view",),
        network_faults=True,
        extender=True,
        views=True,
        node_data=True,
    ),
}
