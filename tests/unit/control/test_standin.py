"""Stand-ins are told from named claims, and from what somebody else put in their place."""

from typing import Any

import pytest
from tests.unit.control.builders import NOW, a_claim, a_pod, read

from parley.api.models import ParametersReference, ResourceClaim
from parley.api.resources import CLAIMS
from parley.control.objects.class_request import ClassRequest
from parley.control.objects.standin import (
    being_deallocated,
    is_stand_in,
    owner_uid,
    stand_in,
    stands_for,
)

POD = a_pod()
ASKED = ClassRequest("licence", {"count": 2})
ALLOCATION: dict[str, Any] = {"handles": [{"driverName": "outside.example.com"}]}


def made(asked: ClassRequest = ASKED, **changes: Any) -> ResourceClaim:
    """The stand-in for the pod's entry `gpu`, as the cache has it."""
    body = stand_in(POD, "gpu", "p-gpu", asked)
    return read(CLAIMS, {**body, **changes})


def test_a_stand_in_is_owned_by_its_pod_and_asks_for_what_the_generated_claim_does() -> None:
    claim = made()
    assert is_stand_in(claim)
    assert owner_uid(claim) == POD.metadata.uid
    assert (claim.metadata.namespace, claim.metadata.name) == (POD.metadata.namespace, "p-gpu")
    assert stands_for(claim, POD.metadata.uid, "gpu", ASKED)


def test_a_claim_without_parameters_has_a_stand_in_without() -> None:
    asked = ClassRequest("licence", None)
    assert "parameters" not in stand_in(POD, "gpu", "p-gpu", asked)["spec"]
    assert stands_for(made(asked), POD.metadata.uid, "gpu", asked)


def test_a_stand_in_names_the_same_object_as_the_generated_claim() -> None:
    size, other = (ParametersReference(kind="ConfigMap", name=name) for name in ("size", "other"))
    claim = made(ClassRequest("licence", None, size))
    assert claim.spec.parameters_ref == size
    assert stands_for(claim, POD.metadata.uid, "gpu", ClassRequest("licence", None, size))
    for asked in (ClassRequest("licence", None, other), ClassRequest("licence", None)):
        assert not stands_for(claim, POD.metadata.uid, "gpu", asked)


@pytest.mark.parametrize(
    ("claim", "pod_uid", "entry", "asked"),
    [
        (a_claim("p-gpu", parameters={"count": 2}), POD.metadata.uid, "gpu", ASKED),
        (made(), "uid-of-another", "gpu", ASKED),
        (made(), POD.metadata.uid, "other", ASKED),
        (made(), POD.metadata.uid, "gpu", None),
        (made(), POD.metadata.uid, "gpu", ClassRequest("other", {"count": 2})),
        (made(), POD.metadata.uid, "gpu", ClassRequest("licence", {"count": 3})),
        (
            made(spec={"resourceClassName": "licence", "parameters": {"count": 2}, "allocationMode": "Immediate"}),
            POD.metadata.uid,
            "gpu",
            ASKED,
        ),
    ],
    ids=["named", "another-pods", "another-entry", "nothing-readable", "another-class", "more", "immediate"],
)
def test_anything_else_of_that_name_does_not_stand_for_the_entry(
    claim: ResourceClaim, pod_uid: str, entry: str, asked: ClassRequest | None
) -> None:
    assert not stands_for(claim, pod_uid, entry, asked)


def test_a_named_claim_belongs_to_no_pod_whoever_owns_it() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    assert owner_uid(a_claim(meta={"ownerReferences": [owner]})) == ""


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (a_claim(), False),
        (a_claim(status={"driverName": "d.example.com", "allocation": ALLOCATION}), True),
        (a_claim(meta={"deletionTimestamp": NOW}), False),
        (made(metadata={**stand_in(POD, "gpu", "p-gpu", ASKED)["metadata"], "deletionTimestamp": NOW}), True),
    ],
    ids=["free", "allocated", "named-being-deleted", "stand-in-being-deleted"],
)
def test_what_is_on_its_way_out(claim: ResourceClaim, expected: bool) -> None:
    assert being_deallocated(claim) is expected
