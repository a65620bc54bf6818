"""What these tests have in common."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command sets up logging for its process."""
    yield
    structlog.reset_defaults()
