"""What workspaces leave on real nodes."""

from pathlib import Path

import orjson

from parley.drivers.workspace import WorkspaceDriver
from parley_devcluster import Cluster, machine


def left(cluster: Cluster, places: Path, mounts: set[Path]) -> list[str]:
    """What reminds of workspaces on the nodes: directories, CDI specifications, claims in checkpoints, and mounts
    beside those that were there before. `places` has a folder for each node (`workspace_plugins`)."""
    found = [str(path) for path in places.glob("*/root/*/*")]
    for node in cluster.nodes:
        found += [str(path) for path in node.cdi_dir.glob(f"*{WorkspaceDriver.name}*")]
        checkpoint = places / node.name / "state" / "checkpoint.json"
        if checkpoint.exists():
            found += [claim["uid"] for claim in orjson.loads(checkpoint.read_bytes())["claims"]]
    return found + [str(path) for path in set(machine.mounts_below(cluster.directory)) - mounts]
