"""Kinds of other projects that Parley's objects may be of, as these define them: the CRDs in their Go modules."""

import os
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from parley_devcluster import versions
from parley_devcluster.gobuild import BuildError, sources


@dataclass(frozen=True)
class Project:
    """A Go module, and where in it the CRDs of a group are, a file each."""

    module: str
    version: str
    folder: str
    group: str

    def crds(self, *plurals: str) -> list[dict[str, Any]]:
        """The CRDs of these kinds. Skips where they can't be downloaded; under CI that is a failure."""
        try:
            folder = sources(self.module, self.version) / self.folder
        except BuildError as error:
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI has to have the CRDs of {self.group}: {error}")
            pytest.skip(str(error))
        return [yaml.safe_load((folder / f"{self.group}_{plural}.yaml").read_text()) for plural in plurals]


CERT_MANAGER = Project(
    "github.com/cert-manager/cert-manager", versions.CERT_MANAGER, "deploy/crds", "cert-manager.io"
)
PROMETHEUS_OPERATOR = Project(
    "github.com/prometheus-operator/prometheus-operator",
    versions.PROMETHEUS_OPERATOR,
    "example/prometheus-operator-crd",
    "monitoring.coreos.com",
)
