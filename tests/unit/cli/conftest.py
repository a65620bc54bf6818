"""What these tests have in common."""

import asyncio
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="session", autouse=True)
def no_event_loop_of_nobody() -> None:
    """looptime asks for the current event loop around plain tests too; the first one would make a loop that nobody
    closes."""
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command sets up logging for its process."""
    yield
    structlog.reset_defaults()
