"""Workspaces on real nodes: a class of them, and what they leave."""

from pathlib import Path

import orjson
from tests.cluster.manifests import resource_class
from tests.cluster.namespace import Namespace
from tests.cluster.node_plugins import offered

from parley.drivers.workspace import DISK, WorkspaceDriver
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


async def kept_workspaces(cluster: Cluster, team: Namespace, *, shareable: bool) -> str:
    """The name of a class whose claims are kept without users, once every node serves workspaces."""
    for node in cluster.nodes:
        await offered(team.client, node.name, [DISK], WorkspaceDriver.name)
    name, kept = f"kept-{team.name}", {"whenUnused": {"keepSeconds": 600}}
    await team.create(resource_class(name, WorkspaceDriver.name, shareable=shareable, **kept))
    return name
