"""The rules of "3. Deallocate"."""

from parley.api.resources import CLAIMS
from parley.conformance.results import Check, Unmet
from parley.conformance.stage import Allocated, Stage, claim_text, has_allocation

_SECTION = "3. Deallocate"


async def _deallocates(stage: Stage) -> None:
    """When deallocation is requested, the claim is deallocated."""
    await stage.free(await stage.allocate())


async def _one_write(stage: Stage) -> None:
    """What was allocated is cleared in one write."""
    held = await stage.allocate()
    await stage.free(held)
    allocated = False
    for write in stage.traffic.writes_to(CLAIMS, stage.name, held.claim):
        status = (write.after or {}).get("status") or {}
        allocated |= has_allocation(write.after or {})
        if has_allocation(write.after or {}) or not allocated:
            continue
        if status.get("driverName") or status.get("deallocationRequested"):
            expected = "allocation, driverName and deallocationRequested cleared in one write"
            raise Unmet(stage.about(held.claim), expected, claim_text(write.after or {}))


async def _removes_finalizer(stage: Stage) -> None:
    """The finalizer goes after the allocation."""
    held = await stage.allocate()
    await stage.free(held)
    await stage.until_claim(
        held.claim,
        lambda claim: stage.finalizer not in claim["metadata"].get("finalizers", ()),
        f"finalizer {stage.finalizer} removed",
    )


async def _reserved(stage: Stage) -> Allocated:
    """An allocation that a pod uses, whose claim is being deleted."""
    held = await stage.allocate()
    user = {"resource": "pods", "name": held.pod, "uid": "some-uid"}
    await stage.write_claim(held.claim, {"status": {"reservedFor": [user]}}, "status")
    await stage.delete_claim(held.claim)
    return held


async def _waits_for_users(stage: Stage) -> None:
    """A deleted claim in use is left alone until nobody uses it."""
    held = await _reserved(stage)
    await stage.settle()
    claim = await stage.get_claim(held.claim)
    if not claim or not has_allocation(claim):
        expected = "the allocation there, as status.reservedFor has a pod"
        raise Unmet(stage.about(held.claim), expected, claim_text(claim))
    await stage.write_claim(held.claim, {"status": {"reservedFor": None}}, "status")
    await stage.until_claim(held.claim, lambda claim: not claim, "it to be gone, as nobody uses it any more")


async def _deallocates_what_is_deleted(stage: Stage) -> None:
    """A deleted claim that nobody uses is deallocated, also while its node is selected."""
    held = await stage.allocate()
    await stage.delete_claim(held.claim)
    await stage.until_claim(held.claim, lambda claim: not claim, "it to be gone, deleted and used by nobody")


async def _leaves_anothers(stage: Stage) -> None:
    """What another driver allocated is left alone, and the driver's own finalizer goes."""
    claim, other = await stage.claim(), "another.example.com"
    allocation = {"handles": [{"driverName": other, "data": {}}], "shareable": False}
    await stage.write_claim(claim, {"status": {"driverName": other, "allocation": allocation}}, "status")
    await stage.write_claim(claim, {"metadata": {"finalizers": [stage.finalizer]}})
    found = await stage.until_claim(
        claim,
        lambda now: stage.finalizer not in now["metadata"].get("finalizers", ()),
        f"finalizer {stage.finalizer} removed, as driver {other} has allocated the claim",
    )
    await stage.settle()
    if (await stage.get_claim(claim)).get("status", {}).get("driverName") != other:
        raise Unmet(stage.about(claim), f"the allocation of driver {other} there", claim_text(found))


BASIC = (Check("deallocates", _SECTION, _deallocates, basic=True),)
CHECKS = (
    Check("deallocated-in-one-write", _SECTION, _one_write),
    Check("finalizer-removed", _SECTION, _removes_finalizer),
    Check("deleted", _SECTION, _deallocates_what_is_deleted, ("finalizer-removed",)),
    Check("deleted-in-use", _SECTION, _waits_for_users, ("finalizer-removed", "deleted")),
    Check("allocation-of-another", _SECTION, _leaves_anothers),
)
