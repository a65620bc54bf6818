"""Installs Parley in a kind cluster as a user does: with the image of deploy/Dockerfile, the chart and helm.

There is no registry: the nodes' container engine builds the image, which is then imported into the nodes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from parley_devcluster import commands, kind, kind_image, manifests, parley_image
from parley_devcluster.debian import BUSYBOX
from parley_devcluster.engine import Engine
from parley_devcluster.gobuild import Report, say
from parley_devcluster.images import archive, busybox_images
from parley_devcluster.startup import ClusterError

IMAGE = "parley.dev/parley:dev"

_SCHEDULER = f"{kind_image.REPOSITORY}/kube-scheduler"
_LIMIT = 300  # seconds until all of Parley is ready


def install(
    engine: Engine,
    kubeconfig: Path,
    checkout: Path,
    devices: Path,
    *,
    extender: bool = False,
    report: Report = say,
) -> None:
    """Build and import the image, and install or upgrade the chart.

    The folder `devices` has each worker's device configuration: `node-1.yaml` for the first one, `node-2.yaml` for
    the second. Raises `EngineError`, and `ClusterError` with helm's output.
    """
    report(f"building the image {IMAGE}")
    parley_image.build(engine, checkout, IMAGE)
    nodes = kind.nodes(engine)
    with tempfile.TemporaryDirectory() as scratch:
        kind.import_image(engine, IMAGE, nodes, Path(scratch))
        kind.import_archive(engine, archive(Path(scratch) / "busybox.tar", busybox_images(BUSYBOX)), nodes)
    workers = [node for node in nodes if "worker" in node]
    files = [devices / f"node-{number}.yaml" for number, _ in enumerate(workers, 1)]
    report("installing the chart")
    _helm(kubeconfig, checkout, values(dict(zip(workers, files, strict=True)), extender=extender))


def values(devices: Mapping[str, Path], *, extender: bool = False) -> dict[str, Any]:
    """The chart's values: the image that was imported, and for each node a pool with the devices of its file."""
    repository, _, tag = IMAGE.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "nodePlugin": {"pools": [_pool(node, file) for node, file in devices.items()]},
        "secondScheduler": {"enabled": extender, "mode": "Sidecar", "image": {"repository": _SCHEDULER}},
    }


def _pool(node: str, file: Path) -> dict[str, Any]:
    configuration = yaml.safe_load(file.read_text())
    return {"name": node, "nodeSelector": {"kubernetes.io/hostname": node}, "configuration": configuration}


def _helm(kubeconfig: Path, checkout: Path, chosen: Mapping[str, Any]) -> None:
    chart = checkout / "deploy" / manifests.CHART
    command: Sequence[str] = [
        *(str(manifests.helm()), "upgrade", "--install", manifests.RELEASE, str(chart)),
        *("--namespace", manifests.NAMESPACE, "--create-namespace", "--values", "-"),
        *("--wait", "--timeout", f"{_LIMIT}s"),
    ]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    commands.run(command, ClusterError, environment=environment, stdin=yaml.safe_dump(dict(chosen)))
