"""The input of a node's workspace driver: the handles of claims, and the node's settings."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from parley.api.quantity import parse
from parley_kubelet.hooks import Settings

_Mode = Annotated[str, Field(pattern="^[0-7]{3,4}$")]
_Id = Annotated[int, Field(ge=0, lt=2**32 - 1)]


class OwnerHandle(BaseModel):
    """The owner of a new directory, and its octal mode."""

    uid: _Id
    gid: _Id
    mode: _Mode


class WorkspaceHandle(BaseModel):
    """The handle that the workspace driver in the controller writes. `variable` has the path in containers;
    without `owner` the node's settings apply. `retain`: how many ended claims' directories the namespace keeps, 0
    for none. `enforce`: how the size is enforced. `source`: the UID of the claim whose directory this is a view
    of. `disk`: the identity of the disk that has the claim's directory; on another one none is created."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    workspace: Annotated[str, Field(pattern=r"^[0-9a-zA-Z][0-9a-zA-Z-]{0,63}$")]
    bytes: Annotated[int, Field(ge=0)]
    mount_path: Annotated[str, Field(pattern="^/[^\\x00:]+$")]
    variable: Annotated[str, Field(pattern="^[A-Z0-9_]+$")]
    generated: bool = False
    owner: OwnerHandle | None = None
    read_only: bool = False
    retain: Annotated[int, Field(ge=0)] = 0
    enforce: Literal["Watch", "Image"] = "Watch"
    source: str = ""
    disk: str = ""


def _root(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts or path == Path("/"):
        raise ValueError("write an absolute path without '..', as in /var/lib/parley/workspaces")
    return path


def _quantity(text: str) -> str:
    if parse(text) < 1:
        raise ValueError("must be a quantity of bytes, as in 100Gi; leave it out for most of the disk")
    return text


class WorkspaceSettings(Settings):
    """This node's settings: `drivers.workspace.parley.dev` in the configuration file.

    `size` is what may be promised in all, 90 % of the file system if left out. New directories have `mode` and,
    if given, `uid` and `gid`. With `marker`, a file of that name has to be in `root`: if it is missing, the disk
    is not mounted, and nothing is created or removed.
    """

    root: Annotated[Path, AfterValidator(_root)] = Path("/var/lib/parley/workspaces")
    marker: Annotated[str, Field(max_length=255, pattern=r"^(\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)?$")] = ""
    size: Annotated[str, Field(max_length=32), AfterValidator(_quantity)] | None = None
    mode: _Mode = "0777"
    uid: _Id = 0
    gid: _Id = 0
