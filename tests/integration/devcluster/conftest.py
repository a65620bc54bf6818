"""A real cluster for the tests of the development cluster, and what must not be left of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.devcluster import Cluster, NodeOptions, clean
from parley.devcluster.requirements import unmet


@pytest.fixture(scope="session")
def able() -> None:
    """Skip with the reason where no cluster can run; under CI that is a failure."""
    reasons = unmet(real_nodes=True)
    if reasons and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the real cluster, but {'; '.join(reasons)}")
    if reasons:
        pytest.skip("; ".join(reasons))


@pytest.fixture
def directory(able: None) -> Iterator[Path]:
    """A short directory, since unix sockets lie in it; what a failed test left there is taken down."""
    yield from temporary_directory()


@pytest.fixture(scope="module")
def cluster(able: None) -> Iterator[Cluster]:
    """A control plane and two real nodes, one of them with a label and less CPU."""
    for place in temporary_directory():
        options = [NodeOptions("n1"), NodeOptions("n2", {"disk": "fast"}, {"cpu": "500m"})]
        with Cluster.start(place / "c", nodes=options) as started:
            yield started


def temporary_directory() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="pdc-", dir="/tmp"))
    try:
        yield place
    finally:
        clean(place / "c")
        shutil.rmtree(place)
