"""The rules of "At start": the driver's process is killed without warning, and started again."""

from parley.api.resources import CLAIMS
from parley.conformance.checks.allocating import (
    available,
    begun,
    check_room_for_one,
    is_allocation,
    room_for_one,
)
from parley.conformance.results import Check, NotApplicable, Unmet
from parley.conformance.stage import Stage, claim_text, entry_text, has_allocation, viable_nodes

_SECTION = "At start"


async def _kill(stage: Stage) -> None:
    if stage.scene.driver is None:
        raise NotApplicable("give --start, so that the driver can be killed and started again")
    await stage.scene.driver.kill()


async def _start(stage: Stage) -> None:
    if stage.scene.driver is not None:
        await stage.scene.driver.start()


async def _holds_what_the_api_says(stage: Stage) -> None:
    """After a restart the driver holds what the API says."""
    node, held = await stage.full_node()
    await _kill(stage)
    await _start(stage)
    claim = await stage.claim()
    pod = await stage.ask(claim, nodes=[node])
    entry = (await stage.answered(pod, claim))[claim]
    if viable_nodes(entry):
        expected = f"{node} not viable, as it was full before the restart"
        raise Unmet(stage.question(pod), expected, entry_text(entry))
    for allocated in held:
        found = await stage.get_claim(allocated.claim)
        if not has_allocation(found):
            expected = "its allocation, as nobody requested its deallocation"
            raise Unmet(stage.about(allocated.claim), expected, claim_text(found))


async def _catches_up(stage: Stage) -> None:
    """What happened while the driver was away is made up for."""
    held = await stage.allocate()
    await _kill(stage)
    try:
        await stage.drop(held.pod)
        await stage.request_deallocation(held.claim)
        claim = await stage.claim()
        pod = await stage.ask(claim)
    finally:
        await _start(stage)
    await stage.until_claim(
        held.claim,
        lambda found: not has_allocation(found),
        "no allocation any more, as deallocation was requested while the driver was down",
    )
    await stage.answered(pod, claim)


async def _leaves_nothing_behind(stage: Stage) -> None:
    """What was begun and is not wanted any more is released."""
    await _kill(stage)
    try:
        claim = await stage.claim()
        await stage.write_claim(claim, {"metadata": {"finalizers": [stage.finalizer]}})
    finally:
        await _start(stage)
    await stage.until_claim(
        claim,
        lambda found: stage.finalizer not in found["metadata"].get("finalizers", ()),
        f"finalizer {stage.finalizer} removed, as the claim has no allocation and no pod selects a node for it",
    )


async def _goes_on(stage: Stage) -> None:
    """What was begun and is still wanted is allocated."""
    _, claim, node = await begun(stage)
    await _kill(stage)
    stage.traffic.end_refusals()
    await _start(stage)
    allocation = (await stage.allocated(claim))["status"]["allocation"]
    if not available(allocation, node, await stage.labels_of(node)):
        raise Unmet(stage.about(claim), f"an allocation on {node}", f"{allocation}")


async def _releases_what_was_begun(stage: Stage) -> None:
    """What was begun before a restart and is not wanted any more is not held."""
    node = await room_for_one(stage)
    pod, _, _ = await begun(stage, node)
    await _kill(stage)
    try:
        await stage.drop(pod)
        stage.traffic.end_refusals()
    finally:
        await _start(stage)
    await check_room_for_one(stage, node, f"of {pod}, which went while the driver was down")


async def _moves(stage: Stage) -> None:
    """What was begun before a restart goes to the node that is selected by then."""
    pod, claim, node = await begun(stage)
    others = [other for other in viable_nodes((await stage.entries(pod))[claim]) if other != node]
    await _kill(stage)
    try:
        if not others:
            raise NotApplicable("no other node is viable")
        await stage.set_question(pod, selectedNode=others[0])
        stage.traffic.end_refusals()
    finally:
        await _start(stage)
    allocation = (await stage.allocated(claim))["status"]["allocation"]
    if not available(allocation, others[0], await stage.labels_of(others[0])):
        expected = f"an allocation on {others[0]}, which is selected now, and nothing on {node}"
        raise Unmet(stage.about(claim), expected, f"{allocation}")


async def _takes_over(stage: Stage) -> None:
    """What was begun before a restart is changed before anything is allocated."""
    _, claim, _ = await begun(stage)
    await _kill(stage)
    before = len(stage.traffic.writes)
    stage.traffic.end_refusals()
    await _start(stage)
    await stage.allocated(claim)
    written = [write for write in stage.traffic.writes[before:] if write.after is not None]
    first = next(index for index, write in enumerate(written) if is_allocation(write.call))
    if not any(write.is_about(CLAIMS, stage.name, claim) for write in written[:first]):
        expected = "a change before the first allocation, so that a late write of the process before is refused"
        raise Unmet(stage.about(claim), expected, f"{written[first].call} as the first write")


CHECKS = (
    Check("restart-holds", _SECTION, _holds_what_the_api_says, restarts=True),
    Check("restart-catches-up", _SECTION, _catches_up, restarts=True),
    Check("restart-leftovers", _SECTION, _leaves_nothing_behind, ("finalizer-removed",), restarts=True),
    Check("restart-goes-on", _SECTION, _goes_on, ("available-on-nodes", "goes-on"), restarts=True),
    Check(
        "restart-moves",
        _SECTION,
        _moves,
        ("restart-goes-on", "abort-moved", "goes-on", "available-on-nodes"),
        restarts=True,
    ),
    Check(
        "restart-takes-over",
        "Other rules",
        _takes_over,
        ("finalizer-first", "goes-on", "restart-goes-on"),
        restarts=True,
    ),
    Check("restart-holds-nothing", _SECTION, _releases_what_was_begun, ("restart-leftovers",), restarts=True),
)
