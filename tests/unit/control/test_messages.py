"""Messages name the object and the remedy."""

import pytest

from parley.control.claims import messages


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            messages.taken("ResourceClaim", "team", "c"),
            "a resource.k8s.io ResourceClaim team/c exists that Parley did not create: "
            "delete it, or give the parley.dev ResourceClaim another name",
        ),
        (
            messages.refused("ResourceClaim", "team", "c", "exceeded quota"),
            "the API server refused the resource.k8s.io ResourceClaim that stands for team/c: exceeded quota: "
            "change what it names; Parley tries again",
        ),
        (
            messages.too_large("claim team/c", 10_001),
            "parameters of claim team/c have 10001 bytes as JSON, at most 10000 fit: shorten them",
        ),
        (
            messages.class_not_found("gpu", "claim team/c"),
            "claim team/c: spec.resourceClassName='gpu' does not exist: create that ResourceClass",
        ),
    ],
    ids=["name-taken", "mirror-refused", "too-large", "class-not-found"],
)
def test_word_by_word(message: str, expected: str) -> None:
    assert message == expected
