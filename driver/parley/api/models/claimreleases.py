"""ClaimRelease: what nodes may still have prepared of a claim that nobody uses."""

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
    """A pod that runs with a generated claim that somebody deleted."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    uid: Annotated[str, Field(min_length=1, max_length=64)]
    pod_claim_name: Annotated[
        str, Field(min_length=1, max_length=253, description="The entry in the pod's spec.resourceClaims.")
    ]


class ClaimReleaseSpec(Model):
    """Which claim may still be prepared, on which node, and what of the driver it holds. Immutable."""

    claim: ReleasedClaim
    node_name: NodeName
    driver_name: DriverName
    holding_uid: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="The UID by which the driver knows the allocation: that of the ResourceClaim of "
            "parley.dev, or of the built-in claim that was generated first.",
        ),
    ]
    resource_class_name: ShortText = ""
    units: Annotated[int, Field(ge=0, description="How much it counts in the limits of its class.")] = 1
    allocation: Annotated[Allocation, Field(description="The allocation that is not free for other pods yet.")]
    remove_data: Annotated[
        bool,
        Field(
            description="The claim has ended. Before the node plugin confirms, its driver removes the data that "
            "pods left on the node for the claim."
        ),
    ] = False
    node_lost: Annotated[
        bool,
        Field(
            description="The node was deleted or out of service when the claim ended there, or was allocated "
            "again elsewhere. Nothing waits for the node: if it comes back, its node plugin removes the data."
        ),
    ] = False
    running: Annotated[
        RunningUser | None,
        Field(
            description="The pod that still runs with the claim, although its generated claim was deleted: the "
            "claim that is created again for the pod gets the same allocation."
        ),
    ] = None


class ClaimReleaseStatus(Model):
    """The progress of the release."""

    allocation_cleared: Annotated[
        bool,
        Field(
            description="Whether the built-in claim shows no allocation any more, so that it cannot be prepared "
            "again: the node plugin confirms only then."
        ),
    ] = False


class ClaimRelease(Model):
    """A claim that one node may still have prepared, because a pod that used it there was force-deleted, or whose
    data the node has to remove. What was allocated is free for other pods when the node's plugin has deleted this
    object: then nothing is prepared or left there."""

    api_version: Literal["parley.dev/v1alpha1"] = API_VERSION
    kind: Literal["ClaimRelease"] = "ClaimRelease"
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ClaimReleaseSpec, Rule("self == oldSelf", "spec is immutable: it records what happened.")]
    status: ClaimReleaseStatus = ClaimReleaseStatus()
