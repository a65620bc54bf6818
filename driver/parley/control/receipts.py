"""What a claim looks like whose node owes a receipt: that it is not prepared there any more. Pure.

A named claim carries label and annotations itself. A generated claim goes with its pod, so a record is made that
exists for the receipt alone; it tells from its creation on what was allocated. Giving the
receipt is the node plugin's affair (`parley_kubelet.claims.releases`).
"""

from collections.abc import Iterable

import orjson
from pydantic import ValidationError

from parley.api.conditions import Said
from parley.api.models import ClaimStatus, ResourceClaim
from parley.api.names import (
    ALLOCATION_ANNOTATION,
    API_VERSION,
    CLAIM_UID_ANNOTATION,
    CONDITION_RELEASING,
    GENERATED_LABEL,
    OUT_OF_SERVICE_TAINT,
    RELEASE_RECORD_LABEL,
    RELEASED_CLAIM_ANNOTATION,
    RELEASING_FROM_ANNOTATION,
    RELEASING_LABEL,
)
from parley.control.ledger import Holding
from parley.control.mirror import ClassRequest

Body = dict[str, object]


def owing(claim: ResourceClaim) -> str:
    """The node that owes a receipt for the claim, "" if none does."""
    return claim.metadata.annotations.get(RELEASING_FROM_ANNOTATION, "")


def prepared_uids(claim: ResourceClaim) -> list[str]:
    """UIDs of the built-in claims that the receipt is about: the holding's, and of those made anew in its place.

    None of them is prepared where a receipt was given.
    """
    return claim.metadata.annotations.get(CLAIM_UID_ANNOTATION, "").split(",")


def prepared_uid(claim: ResourceClaim) -> str:
    """The first of them."""
    return prepared_uids(claim)[0]


def is_asked(claim: ResourceClaim) -> bool:
    """Whether the node may answer."""
    return claim.metadata.labels.get(RELEASING_LABEL) == "true"


def is_record(claim: ResourceClaim) -> bool:
    """Whether the claim exists for a receipt alone."""
    return claim.metadata.labels.get(RELEASE_RECORD_LABEL) == "true"


def record_name(uid: str) -> str:
    """Name of the record for a generated claim of that UID: one that nobody has a reason to take."""
    return f"released-{uid}"


def released(record: ResourceClaim) -> str:
    """Name of the generated claim that the record is for."""
    return record.metadata.annotations.get(RELEASED_CLAIM_ANNOTATION, record.metadata.name)


def noted(node: str, uids: Iterable[str]) -> dict[str, str]:
    """The annotations: which node, and what was prepared there."""
    return {RELEASING_FROM_ANNOTATION: node, CLAIM_UID_ANNOTATION: ",".join(dict.fromkeys(uids))}


def record(holding: Holding, asked: ClassRequest | None, status: Body, node: str) -> Body:
    """The record for a generated claim; it belongs to nobody, because the pod is gone."""
    spec: Body = {"resourceClassName": holding.class_name or (asked.class_name if asked else holding.driver)}
    if asked is not None and asked.parameters is not None:
        spec["parameters"] = dict(asked.parameters)
    written = {
        ALLOCATION_ANNOTATION: orjson.dumps(status).decode(),
        RELEASED_CLAIM_ANNOTATION: holding.claim,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {
            "name": record_name(holding.uid),
            "namespace": holding.namespace,
            "labels": {GENERATED_LABEL: holding.entry, RELEASE_RECORD_LABEL: "true"},
            "annotations": {**noted(node, (holding.uid, *holding.shown_by)), **written},
        },
        "spec": spec,
    }


def with_allocation(claim: ResourceClaim) -> ResourceClaim:
    """The record as its status will tell; as it is if it does already, or if it says nothing that can be read."""
    told = claim.metadata.annotations.get(ALLOCATION_ANNOTATION)
    if not is_record(claim) or claim.status.allocation is not None or told is None:
        return claim
    try:
        return claim.model_copy(update={"status": ClaimStatus.model_validate_json(told)})
    except ValidationError:
        return claim


def said(node: str) -> Said:
    """The condition while a node owes a receipt; its age is the wait's."""
    return Said(CONDITION_RELEASING, True, "ForcedDeletion", waits_for(node))


def waits_for(node: str) -> str:
    """The sentence about a claim that may still be prepared on the node."""
    return (
        f"a pod that used it on node {node} was deleted by force, and the node plugin there has yet to say that "
        f"it is not prepared any more: bring the node back, or, if it is shut down, taint it "
        f"{OUT_OF_SERVICE_TAINT}"
    )
