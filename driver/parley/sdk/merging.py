"""Merges the requests of several pods into one, to ask a driver whether there is enough for all of them.

A driver evaluates all claims of a request together. So it can be asked about a pod beside others without knowing
anything about it: the others' claims are added to the pod's request.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from parley.sdk.values import Request

MOST_CLAIMS = 64
"""The most claims that are evaluated together; a node for which there would be more is left to the other pods."""


def merge_requests(request: Request[Any, Any], others: Iterable[Request[Any, Any]]) -> Request[Any, Any]:
    """The request with the others' claims added, under names that do not clash; itself if they have none."""
    added = tuple(
        replace(claim, name=f"{other.pod.uid}/{claim.name}") for other in others for claim in other.claims
    )
    return replace(request, claims=(*request.claims, *added)) if added else request
