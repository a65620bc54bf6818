"""Reasons why a machine can't run a local cluster, found without changing it, for skipped tests and for users."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

from parley_devcluster import binaries, debian, processes, versions


def unmet(
    *,
    real_nodes: bool,
    version: str = versions.KUBERNETES,
    environment: Mapping[str, str] = os.environ,
) -> list[str]:
    """One sentence for each reason why `Cluster.start` would fail here; an empty list if there is none."""
    if sys.platform != "linux":
        return ["the cluster's programs run on Linux only"]
    reasons = _programs(real_nodes, version, environment)
    if real_nodes:
        reasons += _node_reasons()
    return reasons


def _programs(real_nodes: bool, version: str, environment: Mapping[str, str]) -> list[str]:
    wanted = [*versions.CONTROL_PLANE, *(versions.NODE if real_nodes else ())]
    found = binaries.find(wanted, versions.modules(versions.kubernetes_version(version)), environment)
    if not found.missing or shutil.which("go", path=environment.get("PATH", "")):
        return []
    return [f"{', '.join(found.missing)} are not in the cache, and there is no Go to build them"]


def _node_reasons() -> list[str]:
    root = os.geteuid() == 0
    reasons = [] if root else ["real nodes need root"]
    packages = debian.missing()
    if packages and not (root and shutil.which("apt-get")):
        reasons.append(debian.absence(packages))
    foreign = processes.unmarked("kubelet")
    if foreign:
        reasons.append(f"a kubelet of another cluster runs here (process {foreign[0]})")
    return reasons
