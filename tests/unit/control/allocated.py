"""Claims that are allocated in memory, and what their pods find: where tests of writes and of release begin."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.control.builders import NAMESPACE, World, a_holding

from parley.api.builtin import Pod
from parley.control.claims.gathering import gather
from parley.control.claims.podclaims import PodClaim
from parley.control.holding import Holding
from parley.control.objects.pod import reference

Given = Callable[[World, Pod], Awaitable[None]]
OTHERS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
"""What a claim of another DRA driver asks for."""


async def gathered(world: World, given: Given) -> tuple[PodClaim, ...]:
    """What a pod with the template "licence" finds."""
    pod = await world.pod(templates=["licence"])
    await given(world, pod)
    return gather(world.state, pod)


async def named(world: World, *pods: Pod, shareable: bool = False, **fields: Any) -> tuple[PodClaim, Holding]:
    """Claim c with its mirror, allocated in memory for the pods."""
    await world.class_(shareable=shareable)
    claim = await world.claim()
    mirror = await world.mirror(claim, shareable=shareable)
    users = {pod.metadata.uid: reference(pod) for pod in pods}
    holding = a_holding("c", uid=claim.metadata.uid, pods=users, shareable=shareable, **fields)
    world.ledger.add(holding)
    return PodClaim("c", "c", mirror, claim, class_=world.cluster.class_("licence"), holding=holding), holding


async def fresh(world: World, claim: PodClaim) -> PodClaim:
    """The same with its mirror as the cache has it."""
    await world.seen()
    return PodClaim("c", "c", world.cluster.mirror((NAMESPACE, "c")), claim.claim, holding=claim.holding)


async def generated(world: World, pod: Pod) -> tuple[PodClaim, Holding]:
    """The pod's generated claim, allocated in memory."""
    mirror = await world.generated(pod)
    meta, user = mirror.metadata, reference(pod)
    holding = a_holding(meta.name, uid=meta.uid, entry="licence", named=False, pods={user.uid: user})
    world.ledger.add(holding)
    return PodClaim("licence", meta.name, mirror, holding=holding), holding
