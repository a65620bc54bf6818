"""Points in time and spans, as they are told."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.explain.waiting_pods import NOW

from parley.explain.times import ago, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (200_000, "2 d"),
    ],
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_ago() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    assert ago((now - timedelta(minutes=5)).isoformat(), NOW) == "5 min"
    assert ago("", NOW) == ""


@pytest.mark.parametrize("at", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-05:00", "2026-01-01t00:00:00z"])
def test_a_time_that_python_does_not_know_is_none(at: str) -> None:
    """The API server takes the first in any event, and all of them in a claim's conditions."""
    assert ago(at, NOW) == ""
