"""What a driver author imports.

A driver is a subclass of `Driver`; `parley.sdk.testing` checks one. `embedded` runs it in the controller.
"""

from parley.negotiation.answers import Answer
from parley.negotiation.availability import NodeLabels
from parley.negotiation.stranded import Cause
from parley.sdk.driver import (
    Allocation,
    Capacity,
    ClaimRequest,
    ClassOnNodes,
    Device,
    Driver,
    Held,
    NoParameters,
    Parameters,
    PermanentError,
    PodReference,
    Request,
    Reserve,
    Stranded,
)
from parley.sdk.sight import PodController, SeenCluster, SeenPod

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
