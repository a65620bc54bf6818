"""What all tests have in common."""

import asyncio

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_event_loop_of_nobody() -> None:
    """looptime asks for the current event loop around plain tests too; the first one would make a loop that nobody
    closes."""
    asyncio.set_event_loop(None)
