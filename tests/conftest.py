"""What all tests have in common."""

import asyncio
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.support.garbage import collect_seldom, collect_seldom_in_go

pytest.register_assert_rewrite("tests.cluster", "tests.unit.kills")  # a failed assert there shows its values, too

# No test depends on the machine's speed.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("dev")
if os.environ.get("CI") == "true":
    # A checkout passes or fails; new examples are looked for by everybody else.
    settings.load_profile("ci")


collect_seldom()
collect_seldom_in_go()


def pytest_collection_finish(session: pytest.Session) -> None:
    """All modules of tests are imported."""
    collect_seldom()


@pytest.fixture(scope="session", autouse=True)
def no_event_loop_of_nobody() -> None:
    """looptime asks for the current event loop around plain tests too; the first one would make a loop that nobody
    closes."""
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands configure logging for their process; here that is everybody's.

    Traces are plain: those with each frame's variables take a tenth of a second each.
    """
    *processors, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, plain])
    yield
    structlog.reset_defaults()
