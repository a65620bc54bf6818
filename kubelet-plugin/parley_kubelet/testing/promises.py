"""Checks that a node driver keeps the rules of `parley_kubelet.hooks`. Imported from `parley_kubelet.testing`.

Every check calls the hooks as the plugin would, over restarts and interruptions, and raises AssertionError with
the rule that was broken.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from parley_kubelet.cdi.specifications import specification
from parley_kubelet.cdi.validation import faults
from parley_kubelet.configuration import label
from parley_kubelet.hooks import DeviceName, HeldClaim, NodeClaim, NodeDriver, Prepared
from parley_kubelet.state.checkpoint import CheckpointEntry, HeldDevice, ReportedDevice

INTERRUPTIONS: Final = 25
"""The most steps of the event loop after which `prepare` is interrupted."""


@dataclass(frozen=True)
class NodeScenario:
    """The driver and claims of the checks. `make` returns a driver as after a start of the plugin, with the files
    of earlier ones. All claims can be prepared at the same time. `left` returns the driver's state outside of the
    process (files, attachments), as any comparable value: it must be as before once a claim was unprepared and its
    data removed."""

    make: Callable[[], NodeDriver[Any, Any]]
    claims: Sequence[NodeClaim[Any]]
    left: Callable[[], object]


def node_claim(
    driver: type[NodeDriver[Any, Any]], name: str, data: Mapping[str, Any], *devices: DeviceName
) -> NodeClaim[Any]:
    """A claim as the hooks get it: `data` is what the driver in the controller put into `Allocation.data`."""
    untyped: type[Any] = driver
    return NodeClaim("team", name, f"uid-of-{name}", devices, untyped.handle.model_validate(dict(data)))


async def check_node_driver(scenario: NodeScenario) -> None:
    """Runs all checks. Afterwards the driver's state outside of the process is as before."""
    check_devices(scenario)
    await check_prepared_together(scenario)
    for claim in scenario.claims:
        await check_nothing_to_undo(scenario, claim)
        await check_repeated(scenario, claim)
        await check_undone_without_state(scenario, claim)
        await check_interrupted(scenario, claim)


def check_devices(scenario: NodeScenario) -> None:
    """Checks that the result of `devices` can be published."""
    offers = scenario.make().devices()
    for offer in offers:
        label(offer.name)
    assert len({offer.name for offer in offers}) == len(offers), "devices() has two devices of one name"


async def check_prepared_together(scenario: NodeScenario) -> None:
    """Checks that all claims can be admitted, prepared, reported in `health`, and unprepared at the same time."""
    before, driver = scenario.left(), scenario.make()
    held: list[HeldClaim[Any]] = []
    for claim in scenario.claims:
        driver.admit(claim, [other for other in held if set(other.claim.devices) & set(claim.devices)])
        held.append(HeldClaim(claim, None))
    prepared = await asyncio.gather(*(_begun("prepare", driver.prepare(claim)) for claim in scenario.claims))
    held = [
        HeldClaim(claim, _checked(driver, claim, p)) for claim, p in zip(scenario.claims, prepared, strict=True)
    ]
    if driver.tells_health():
        reported = {health.device for health in await driver.health(held)}
        for claim in scenario.claims:
            assert set(claim.devices) <= reported, (
                f"health() leaves out devices of claim {claim}, which holds them"
            )
    await asyncio.gather(*(_undo(driver, one) for one in held))
    assert scenario.left() == before, "unprepare() left something of claims that were prepared together"


async def check_nothing_to_undo(scenario: NodeScenario, claim: NodeClaim[Any]) -> None:
    """Checks that a claim can be unprepared that never was prepared: the plugin may die before it calls
    `prepare`."""
    before = scenario.left()
    await _undo(scenario.make(), HeldClaim(claim, None))
    assert scenario.left() == before, f"unprepare() of claim {claim}, which was never prepared, changed something"


async def check_repeated(scenario: NodeScenario, claim: NodeClaim[Any]) -> None:
    """Checks that `prepare` and `unprepare` can be repeated, also by another process, with the same result."""
    before, driver = scenario.left(), scenario.make()
    first = await driver.prepare(claim)
    state = _checked(driver, claim, first)
    once = scenario.left()
    for again in (driver, scenario.make()):
        repeated = await again.prepare(claim)
        assert repeated.edits == first.edits, f"prepare() of claim {claim} gave something else the second time"
        assert scenario.left() == once, f"prepare() of claim {claim} left more the second time"
        state = _checked(driver, claim, repeated)
    for last in (scenario.make(), scenario.make()):
        await _undo(last, HeldClaim(claim, state))
        assert scenario.left() == before, f"unprepare() of claim {claim} left something"
    listed = [one.uid for one in await scenario.make().left()]
    assert claim.uid not in listed, f"left() has claim {claim} after unprepare() and remove_data()"


async def check_undone_without_state(scenario: NodeScenario, claim: NodeClaim[Any]) -> None:
    """Checks `unprepare` without the state from `prepare`, which may be lost with the process."""
    before = scenario.left()
    await scenario.make().prepare(claim)
    await _undo(scenario.make(), HeldClaim(claim, None))
    assert scenario.left() == before, f"unprepare() without the state of claim {claim} left something"


async def check_interrupted(scenario: NodeScenario, claim: NodeClaim[Any]) -> None:
    """Checks that `prepare`, interrupted wherever it waits, can be undone, or repeated and then undone."""
    before = scenario.left()
    for steps in range(1, INTERRUPTIONS):
        for repeat in (False, True):
            done = await _interrupted(scenario.make(), claim, steps)
            if repeat:
                await scenario.make().prepare(claim)
            await _undo(scenario.make(), HeldClaim(claim, None))
            assert scenario.left() == before, f"prepare() of claim {claim}, interrupted, left something"
        if done:
            return


async def _undo(driver: NodeDriver[Any, Any], held: HeldClaim[Any]) -> None:
    """Ends the pod and the claim."""
    await _begun("unprepare", driver.unprepare(held))
    await _begun("remove_data", driver.remove_data(held.claim))


def _begun(hook: str, call: object) -> Awaitable[Any]:
    assert isinstance(call, Awaitable), (
        f"{hook}() returned {call!r}: {hook} must be async def, the plugin awaits it"
    )
    return call


async def _interrupted(driver: NodeDriver[Any, Any], claim: NodeClaim[Any], steps: int) -> bool:
    """Interrupts `prepare` after some steps; returns whether it had finished."""
    work = asyncio.create_task(driver.prepare(claim))
    for _ in range(steps):
        await asyncio.sleep(0)
    done = work.done()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return done


def _checked(driver: NodeDriver[Any, Any], claim: NodeClaim[Any], prepared: Prepared) -> Any:
    """Validates the result of `prepare`; returns the state as read from the checkpoint."""
    assert isinstance(prepared, Prepared), f"prepare() of claim {claim} returned {prepared!r}: it must be Prepared"
    entry = CheckpointEntry.of(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        phase="prepared",
        boot="",
        results=tuple(ReportedDevice(request="", pool=d.pool, device=d.device) for d in claim.devices),
        devices=tuple(HeldDevice(pool=d.pool, name=d.device) for d in claim.devices),
        handle=claim.handle.model_dump(mode="json", by_alias=True),
        edits=prepared.edits,
        state=dict(prepared.state),
    )
    wrong = _wrong(driver, entry)
    assert not wrong, f"prepare() of claim {claim} gave edits that containers cannot have: {wrong[0]}"
    assert type(claim.handle).model_validate(entry.handle) == claim.handle, "the handle is not the same as JSON"
    return entry.state


def _wrong(driver: NodeDriver[Any, Any], entry: CheckpointEntry) -> tuple[str, ...]:
    try:
        content = specification(driver.name, entry)
    except ValidationError as error:
        found = error.errors(include_url=False)
        return tuple(f"{'.'.join(map(str, e['loc']))}={e['input']!r}: {e['msg']}" for e in found)
    return () if content is None else faults(content)
