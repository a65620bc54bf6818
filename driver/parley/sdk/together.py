"""Asks a driver about several pods at once: whether all of them would find enough.

A driver evaluates all claims of a request together. So nothing about a driver need be known to ask it about a pod
beside others: their claims join the pod's request.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from parley.sdk.values import Request

MOST_CLAIMS = 64
"""So many claims are evaluated together at most; a node for which there would be more is left to the others for
the moment."""


def together(request: Request[Any, Any], others: Iterable[Request[Any, Any]]) -> Request[Any, Any]:
    """The request with the claims of the others, too, under names that do not clash; itself if they have none."""
    theirs = tuple(
        replace(claim, name=f"{other.pod.uid}/{claim.name}") for other in others for claim in other.claims
    )
    return replace(request, claims=(*request.claims, *theirs)) if theirs else request
