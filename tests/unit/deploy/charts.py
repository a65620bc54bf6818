"""The objects that the Helm chart renders from values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from parley_devcluster import manifests

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / manifests.CHART
Objects = Mapping[tuple[str, str], dict[str, Any]]


def objects(values: Mapping[str, Any] | Path) -> Objects:
    """What the chart renders, by kind and name."""
    given = yaml.safe_load(values.read_text()) if isinstance(values, Path) else values
    documents = [it for it in yaml.load_all(manifests.template(DEPLOY, given), yaml.CSafeLoader) if it]
    found = {(it["kind"], it["metadata"]["name"]): it for it in documents}
    assert len(found) == len(documents)
    return found


def pod_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec
