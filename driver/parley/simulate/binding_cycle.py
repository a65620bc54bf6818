"""The binding cycle of the simulated kube-scheduler: reserve, nominate, wait, bind, or undo all of it.

As upstream all is undone after any error, also where nobody knows whether the pod was bound: what a bound pod uses
may be reserved for nobody then, until Parley or the claim controller sees to it.
"""

from collections.abc import Sequence

from parley.api.builtin import BuiltinClaim
from parley.api.resources import PODS
from parley.control.objects.mirror import consumer
from parley.control.objects.pod import reference
from parley.kube.client import ApiError, Client, OutcomeUnknown
from parley.simulate.anti_affinity import Pod
from parley.simulate.placement import binding_failed, ready_to_bind
from parley.simulate.pod_claims import is_reserved
from parley.simulate.scheduler_cache import SchedulerCache
from parley.simulate.status_writes import change_consumers, consumers, patch_claim, patch_pod


class Unbindable(Exception):
    """Raised when a claim's driver declined, or a claim lost its allocation during the binding."""


async def bind(client: Client, cache: SchedulerCache, pod: Pod, claims: Sequence[BuiltinClaim], node: str) -> str:
    """Bind the pod; returns why it failed, or "". On failure reservations and nomination are undone.

    `pod` and `claims` are as the scheduling cycle found them: what became of claims since shows when they are
    reserved. As upstream a nomination that the pod seems to have is not written, though its end may be under way.
    """
    try:
        if pod.status.nominated_node_name != node and not all(ready_to_bind(claim) for claim in claims):
            await patch_pod(client, pod, {"nominatedNodeName": node})
        for claim in claims:
            await _reserve(client, pod, claim)
        for claim in claims:
            await _bindable(cache, claim)
        await _post(client, pod, node)
    except (ApiError, OutcomeUnknown, Unbindable) as error:
        await _undo(client, claims, pod)
        return str(error)
    return ""


async def _reserve(client: Client, pod: Pod, claim: BuiltinClaim) -> None:
    if claim.status.allocation is None:
        raise Unbindable(f"claim {claim.metadata.name} is not allocated any more")
    if not is_reserved(claim, pod):
        await patch_claim(client, claim, {"reservedFor": [*consumers(claim), consumer(reference(pod))]})


async def _bindable(cache: SchedulerCache, claim: BuiltinClaim) -> None:
    """Return when the claim's binding conditions hold."""
    while True:
        now = cache.claim(claim)
        if now is None or now.status.allocation is None or binding_failed(now):
            raise Unbindable(f"claim {claim.metadata.name} was declined or taken back")
        if ready_to_bind(now):
            return
        await cache.claims_changed()


async def _post(client: Client, pod: Pod, node: str) -> None:
    meta = pod.metadata
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await client.create_subresource(PODS, meta.name, "binding", body, meta.namespace)


async def _undo(client: Client, claims: Sequence[BuiltinClaim], pod: Pod) -> None:
    for claim in claims:
        try:
            await change_consumers(client, claim, lambda known: [c for c in known if c["uid"] != pod.metadata.uid])
        except (ApiError, OutcomeUnknown):
            pass  # upstream logs it, and goes on with the next
    await patch_pod(client, pod, {"nominatedNodeName": None})
