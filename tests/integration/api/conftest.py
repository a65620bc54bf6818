"""A namespace for each test, on the control plane with Parley's manifests applied."""

import uuid

import pytest
from tests.cluster.raw import raw

from parley_devcluster import Cluster


@pytest.fixture
def namespace(installed: Cluster) -> str:
    """A new namespace."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    raw(installed).post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name
