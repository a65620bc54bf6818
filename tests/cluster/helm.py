"""helm, as the administrator of a cluster runs it: the chart of this checkout, and the release `parley`."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.starting import DEPLOY

from parley_devcluster import Cluster, manifests

CHART = DEPLOY / manifests.CHART


class HelmFailed(Exception):
    """Raised when helm ends with an error; the message is all that it printed."""


def helm(cluster: Cluster, *arguments: str, values: Mapping[str, Any] | None = None, scratch: Path) -> str:
    """What it printed, in `scratch`, where it keeps what it knows of repositories."""
    places = {f"HELM_{kind}_HOME": str(scratch / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    given = () if values is None else ("--values", "-")
    done = subprocess.run(
        [str(manifests.helm()), *arguments, *given, "--namespace", manifests.NAMESPACE],
        input=None if values is None else yaml.safe_dump(dict(values)),
        env={**os.environ, **places, "KUBECONFIG": str(cluster.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HelmFailed(done.stdout)
    return done.stdout
