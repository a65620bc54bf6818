"""Claim `c`, and what a pod finds that names it."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.control.builders import World, a_holding

from parley.api.builtin import Pod
from parley.control.claims.gathering import gather
from parley.control.claims.podclaims import PodClaim

Given = Callable[[World], Awaitable[None]]
ALLOCATION: dict[str, Any] = {"devices": {"results": [], "config": []}}


async def found(world: World, pod: Pod | None = None) -> PodClaim | None:
    """What a pod finds that names claim c."""
    pod = pod or await world.pod(claims=["c"])
    claims = gather(world.state, pod)
    return claims[0] if claims else None


async def ready(world: World) -> None:
    """A claim whose class is known, with its mirror."""
    await world.class_()
    await world.mirror(await world.claim())


async def hold(world: World, *pods: str, shareable: bool = False) -> None:
    """The claim is allocated for these pods."""
    uid = (await world.the_claim()).metadata.uid
    world.ledger.add(a_holding("c", *pods, uid=uid, shareable=shareable, class_name="licence"))
