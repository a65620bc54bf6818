"""The five kinds of `parley.dev/v1alpha1`. The CRDs in `crds/` are generated from them.

Rules that one field cannot express (immutability, what a claim's status may become) are CEL rules, declared
beside the field or model with `Rule` and checked by the API server. Two things CEL cannot see: the size of
`parameters` and `data` (the built-in claim that carries them is limited to 10 KiB), and whether a claim is being
deleted (the admission policy in `deploy/base/claims.yaml` refuses new users of such a claim).
"""

from parley.api.models.claimreleases import (
    ClaimRelease,
    ClaimReleaseSpec,
    ClaimReleaseStatus,
    ReleasedClaim,
    RunningUser,
)
from parley.api.models.claims import (
    MAX_YIELDS,
    Allocation,
    ClaimSpec,
    ClaimStatus,
    Consumer,
    Device,
    Handle,
    Hold,
    Reserve,
    ResourceClaim,
    YieldsTo,
)
from parley.api.models.classes import ClassParametersReference, ClassStatus, Limit, ResourceClass, WhenUnused
from parley.api.models.fields import (
    MAX_DEADLINE,
    DriverName,
    LabelKey,
    NodeName,
    Parameters,
    ParametersReference,
    ShortText,
)
from parley.api.models.podschedulings import (
    AllocationFailure,
    Alternatives,
    ClaimScheduling,
    PodScheduling,
    PodSchedulingSpec,
    PodSchedulingStatus,
    ScheduledClaim,
)
from parley.api.models.templates import ResourceClaimTemplate, SharedBy, SharingOwner, TemplateMeta, TemplateSpec

__all__ = [
    "MAX_DEADLINE",
    "MAX_YIELDS",
    "Allocation",
    "AllocationFailure",
    "Alternatives",
    "ClaimRelease",
    "ClaimReleaseSpec",
    "ClaimReleaseStatus",
    "ClaimScheduling",
    "ClaimSpec",
    "ClaimStatus",
    "ClassParametersReference",
    "ClassStatus",
    "Consumer",
    "Device",
    "DriverName",
    "Handle",
    "Hold",
    "LabelKey",
    "Limit",
    "NodeName",
    "Parameters",
    "ParametersReference",
    "PodScheduling",
    "PodSchedulingSpec",
    "PodSchedulingStatus",
    "ReleasedClaim",
    "Reserve",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceClass",
    "RunningUser",
    "ScheduledClaim",
    "SharedBy",
    "SharingOwner",
    "ShortText",
    "TemplateMeta",
    "TemplateSpec",
    "WhenUnused",
    "YieldsTo",
]
