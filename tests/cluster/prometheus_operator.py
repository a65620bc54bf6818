"""The kinds of the Prometheus operator, as its own release defines them: the CRDs in its Go module."""

import os
from typing import Any

import pytest
import yaml

from parley_devcluster import versions
from parley_devcluster.gobuild import BuildError, sources

_MODULE = "github.com/prometheus-operator/prometheus-operator"
_GROUP = "monitoring.coreos.com"


def crds(*plurals: str) -> list[dict[str, Any]]:
    """The CRDs of these kinds. Skips where they can't be downloaded; under CI that is a failure."""
    try:
        folder = sources(_MODULE, versions.PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    except BuildError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI has to have the CRDs of the Prometheus operator: {error}")
        pytest.skip(str(error))
    return [yaml.safe_load((folder / f"{_GROUP}_{plural}.yaml").read_text()) for plural in plurals]
