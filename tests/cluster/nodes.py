"""Real nodes with made-up devices: what the node plugins are told, and what they have prepared.

Each device has a character device of its own name, so that a container shows which devices it was given.
"""

import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
import yaml

from parley.devcluster import Cluster
from parley.devcluster.layout import Node
from parley.devcluster.parley import NODE_PLUGIN

_ZERO: Final = os.makedev(1, 5)
"""The device that gives zeros, under other names."""

_LIMIT = 60.0


def configure(folder: Path, devices: Mapping[str, Sequence[str]]) -> Mapping[str, Path]:
    """Make the devices of each node, and the file that tells its plugin of them."""
    return {node: _configure(folder, node, names) for node, names in devices.items()}


def _configure(folder: Path, node: str, names: Sequence[str]) -> Path:
    entries = []
    for name in names:
        path = folder / name
        os.mknod(path, stat.S_IFCHR | 0o666, _ZERO)
        variable = f"NODE_OF_{name.upper().replace('-', '_')}"
        entries.append({"name": name, "model": "a100", "deviceNodes": [str(path)], "env": {variable: str(path)}})
    file = folder / f"{node}.yaml"
    file.write_text(yaml.safe_dump({"devices": entries}))
    return file


def wait_for_registration(cluster: Cluster, node: str) -> None:
    """Return when the kubelet has taken the node's plugin, which then publishes the devices."""
    deadline = time.monotonic() + _LIMIT
    log = cluster.component(f"{NODE_PLUGIN}-{node}").log
    while "registered with the kubelet" not in log.read_text():
        assert time.monotonic() < deadline, f"the plugin of {node} was not registered: {log.read_text()}"
        time.sleep(0.1)


def specifications(node: Node) -> Sequence[str]:
    """The CDI files on the node."""
    return sorted(path.name for path in node.cdi_dir.glob("*")) if node.cdi_dir.exists() else []


def prepared(node: Node) -> Mapping[str, frozenset[str]]:
    """The devices of each claim, by UID, that the node's plugin has in its checkpoint."""
    file = node.parley_dir / "checkpoint.json"
    if not file.exists():
        return {}
    claims = orjson.loads(file.read_bytes())["claims"]
    return {claim["uid"]: frozenset(device["name"] for device in claim["devices"]) for claim in claims}
