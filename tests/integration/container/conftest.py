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


@pytest.fixture
def plain_http(tmp_path: Path) -> dict[str, str]:
    """Tells podman and skopeo that the docs' registry speaks HTTP: then a proxy can stand for it."""
    settings = tmp_path / ".config" / "containers" / "registries.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text('[[registry]]\nlocation = "registry.example.com"\ninsecure = true\n')
    return {"CONTAINERS_REGISTRIES_CONF": str(settings), "HOME": str(tmp_path)}  # skopeo goes by its home


@pytest.fixture(scope="session")
def image(container_engine: Engine) -> str:
    """The image's name."""
    parley_image.build(container_engine, CHECKOUT, IMAGE)
    return IMAGE
