"""ClaimRelease: a released claim that a node may still have prepared, or whose data it has to remove."""

from typing import Annotated, Literal

from pydantic import Field

from parley.api.markers import Rule
from parley.api.meta import Model, ObjectMeta
from parley.api.models.claims import Allocation
from parley.api.models.fields import DriverName, NodeName, ShortText
from parley.api.names import API_VERSION


class ReleasedClaim(Model):
    """The built-in claim that the kubelet may still have prepared."""

    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    name: Annotated[str, Field(min_length=1, max_length=253)]
    uid: Annotated[str, Field(min_length=1, max_length=64)]


class RunningUser(Model):
    """A pod that still runs with a generated claim that was deleted."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    uid: Annotated[str, Field(min_length=1, max_length=64)]
    pod_claim_name: Annotated[
        str,
        Field(min_length=1, max_length=253, description="The name of the entry in the pod's spec.resourceClaims."),
    ]


class ClaimReleaseSpec(Model):
    """Which claim may still be prepared on which node, and its allocation. Immutable."""

    claim: ReleasedClaim
    node_name: NodeName
    driver_name: DriverName
    holding_uid: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="The UID that the driver uses for the allocation: that of the parley.dev ResourceClaim, "
            "or of the first built-in claim that was generated.",
        ),
    ]
    resource_class_name: ShortText = ""
    units: Annotated[
        int, Field(ge=0, description="How many units the claim counts towards its class's limits.")
    ] = 1
    allocation: Annotated[Allocation, Field(description="The allocation, which other pods cannot use yet.")]
    remove_data: Annotated[
        bool,
        Field(
            description="The claim has ended: before the node plugin confirms the release, its driver removes the "
            "data that pods left on the node for the claim."
        ),
    ] = False
    node_lost: Annotated[
        bool,
        Field(
            description="The node was deleted or out of service when the claim ended there or was allocated on "
            "another node. Nothing waits for this node: if it comes back, its node plugin removes the data."
        ),
    ] = False
    running: Annotated[
        RunningUser | None,
        Field(
            description="The pod that still runs with the claim although the generated claim was deleted. The "
            "claim that is generated again for the pod gets the same allocation."
        ),
    ] = None


class ClaimReleaseStatus(Model):
    """The progress of the release."""

    allocation_cleared: Annotated[
        bool,
        Field(
            description="Whether the built-in claim's allocation is cleared, so that the claim cannot be prepared "
            "again. The node plugin confirms only then."
        ),
    ] = False


class ClaimRelease(Model):
    """A released claim that a node may still have prepared, because a pod that used it there was force-deleted, or
    whose data the node has to remove. The node plugin confirms by deleting this object that nothing is prepared or
    left there; only then is the allocation free for other pods."""

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["ClaimRelease"] = "ClaimRelease"
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ClaimReleaseSpec, Rule("self == oldSelf", "spec is immutable: it records what happened.")]
    status: ClaimReleaseStatus = ClaimReleaseStatus()
