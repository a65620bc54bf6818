"""The workspace driver's node part over a folder, claims for it, and what is in the folder, for tests."""

import os
from pathlib import Path
from typing import Any

from parley.drivers.workspace import DISK
from parley_kubelet.driver.workspace_handle import WorkspaceSettings
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import DeviceName, NodeClaim
from parley_kubelet.testing import node_claim


def driver(root: Path, **settings: Any) -> WorkspaceNode:
    """The node part over that folder, whose files belong to the user who runs the tests."""
    mine = {"uid": os.getuid(), "gid": os.getgid(), **settings}
    return WorkspaceNode("n1", WorkspaceSettings(root=root, **mine))


def claim(name: str, **more: Any) -> NodeClaim[Any]:
    """A claim whose handle names the directory `id-of-<name>`; `more` are further fields of the handle."""
    handle = {
        "workspace": f"id-of-{name}",
        "bytes": 1,
        "mountPath": "/workspace",
        "variable": f"WORKSPACE_{name.upper()}_PATH",
        **more,
    }
    return node_claim(WorkspaceNode, name, handle, DeviceName("n1", DISK))


def data(root: Path) -> list[str]:
    """Names of the directories that claims have."""
    folder = root / "data"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def records(root: Path) -> list[str]:
    """Names of the records of generated claims."""
    return sorted(path.name for path in root.glob("generated/*"))


def mode(folder: Path) -> int:
    """Permission bits."""
    return folder.stat().st_mode & 0o7777


def trash(root: Path) -> list[Path]:
    """What is still to be removed."""
    return list((root / "trash").iterdir())


def retained(root: Path) -> dict[str, list[str]]:
    """Names of claims whose directories are retained, by namespace, oldest first."""
    found = sorted((root / "retained").glob("*/*"), key=lambda path: path.name.rpartition(".")[2])
    by_namespace: dict[str, list[str]] = {}
    for path in found:
        by_namespace.setdefault(path.parent.name, []).append(path.name.split(".id-of-")[0])
    return by_namespace


def a_view(name: str, of: str, **more: Any) -> NodeClaim[Any]:
    """A claim that reads another claim's directory."""
    return claim(name, workspace=f"id-of-{of}", source=f"uid-of-{of}", readOnly=True, mountPath="/inputs", **more)
