"""What is wrong is said with the object's name and the remedy."""

import pytest

from parley.control import sentences


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (
            sentences.name_taken("ResourceClaim", "team", "c"),
            "a resource.k8s.io ResourceClaim team/c exists that Parley did not make: "
            "delete it, or give the parley.dev ResourceClaim another name",
        ),
        (
            sentences.mirror_refused("ResourceClaim", "team", "c", "exceeded quota"),
            "the API server refused the resource.k8s.io ResourceClaim that stands for team/c: exceeded quota: "
            "change what it names; it is tried again",
        ),
        (
            sentences.stand_in_taken("team", "c"),
            "a parley.dev ResourceClaim team/c exists that Parley did not make, and Parley needs the name for "
            "what the driver allocates: delete it",
        ),
        (
            sentences.too_large("claim team/c", 10_001),
            "parameters of claim team/c have 10001 bytes as JSON, at most 10000 fit: shorten them",
        ),
        (
            sentences.class_not_found("gpu", "team/c"),
            "claim team/c: spec.resourceClassName='gpu' does not exist: create that ResourceClass",
        ),
    ],
    ids=["name-taken", "mirror-refused", "stand-in-taken", "too-large", "class-not-found"],
)
def test_word_by_word(sentence: str, words: str) -> None:
    assert sentence == words
