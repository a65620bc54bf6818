"""Writes of the simulated scheduler and kubelet to the status of pods and claims."""

from collections.abc import Callable
from typing import Any

from parley.api.builtin import BuiltinClaim, Condition, Pod
from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.kube.client import Client, Conflict, Forbidden, Invalid, NotFound
from parley.simulate.admission import refusal

Consumers = list[dict[str, str]]


async def patch_pod(client: Client, pod: Pod, status: dict[str, Any]) -> None:
    """Change a pod's status, as its kubelet does. Does nothing if the pod was deleted or replaced."""
    await _patch_pod(client, pod, {"metadata": {"uid": pod.metadata.uid}, "status": status})


async def patch_pod_by_name(client: Client, pod: Pod, status: dict[str, Any]) -> None:
    """Change a pod's status by name, without a precondition on its UID, as scheduler and claim controller do."""
    await _patch_pod(client, pod, {"status": status})


async def _patch_pod(client: Client, pod: Pod, body: dict[str, Any]) -> None:
    try:
        await client.patch(PODS, pod.metadata.name, body, pod.metadata.namespace, subresource="status")
    except (NotFound, Conflict, Invalid):
        pass  # deleted, or another UID: that is 422, because a UID can't be changed


async def patch_claim(client: Client, claim: BuiltinClaim, status: dict[str, Any]) -> BuiltinClaim:
    """Change a claim's status if it is unchanged. Raises Conflict if not, Forbidden if a policy denies it."""
    clears = "allocation" in status and not status["allocation"]
    if why := refusal(claim, status.get("reservedFor") or (), clears=clears):
        raise Forbidden(403, "Forbidden", why)
    body = {
        "metadata": {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version},
        "status": status,
    }
    name, namespace = claim.metadata.name, claim.metadata.namespace
    return await client.patch(BUILTIN_CLAIMS, name, body, namespace, subresource="status")


async def change_consumers(client: Client, claim: BuiltinClaim, change: Callable[[Consumers], Consumers]) -> None:
    """Change the claim's `reservedFor`, on its latest state. Does nothing if the claim was deleted."""
    while True:
        try:
            now = await client.get(BUILTIN_CLAIMS, claim.metadata.name, claim.metadata.namespace)
            before = consumers(now)
            after = change(before)
            if after != before and now.metadata.uid == claim.metadata.uid:
                await patch_claim(client, now, {"reservedFor": after})
        except NotFound:
            return
        except Conflict:
            continue
        return


def consumers(claim: BuiltinClaim) -> Consumers:
    """The claim's `status.reservedFor` as JSON."""
    entries = [
        {"apiGroup": c.api_group, "resource": c.resource, "name": c.name, "uid": c.uid}
        for c in claim.status.reserved_for
    ]
    return [{key: value for key, value in entry.items() if value} for entry in entries]


def condition(kind: str, status: str, reason: str, message: str, now: str) -> dict[str, str]:
    """A condition as JSON."""
    entry = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
    return {key: value for key, value in entry.items() if value}


def has_condition(pod: Pod, kind: str, message: str) -> bool:
    """Whether the pod has that condition with that message."""
    return any(_is(known, kind, message) for known in pod.status.conditions)


def _is(known: Condition, kind: str, message: str) -> bool:
    return known.type == kind and known.message == message
