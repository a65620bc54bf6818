"""A cache is not believed before it shows our own latest write."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.control.caches.own_writes import OwnWrites


@dataclass(frozen=True)
class Version:
    """What the cache, or an answer, says of an object."""

    uid: str
    resource_version: str
    namespace: str = "team"
    name: str = "c"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=8), st.integers(0, 21))
def test_a_state_is_unseen_while_any_of_our_writes_of_that_object_is_newer(
    writes: list[tuple[str, int]], cached: int
) -> None:
    own = OwnWrites()
    for uid, version in writes:
        own.note(Version(uid, str(version)))
    newer = any(uid == "a" and version > cached for uid, version in writes)
    assert own.is_stale(Version("a", str(cached))) == newer


def test_the_answers_of_two_writes_may_come_in_any_order() -> None:
    own = OwnWrites()
    own.note(Version("a", "7"))
    own.note(Version("a", "5"))
    assert own.is_stale(Version("a", "6"))


def test_versions_are_numbers() -> None:
    own = OwnWrites()
    own.note(Version("a", "10"))
    assert own.is_stale(Version("a", "9"))


def test_an_object_that_is_gone_is_forgotten_and_others_are_not() -> None:
    own = OwnWrites()
    own.note(Version("a", "7"))
    own.note(Version("b", "7"))
    own.forget(Version("a", "1"))
    own.forget(Version("a", "1"))
    assert not own.is_stale(Version("a", "1"))
    assert own.is_stale(Version("b", "1"))


def test_nothing_is_remembered_of_what_the_cache_has_shown_to_be_gone() -> None:
    """Even if the answer to a write, or that it found nothing, comes after that."""
    cached = {"a"}
    own = OwnWrites(lambda meta: meta.uid in cached)
    own.note(Version("a", "7"))
    own.note(Version("b", "7"))
    own.note_not_found(Version("b", "7"))
    assert own.is_stale(Version("a", "1"))
    assert not own.is_stale(Version("b", "1"))
