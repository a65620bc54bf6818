"""A real API server with Parley's manifests applied, and a namespace for each test."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.devcluster import Cluster
from parley.devcluster.parley import install
from parley.devcluster.requirements import unmet

DEPLOY = Path(__file__).parents[3] / "deploy"


@pytest.fixture(scope="session")
def installed() -> Iterator[Cluster]:
    """A control plane of its own: the admission policies must not surprise other tests."""
    reasons = unmet(real_nodes=False)
    if reasons and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the real control plane, but {'; '.join(reasons)}")
    if reasons:
        pytest.skip("; ".join(reasons))
    place = Path(tempfile.mkdtemp(prefix="pdc-api-", dir="/tmp"))
    try:
        with Cluster.start(place / "c", fake_nodes=2) as cluster:
            install(cluster, DEPLOY)
            yield cluster
    finally:
        shutil.rmtree(place)


@pytest.fixture
def namespace(installed: Cluster) -> str:
    """A new namespace."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    installed.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name
