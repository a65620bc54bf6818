"""The public names of the driver SDK.

A driver is a subclass of `Driver`. `parley.sdk.testing.check_driver` tests whether it fulfils its contract. The
same class runs in the controller (`parley controller --driver module:Class`) and in a process of its own
(`parley driver run module:Class`).

A driver that watches objects (`Driver.watches`) also imports their `Resource` from `parley.api.resources`, such
as RESOURCE_SLICES, and their types from `parley.api.builtin`; `parley.api.quantity.parse` reads amounts like
`4Gi`.
"""

from parley.negotiation.answers import Answer
from parley.negotiation.availability import NodeLabels
from parley.negotiation.stranded import Cause
from parley.sdk.driver import Driver
from parley.sdk.sight import PodController, SeenCluster, SeenPod
from parley.sdk.values import (
    Allocation,
    Capacity,
    ClaimRequest,
    ClassOnNodes,
    Device,
    Held,
    NoParameters,
    Parameters,
    PermanentError,
    PodReference,
    Request,
    Reserve,
    Stranded,
)

__all__ = [
    "Allocation",
    "Answer",
    "Capacity",
    "Cause",
    "ClaimRequest",
    "ClassOnNodes",
    "Device",
    "Driver",
    "Held",
    "NoParameters",
    "NodeLabels",
    "Parameters",
    "PermanentError",
    "PodController",
    "PodReference",
    "Request",
    "Reserve",
    "SeenCluster",
    "SeenPod",
    "Stranded",
]
