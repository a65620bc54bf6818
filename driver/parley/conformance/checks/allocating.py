"""The rules of "2. Allocate"."""

from collections.abc import Mapping
from typing import Any

import msgspec

from parley.api.builtin import Node, NodeSelector, ObjectMeta
from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.api.selectors import matches
from parley.conformance.results import Check, NotApplicable, Unmet
from parley.conformance.stage import (
    FOREIGN,
    Allocated,
    Entries,
    Stage,
    claim_text,
    entries_text,
    failure,
    has_allocation,
    viable_nodes,
)
from parley.kube.client import Call

_SECTION = "2. Allocate"


async def _allocates(stage: Stage) -> None:
    """A claim is allocated on the selected node."""
    await stage.allocate()


async def _selected_at_once(stage: Stage) -> None:
    """A claim is allocated on a node that is selected without a question."""
    node = await stage.usable_node()
    claim = await stage.claim(finalizers=[stage.finalizer])
    pod = await stage.ask(claim, nodes=[node], selected=node)
    await stage.allocated(claim, pod)


async def _finalizer_first(stage: Stage) -> None:
    """The finalizer is there before anything is held."""
    held = await stage.allocate()
    for write in stage.traffic.writes_to(CLAIMS, stage.name, held.claim):
        after = write.after or {}
        if stage.finalizer in after.get("metadata", {}).get("finalizers", ()) and not has_allocation(after):
            return
        if has_allocation(after):
            break
    expected = f"finalizer {stage.finalizer} in a write before that of the allocation"
    raise Unmet(stage.about(held.claim), expected, "no such write")


async def _one_write(stage: Stage) -> None:
    """Allocation and driverName are written together."""
    held = await stage.allocate()
    for write in stage.traffic.writes_to(CLAIMS, stage.name, held.claim):
        status = (write.after or {}).get("status") or {}
        if status.get("driverName") and not status.get("allocation"):
            raise Unmet(stage.about(held.claim), "driverName and allocation in one write", "driverName before it")
    name = (await stage.get_claim(held.claim))["status"].get("driverName")
    if name != stage.subject.driver:
        raise Unmet(stage.about(held.claim), f"status.driverName {stage.subject.driver}", f"{name}")


async def _available_on_nodes(stage: Stage) -> None:
    """The allocation can be used on the selected node."""
    node = await stage.usable_node()
    held = await stage.allocate(node)
    claim = await stage.get_claim(held.claim)
    allocation = claim["status"]["allocation"]
    if not available(allocation, node, await stage.labels_of(node)):
        expected = f"availableOnNodes left out, or with a term for metadata.name {node} or for its labels"
        raise Unmet(stage.about(held.claim), expected, f"{allocation.get('availableOnNodes')}")
    names = {handle.get("driverName") for handle in allocation.get("handles") or ()}
    if names - {stage.subject.driver}:
        raise Unmet(stage.about(held.claim), f"handles of {stage.subject.driver}", f"{sorted(names)}")


def available(allocation: Mapping[str, Any], node: str, labels: Mapping[str, str]) -> bool:
    """Whether the allocation can be used on the node, by a term for its name or by these labels of it."""
    selector = allocation.get("availableOnNodes")
    if selector is None:
        return True
    wanted = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = selector["nodeSelectorTerms"]
    if any(term.get("matchFields") == [wanted] and not term.get("matchExpressions") for term in terms):
        return True
    by_labels = [term for term in terms if not term.get("matchFields")]
    labelled = Node(metadata=ObjectMeta(name=node, labels=dict(labels)))
    return matches(msgspec.convert({"nodeSelectorTerms": by_labels}, NodeSelector), labelled)


async def _shareable(stage: Stage) -> None:
    """The allocation is shareable as its class is."""
    await stage.use_class(shareable=True)
    held = await stage.allocate()
    allocation = (await stage.get_claim(held.claim))["status"]["allocation"]
    if not allocation.get("shareable"):
        raise Unmet(stage.about(held.claim), "allocation.shareable true, as in its class", "it is not set")


async def _exclusive(stage: Stage) -> None:
    """The allocation is not shareable if its class is not."""
    await stage.use_class(shareable=False)
    held = await stage.allocate()
    allocation = (await stage.get_claim(held.claim))["status"]["allocation"]
    if allocation.get("shareable"):
        expected = "allocation.shareable false or left out, as in its class: otherwise several pods use the claim"
        raise Unmet(stage.about(held.claim), expected, "it is true")


async def _too_late(stage: Stage, number: int) -> tuple[str, str, list[str], list[Allocated]]:
    """Fills a node, and asks about it for a pod with `number` claims; returns node, pod, claims and
    allocations."""
    node, held = await stage.full_node()
    claims = [await stage.claim() for _ in range(number)]
    pod = await stage.ask(*claims, nodes=[node])
    await stage.answered(pod, *claims)
    return node, pod, claims, held


async def _failed(stage: Stage, pod: str, node: str) -> None:
    """Select the node, and wait for the failure. Raises Unmet."""
    await stage.set_question(pod, selectedNode=node)

    def reported(found: Entries) -> bool:
        return any(failure(entry).get("nodeName") == node for entry in found.values())

    await stage.until_entries(pod, reported, f"an entry with failure.nodeName {node}, which is full")


async def _reports_failure(stage: Stage) -> None:
    """A failure is reported with its node."""
    node, pod, (claim,), _ = await _too_late(stage, 1)
    await _failed(stage, pod, node)
    await _check_unallocated(stage, claim)


async def _check_unallocated(stage: Stage, *claims: str) -> None:
    for name in claims:
        claim = await stage.get_claim(name)
        written = [write.after or {} for write in stage.traffic.writes_to(CLAIMS, stage.name, name)]
        if has_allocation(claim) or any(map(has_allocation, written)):
            raise Unmet(stage.about(name), "no allocation at any time", claim_text(claim))


async def _all_or_none(stage: Stage) -> None:
    """A pod's claims are allocated all or none."""
    node, held = await stage.full_node()
    await stage.free(held[-1])
    claims = [await stage.claim(), await stage.claim()]
    pod = await stage.ask(*claims, nodes=[node])
    await stage.answered(pod, *claims)
    await stage.set_question(pod, selectedNode=node)
    await stage.settle()
    await _check_unallocated(stage, *claims)


async def room_for_one(stage: Stage) -> str:
    """A node that has room for one claim more. Raises NotApplicable."""
    node, held = await stage.full_node()
    await stage.free(held[-1])
    return node


async def check_room_for_one(stage: Stage, node: str, after: str) -> None:
    """Raises Unmet unless a claim can be allocated there."""
    claim = await stage.claim()
    pod = await stage.ask(claim, nodes=[node])

    def viable(found: Entries) -> bool:
        return viable_nodes(found.get(claim, {})) == [node]

    await stage.until_entries(pod, viable, f"{node} viable for one claim, as nothing is held {after}")
    await stage.set_question(pod, selectedNode=node)
    await stage.allocated(claim, pod)


async def _holds_nothing_after_failure(stage: Stage) -> None:
    """After a failure nothing is held."""
    node = await room_for_one(stage)
    claims = [await stage.claim(), await stage.claim()]
    pod = await stage.ask(*claims, nodes=[node])
    await stage.answered(pod, *claims)
    await _failed(stage, pod, node)
    await stage.drop(pod)
    await check_room_for_one(stage, node, f"of {pod}, whose allocation failed")


async def _holds_nothing_after_abort(stage: Stage) -> None:
    """After an abort nothing is held."""
    node = await room_for_one(stage)
    pod, _, _ = await begun(stage, node)
    await stage.drop(pod)
    await stage.settle()
    stage.traffic.end_refusals()
    await check_room_for_one(stage, node, f"of {pod}, which went while its claim was allocated")


async def _counts_own_writes(stage: Stage) -> None:
    """Of two pods at once one gets what there is."""
    node = await room_for_one(stage)
    claims = [await stage.claim(), await stage.claim()]
    pods = [await stage.ask(claim, nodes=[node]) for claim in claims]
    for pod, claim in zip(pods, claims, strict=True):
        await stage.answered(pod, claim)
    for pod in pods:
        await stage.set_question(pod, selectedNode=node)
    await stage.until_any_claim(claims, has_allocation, f"an allocation, as {node} has room for one claim")
    await stage.settle()
    if all([has_allocation(await stage.get_claim(claim)) for claim in claims]):
        expected = f"one of {' and '.join(claims)} allocated, as {node} has room for one claim"
        raise Unmet(f"namespace {stage.name}", expected, "both are allocated there")


async def _leaves_failure(stage: Stage) -> None:
    """What failed is not tried again by itself."""
    node, pod, (claim,), held = await _too_late(stage, 1)
    try:
        await _failed(stage, pod, node)
    except Unmet as unmet:
        raise NotApplicable(str(unmet)) from None
    await stage.free(held[0])
    await stage.settle()
    await _check_unallocated(stage, claim)
    entries = await stage.entries(pod)
    if not any(failure(entry) for entry in entries.values()):
        expected = "the failure there until round or selectedNode changes"
        raise Unmet(stage.question(pod), expected, entries_text(entries))


async def _tries_again(stage: Stage) -> None:
    """What failed is tried again when it is selected anew."""
    node, pod, (claim,), held = await _too_late(stage, 1)
    await _failed(stage, pod, node)
    await stage.free(held[0])
    await stage.set_question(pod, selectedNode="", round=2)

    def renewed(found: Entries) -> bool:
        entry = found.get(claim, {})
        return entry.get("round") == 2 and not failure(entry) and node in viable_nodes(entry)

    await stage.until_entries(pod, renewed, f"an entry of round 2 without failure, {node} being viable")
    await stage.set_question(pod, selectedNode=node)
    await stage.allocated(claim, pod)


def is_allocation(call: Call) -> bool:
    """Whether the write records an allocation."""
    status = (call.body or {}).get("status") or {}
    return call.resource.plural == CLAIMS.plural and bool(status.get("allocation"))


async def begun(stage: Stage, *asked: str) -> tuple[str, str, str]:
    """Starts an allocation whose write is refused for now, on one of the `asked` nodes; returns pod, claim and
    node."""
    claim = await stage.claim()
    pod = await stage.ask(claim, nodes=asked)
    nodes = viable_nodes((await stage.answered(pod, claim))[claim])
    if not nodes:
        raise NotApplicable("no node is viable")
    stage.traffic.refuse = is_allocation
    await stage.set_question(pod, selectedNode=nodes[0])
    expected = "a write of its allocation, which the API server refuses with 503 for now"
    await stage.until(lambda: stage.traffic.refused > 0, stage.about(claim), expected, "no such write")
    return pod, claim, nodes[0]


async def _aborted(stage: Stage, claim: str) -> None:
    await stage.settle()
    stage.traffic.end_refusals()
    await stage.settle()
    await _check_unallocated(stage, claim)
    expected = f"finalizer {stage.finalizer} removed, as nothing is held"
    await stage.until_claim(
        claim, lambda found: stage.finalizer not in found["metadata"].get("finalizers", ()), expected
    )


async def _aborts_when_deselected(stage: Stage) -> None:
    """An allocation ends when no node is selected any more."""
    pod, claim, _ = await begun(stage)
    await stage.set_question(pod, selectedNode="")
    await _aborted(stage, claim)


async def _aborts_when_withdrawn(stage: Stage) -> None:
    """An allocation ends when the driver is not asked for it any more."""
    pod, claim, _ = await begun(stage)
    await stage.set_question(pod, claims=[{"name": claim, "driverName": FOREIGN, "resourceClaimName": claim}])
    await _aborted(stage, claim)


async def _aborts_when_claim_is_deleted(stage: Stage) -> None:
    """A claim that is deleted is not allocated, also while its node is selected."""
    _, claim, _ = await begun(stage)
    await stage.delete_claim(claim)
    await stage.settle()
    stage.traffic.end_refusals()
    await stage.until_claim(claim, lambda found: not found, "it to be gone, deleted and not allocated")
    await _check_unallocated(stage, claim)


async def _aborts_when_pod_goes(stage: Stage) -> None:
    """An allocation ends when the PodScheduling goes."""
    pod, claim, _ = await begun(stage)
    await stage.drop(pod)
    await _aborted(stage, claim)


async def _moves(stage: Stage) -> None:
    """What was begun on a node goes to the one that is selected now."""
    pod, claim, node = await begun(stage)
    others = [other for other in viable_nodes((await stage.entries(pod))[claim]) if other != node]
    if not others:
        raise NotApplicable("no other node is viable")
    await stage.set_question(pod, selectedNode=others[0])
    await stage.settle()
    stage.traffic.end_refusals()
    allocation = (await stage.allocated(claim))["status"]["allocation"]
    if not available(allocation, others[0], await stage.labels_of(others[0])):
        expected = f"an allocation on {others[0]}, which is selected now, and nothing on {node}"
        raise Unmet(stage.about(claim), expected, f"{allocation}")


async def _goes_on_after_refusal(stage: Stage) -> None:
    """A write that was refused for a while is repeated."""
    _, claim, node = await begun(stage)
    stage.traffic.end_refusals()
    allocation = (await stage.allocated(claim))["status"]["allocation"]
    if not available(allocation, node, await stage.labels_of(node)):
        raise Unmet(stage.about(claim), f"an allocation on {node}", f"{allocation}")


async def _keeps_allocation(stage: Stage) -> None:
    """What is allocated stays, whatever becomes of the PodScheduling."""
    held = await stage.allocate()
    before = (await stage.get_claim(held.claim))["status"]["allocation"]
    await stage.drop(held.pod)
    await stage.settle()
    claim = await stage.get_claim(held.claim)
    if claim["status"].get("allocation") != before or stage.finalizer not in claim["metadata"]["finalizers"]:
        expected = "the allocation and the finalizer as they were, though the PodScheduling is gone"
        raise Unmet(stage.about(held.claim), expected, claim_text(claim))


async def _repetition_changes_nothing(stage: Stage) -> None:
    """Events that say nothing new change nothing."""
    node, held = await stage.full_node()
    for value in ("one", "two", "three"):
        await stage.touch(POD_SCHEDULINGS, held[0].pod, value)
        await stage.touch(CLAIMS, held[0].claim, value)
        await stage.settle()
    for allocated in held:
        await stage.free(allocated)
    again = await stage.fill(node)
    if len(again) != len(held):
        expected = f"room for {len(held)} claims on {node}, as before"
        raise Unmet(
            f"ResourceClass {stage.name}", expected, f"room for {len(again)}, after events that say nothing new"
        )


BASIC = (Check("allocates", _SECTION, _allocates, basic=True),)
CHECKS = (
    Check("selected-at-once", _SECTION, _selected_at_once),
    Check("finalizer-first", _SECTION, _finalizer_first),
    Check("one-write", _SECTION, _one_write),
    Check("available-on-nodes", _SECTION, _available_on_nodes),
    Check("shareable", _SECTION, _shareable),
    Check("exclusive", _SECTION, _exclusive),
    Check("failure", _SECTION, _reports_failure),
    Check("failure-stays", _SECTION, _leaves_failure, ("failure",)),
    Check("selected-again", _SECTION, _tries_again, ("next-round", "failure", "failure-stays")),
    Check("all-or-none", _SECTION, _all_or_none, ("every-claim",)),
    Check("two-at-once", "Other rules", _counts_own_writes),
    Check(
        "failed-holds-nothing", _SECTION, _holds_nothing_after_failure, ("every-claim", "failure", "all-or-none")
    ),
    Check("goes-on", _SECTION, _goes_on_after_refusal, ("available-on-nodes",)),
    Check("abort-deselected", _SECTION, _aborts_when_deselected, ("finalizer-removed",)),
    Check("abort-moved", _SECTION, _moves, ("available-on-nodes", "goes-on")),
    Check("abort-gone", _SECTION, _aborts_when_pod_goes, ("finalizer-removed",)),
    Check("abort-withdrawn", _SECTION, _aborts_when_withdrawn, ("finalizer-removed",)),
    Check(
        "abort-deleted",
        _SECTION,
        _aborts_when_claim_is_deleted,
        ("finalizer-removed", "deleted", "abort-deselected", "abort-moved", "abort-gone", "abort-withdrawn"),
    ),
    Check("aborted-holds-nothing", _SECTION, _holds_nothing_after_abort, ("abort-gone",)),
    Check("allocation-stays", _SECTION, _keeps_allocation),
    Check("repetition", _SECTION, _repetition_changes_nothing),
)
