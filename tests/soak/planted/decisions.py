"""Planted bugs in decisions: what may be allocated to whom, and where."""

from collections.abc import Mapping
from typing import Any

from tests.soak.planted.bug import Bug

from parley.api.conditions import ConditionUpdate
from parley.api.selectors import node_selector
from parley.control.claims import gathering, named
from parley.control.limits import Limits
from parley.control.objects import mirror as mirrors
from parley.drivers.device.inventory import Inventory
from parley.sdk import claim_conditions


def _elsewhere(nodes: Any) -> dict[str, Any]:
    return _SELECTOR([{"a": "b", "b": "c", "c": "d"}.get(node, "a") for node in nodes])


_SELECTOR = node_selector
_FREE_FOR_ALL = [check for check in named.USABLE if check not in (named.in_use, named.allocating_for_another)]

OF_DECISIONS: Mapping[str, Bug] = {
    "the driver hands out what is held": Bug(
        ((Inventory, "_free_shares", lambda _self, _device, kind, _without: kind.slices),), ("handed out twice",)
    ),
    "exclusive claims are shared": Bug(
        ((gathering, "USABLE", _FREE_FOR_ALL),), ("exclusive, two pods", "left over", "waits in vain")
    ),
    "an allocation names another node": Bug(
        ((mirrors, "node_selector", _elsewhere), (mirrors, "selector_body", _elsewhere)), ("bound elsewhere",)
    ),
    "limits are not looked at": Bug(((Limits, "excess", lambda *_: ""),), ("over the limit",), class_limits=True),
    "a claim is ready whatever stands in the way": Bug(
        ((claim_conditions, "_not_ready", lambda *_: ConditionUpdate("Ready", True, "Ready", "")),),
        ("conditions disagree",),
    ),
}
