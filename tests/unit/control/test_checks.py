"""The first check that finds a fault decides; the others are not asked."""

from parley.control.claims.checks import first_problem
from parley.control.claims.podclaims import Problem


def test_the_first_fault_is_the_one_that_is_reported() -> None:
    asked: list[str] = []

    def passes(facts: int) -> Problem | None:
        asked.append(f"passes {facts}")
        return None

    def fails(facts: int) -> Problem | None:
        asked.append(f"fails {facts}")
        return Problem("Fails", "it fails", ())

    def never(_: int) -> Problem | None:
        raise AssertionError("not to be asked")

    assert first_problem((passes, fails, never), 7) == Problem("Fails", "it fails", ())
    assert asked == ["passes 7", "fails 7"]


def test_no_fault_is_none() -> None:
    assert first_problem((lambda _: None,), 7) is None
