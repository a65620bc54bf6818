"""Records of the generated claims that have a workspace on this node, kept beside the workspaces.

    ROOT/generated/ID   the claim and its handle, from before its directory is created until that is removed

If the checkpoint was lost, they tell which directories end with their pods. Named claims need no record: the
controller requests the removal of their data. Everything here blocks, and raises OSError.
"""

from pathlib import Path
from typing import Final

import structlog
from pydantic import BaseModel, ValidationError

from parley_kubelet.driver.workspace_handle import WorkspaceHandle
from parley_kubelet.hooks import NodeClaim

GENERATED: Final = "generated"

log = structlog.get_logger(__name__)


class _Record(BaseModel):
    namespace: str
    name: str
    uid: str
    handle: WorkspaceHandle


class GeneratedRecords:
    """The records of a node, below its `root`."""

    def __init__(self, root: Path) -> None:
        self._folder = root / GENERATED

    def add(self, claim: NodeClaim[WorkspaceHandle]) -> None:
        """Record the claim, whole or not at all. `root` must exist."""
        record = _Record(namespace=claim.namespace, name=claim.name, uid=claim.uid, handle=claim.handle)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        new = self._new(claim.handle.workspace)
        new.write_text(record.model_dump_json(by_alias=True))
        new.replace(self._folder / claim.handle.workspace)

    def remove(self, workspace: str) -> None:
        """Remove the record of a workspace whose directory is removed. Works on a full disk."""
        for path in (self._new(workspace), self._folder / workspace):
            path.unlink(missing_ok=True)

    def all(self) -> list[NodeClaim[WorkspaceHandle]]:
        """The recorded claims, without their devices."""
        paths = self._folder.iterdir() if self._folder.is_dir() else ()
        return [claim for path in paths if not path.name.startswith(".") and (claim := _read(path))]

    def _new(self, workspace: str) -> Path:
        return self._folder / f".{workspace}"


def _read(path: Path) -> NodeClaim[WorkspaceHandle] | None:
    try:
        found = _Record.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None  # removed meanwhile
    except (ValidationError, OSError) as error:
        log.warning("record of a generated claim left out", path=str(path), reason=str(error))
        return None
    return NodeClaim(found.namespace, found.name, found.uid, (), found.handle)
