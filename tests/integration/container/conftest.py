"""A container engine and the image that it builds from deploy/Dockerfile."""

import os
from pathlib import Path

import pytest

from parley_devcluster import engine, parley_image
from parley_devcluster.engine import Engine

CHECKOUT = Path(__file__).parents[3]
IMAGE = "parley.dev/parley:test"


@pytest.fixture(scope="session")
def container_engine() -> Engine:
    """Skips where there is none; under CI that is a failure."""
    found = engine.find()
    reason = "no container engine works here: `make machine` installs podman, as root on Debian"
    if found is None and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to build the image, but {reason}")
    if found is None:
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def image(container_engine: Engine) -> str:
    """The image's name."""
    parley_image.build(container_engine, CHECKOUT, IMAGE)
    return IMAGE
