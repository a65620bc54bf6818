"""Real nodes with made-up devices: what the node plugins are told, and what they have prepared.

Each device has a character device of its own name, so that a container shows which devices it was given.
"""

import asyncio
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
import yaml

from parley_devcluster import Cluster
from parley_devcluster.layout import Node
from parley_devcluster.parley import NODE_PLUGIN

_ZERO: Final = os.makedev(1, 5)
"""The device that gives zeros, under other names."""

_LIMIT = 120.0
_PAUSE = 0.1
_REGISTERED = "registered with the kubelet"

PREPARED: Final = "claim prepared"
UNPREPARED: Final = "claim unprepared"


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


def wait_for_registration(cluster: Cluster, node: str, *, program: str = NODE_PLUGIN, times: int = 1) -> None:
    """Return when the kubelet has taken the node's plugin so many times; then it publishes the devices."""
    deadline = time.monotonic() + _LIMIT
    log = cluster.component(f"{program}-{node}").log
    while log.read_text().count(_REGISTERED) < times:
        assert time.monotonic() < deadline, f"the plugin of {node} was not registered: {log.read_text()}"
        time.sleep(_PAUSE)


def registrations(cluster: Cluster, node: str, *, program: str = NODE_PLUGIN) -> int:
    """How many times the kubelet has taken the plugin."""
    return cluster.component(f"{program}-{node}").log.read_text().count(_REGISTERED)


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


async def unprepared(node: Node, *uids: str) -> None:
    """Return when the node's plugin has none of these claims in its checkpoint any more."""
    for _ in range(int(_LIMIT / _PAUSE)):
        if not prepared(node).keys() & set(uids):
            return
        await asyncio.sleep(_PAUSE)
    raise AssertionError(f"{node.name} still has {prepared(node)}")


def calls(cluster: Cluster, node: str, event: str, *, program: str = NODE_PLUGIN) -> Sequence[str]:
    """The UIDs of claims that a plugin of the node told `event` about, one for each call of the kubelet's:
    for pods that start at the same time it asks more than once."""
    lines = cluster.component(f"{program}-{node}").log.read_bytes().splitlines()
    entries = [orjson.loads(line) for line in lines if line.startswith(b"{")]
    return [entry["uid"] for entry in entries if entry.get("event") == event]
