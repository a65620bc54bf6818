"""The control plane with Parley's manifests applied, and a namespace for each test."""

import uuid
from pathlib import Path

import pytest

from parley.devcluster import Cluster
from parley.devcluster.parley import install

DEPLOY = Path(__file__).parents[3] / "deploy"


@pytest.fixture(scope="session")
def installed(control_plane: Cluster) -> Cluster:
    """Accounts, permissions and admission policies are there."""
    install(control_plane, DEPLOY)
    return control_plane


@pytest.fixture
def namespace(installed: Cluster) -> str:
    """A new namespace."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    installed.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name
