"""A real cluster for the tests of the development cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import starting

from parley_devcluster import Cluster, NodeOptions


@pytest.fixture(scope="session")
def able() -> None:
    """Skip with the reason where no cluster can run; under CI that is a failure."""
    starting.require_machine(real_nodes=True)


@pytest.fixture
def directory(able: None) -> Iterator[Path]:
    """A short directory, since unix sockets lie in it; what a failed test left in its folder `c` is taken down."""
    with starting.directory() as place:
        yield place.parent


@pytest.fixture(scope="module")
def cluster(able: None) -> Iterator[Cluster]:
    """A control plane and two real nodes, one of them with a label and less CPU."""
    options = [NodeOptions("n1"), NodeOptions("n2", {"disk": "fast"}, {"cpu": "500m"})]
    with starting.directory() as place, Cluster.start(place, nodes=options) as started:
        yield started
