"""The outcome of a simulation once the cluster has settled: its pods, and the claims that no pod names."""

from collections.abc import Sequence
from dataclasses import dataclass

from parley.api import reasons
from parley.api.models import ResourceClaim
from parley.api.resources import CLAIMS
from parley.control.objects.standin import is_stand_in
from parley.kube.client import Client
from parley.simulate.recording import PodRecord


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """A claim that no pod names. `reason` is why no pod could use it ("ClassNotFound: ..."), "" if one could;
    `whereabouts` says where it is allocated and `devices` has its devices, both empty if it is not allocated."""

    namespace: str
    name: str
    class_name: str
    whereabouts: str = ""
    devices: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """Records of all pods, including deleted ones, and the claims that none of them names."""

    pods: Sequence[PodRecord]
    unnamed: Sequence[ClaimOutcome]


async def outcome_of(client: Client, pods: Sequence[PodRecord]) -> SimulationOutcome:
    """The outcome, with the claims' current state."""
    named = {
        (record.namespace, entry.resource_claim_name)
        for record in pods
        for entry in record.pod.spec.resource_claims
    }
    claims = (await client.list(CLAIMS)).items
    unnamed = [
        claim
        for claim in claims
        if not is_stand_in(claim) and (claim.metadata.namespace, claim.metadata.name) not in named
    ]
    return SimulationOutcome(pods, [_outcome(claim) for claim in unnamed])


def _outcome(claim: ResourceClaim) -> ClaimOutcome:
    meta, allocation = claim.metadata, claim.status.allocation
    conditions = {condition.type: condition for condition in claim.status.conditions}
    ready, allocated = conditions.get(reasons.READY), conditions.get(reasons.ALLOCATED)
    handles = allocation.handles if allocation is not None else ()
    return ClaimOutcome(
        namespace=meta.namespace,
        name=meta.name,
        class_name=claim.spec.resource_class_name,
        whereabouts=allocated.message if allocation is not None and allocated is not None else "",
        devices=tuple(device.device for handle in handles for device in handle.devices),
        reason=f"{ready.reason}: {ready.message}" if ready is not None and ready.status != "True" else "",
    )
