"""Planted bugs by which a pod gets devices, or a node, that its claim does not have any more, or waits for a node
that takes pods again."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace
from tests.soak.planted.bug import Bug

from parley.api.builtin import Node, Pod
from parley.control.caches.own_writes import OwnWrites
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding, Phase
from parley.control.records import Records
from parley.control.release.deallocation import Deallocator
from parley.drivers.device.inventory import Inventory
from parley.scheduler import changes, placement
from parley.scheduler.differences import node_differs
from parley.scheduler.negotiator import Negotiator
from parley.sdk import Device

STILL_HELD = 60.0
"""Seconds: longer than any kubelet of a soak has something prepared for a pod that was deleted by force."""


async def _free_before_receipt(self: Deallocator, holding: Holding) -> bool:
    """The claim, not its devices: so nobody else is given them, and the claim's next pod may get others."""
    if not (holding.phase is Phase.RELEASING and holding.owed and holding.named):
        return await _CONCLUDE(self, holding)
    driver: Any = self._drivers[holding.driver].driver
    devices, shared = driver._inventory._held[holding.uid]
    await self._finish(holding, pod_terminal=True)
    loop = asyncio.get_running_loop()
    _LEFT.setdefault(loop, []).append(
        left := (loop.time() + STILL_HELD, f"{holding.uid}, before", devices, shared)
    )
    _hold_until(driver._inventory, *left)
    return True


def _hold_until(inventory: Inventory, until: float, uid: str, devices: tuple[Device, ...], shared: bool) -> None:
    inventory.hold(uid, devices, shared=shared)
    asyncio.get_running_loop().call_at(until, inventory.release, uid)


def _with_what_is_left(self: Inventory, driver: str) -> None:
    """Another controller knows of it, too."""
    _INVENTORY(self, driver)
    loop = asyncio.get_running_loop()
    for left in [left for left in _LEFT.get(loop, ()) if left[0] > loop.time()]:
        _hold_until(self, *left)


async def _take_back(self: Records, claims: Sequence[PodClaim], _why: str) -> None:
    for claim in claims:
        if claim.mirror is not None and claim.mirror.status.allocation is not None:
            await self.clear(claim.mirror)


def _offers_once(self: Negotiator, attempt: Any, pod: Pod, *claims: Any) -> bool:
    return not pod.status.nominated_node_name and _OFFERS(self, attempt, pod, *claims)


def _another(pod: Pod, offered: Sequence[PodClaim]) -> str:
    chosen = _CHOSEN(pod, offered)
    others = sorted({node for claim in offered for node in claim.offered_nodes} - {chosen})
    return others[0] if chosen and others and not pod.spec.node_name else chosen


def _differs_but_for_taints(old: Node, new: Node) -> bool:
    return _NODE_DIFFERS(old, replace(new, spec=replace(new.spec, taints=old.spec.taints)))


_NODE_DIFFERS = node_differs
_INVENTORY = Inventory.__init__
_LEFT: WeakKeyDictionary[asyncio.AbstractEventLoop, list[tuple[float, str, tuple[Device, ...], bool]]]
_LEFT = WeakKeyDictionary()
"""Until when a claim's former devices are held, by what name: in each world."""

_CONCLUDE, _OFFERS, _CHOSEN = Deallocator._free_if_confirmed, Negotiator._offers, placement.chosen_node

OF_NODES: Mapping[str, Bug] = {
    "a claim is allocated anew while a node has it prepared": Bug(
        ((Deallocator, "_free_if_confirmed", _free_before_receipt), (Inventory, "__init__", _with_what_is_left)),
        ("stale devices",),
        hostile_tenant=True,
    ),
    "a claim moves while the scheduler binds its pod": Bug(
        ((Records, "decline", _take_back), (Negotiator, "_offers", _offers_once)),
        ("bound elsewhere",),
        misbehaving_driver=True,
    ),
    "nobody is woken when a node loses a taint": Bug(
        ((changes, "node_differs", _differs_but_for_taints),),
        ("waits in vain", "conditions disagree"),
        no_execute_taints=True,
    ),
    "what Parley itself wrote counts as seen at once": Bug(
        ((OwnWrites, "is_stale", lambda *_: False),),
        ("bound too early", "handed out twice", "waits in vain", "left over", "never quiet"),
        parley_watch_lag=True,
    ),
    "another node is taken than the scheduler chose": Bug(
        ((placement, "chosen_node", _another),), ("bound elsewhere",)
    ),
}
