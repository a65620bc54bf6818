"""Dumps of a cluster."""

from pathlib import Path

import pytest
import yaml
from tests.unit.cli.simulating import Objects, a_cluster

from parley.simulate.virtual_time import run


@pytest.fixture(scope="module")
def objects() -> Objects:
    """As `kubectl get -o yaml` prints them: with everything that the server wrote."""
    fields = [{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]
    return [{**body, "metadata": {**body["metadata"], "managedFields": fields}} for body in run(a_cluster())]


@pytest.fixture
def dump(objects: Objects, tmp_path: Path) -> Path:
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path
