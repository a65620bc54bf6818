"""The rules of "Immediate claims"."""

from collections.abc import Sequence
from typing import Any

from parley.api.resources import NODES
from parley.api.selectors import node_selector
from parley.conformance.checks.allocating import available
from parley.conformance.results import Check, NotApplicable, Unmet
from parley.conformance.stage import Stage, claim_text, has_allocation

_SECTION = "Immediate claims"
_TAINT = "conformance.parley.dev/taint"


async def _allocates_at_once(stage: Stage) -> None:
    """An immediate claim is allocated without a pod."""
    claim = await stage.claim(allocationMode="Immediate")
    await stage.allocated(claim)


async def _on_suitable_nodes(stage: Stage) -> None:
    """An immediate claim is allocated on a suitable node."""
    node = await stage.usable_node()
    await stage.use_class(suitableNodes=node_selector([node]))
    claim = await stage.claim(allocationMode="Immediate")
    allocation = (await stage.allocated(claim))["status"]["allocation"]
    if not available(allocation, node, await stage.labels_of(node)):
        raise Unmet(stage.about(claim), f"an allocation on {node}, the only suitable node", f"{allocation}")


async def _not_on_tainted_nodes(stage: Stage) -> None:
    """An immediate claim is not allocated on a tainted or cordoned node."""
    if not stage.scene.in_memory:
        raise NotApplicable("the nodes of this cluster are not the kit's to taint")
    node = await stage.usable_node()
    await stage.use_class(suitableNodes=node_selector([node]))
    for spec, state in _KEPT_AWAY:
        await stage.scene.client.patch(NODES, node, {"spec": spec})
        try:
            await stage.settle()  # until the driver has seen it
            claim = await stage.claim(allocationMode="Immediate")
            await stage.settle()
            found = await stage.get_claim(claim)
            if has_allocation(found):
                expected = f"no allocation, as the only suitable node, {node}, {state}"
                raise Unmet(stage.about(claim), expected, claim_text(found))
        finally:
            await stage.scene.client.patch(NODES, node, {"spec": dict.fromkeys(spec)})
        await stage.allocated(claim)
        await stage.request_deallocation(claim)
        await stage.delete_claim(claim)


_KEPT_AWAY: Sequence[tuple[dict[str, Any], str]] = (
    ({"taints": [{"key": _TAINT, "effect": "NoSchedule"}]}, "has a NoSchedule taint"),
    ({"taints": [{"key": _TAINT, "effect": "NoExecute"}]}, "has a NoExecute taint"),
    ({"unschedulable": True}, "is cordoned"),
)


async def _only_accepted(stage: Stage) -> None:
    """An immediate claim of a class with limits is allocated once it is accepted."""
    await stage.use_class(limits=[{"claims": 1}])
    claim = await stage.claim(allocationMode="Immediate")
    await stage.settle()
    found = await stage.get_claim(claim)
    if has_allocation(found):
        expected = "no allocation, as the class has limits and the condition Accepted is not True"
        raise Unmet(stage.about(claim), expected, claim_text(found))
    await stage.write_claim(claim, {"status": {"conditions": [_ACCEPTED]}}, "status")
    await stage.allocated(claim)


_ACCEPTED = {
    "type": "Accepted",
    "status": "True",
    "reason": "Accepted",
    "message": "within the limits",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

CHECKS = (
    Check("immediate", _SECTION, _allocates_at_once),
    Check("immediate-suitable", _SECTION, _on_suitable_nodes, ("immediate", "available-on-nodes")),
    Check("immediate-tainted", _SECTION, _not_on_tainted_nodes, ("immediate", "immediate-suitable")),
    Check("immediate-accepted", _SECTION, _only_accepted, ("immediate",)),
)
