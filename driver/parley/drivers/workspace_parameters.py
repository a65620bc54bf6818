"""The parameters of workspace claims and classes, validated when they are read. See docs/workspaces.md."""

import re
from posixpath import normpath
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from parley.api.models import MAX_DEADLINE, Hold, YieldsTo
from parley.drivers.groups import HOSTNAME
from parley.drivers.reserves import Size, WorkspaceReserve
from parley.sdk import Parameters

_TAKEN: Final = (
    *("/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/usr/bin"),
    *("/usr/lib", "/usr/lib64", "/usr/sbin", "/var", "/var/run"),
)
_TAKEN_WITH_ALL_BELOW: Final = ("/dev/", "/proc/", "/run/secrets/", "/sys/", "/var/run/secrets/")
MAX_RETAINED: Final = 100


def _mount_path(path: str) -> str:
    absolute = path.startswith("/") and not path.startswith("//") and normpath(path) == path
    if not absolute or not path.isprintable() or re.search("[:,]", path):
        raise ValueError(
            "write an absolute path, as in /workspace, printable, without '..', ':', ',' or a '/' at its end"
        )
    if path in _TAKEN or f"{path}/".startswith(_TAKEN_WITH_ALL_BELOW):
        raise ValueError("a container needs what it has there: choose another path, as in /workspace")
    return path


class WorkspaceSource(Parameters):
    """The workspace of another claim of the namespace."""

    claim: Annotated[
        str,
        Field(
            max_length=253, pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", description="The name of the other claim."
        ),
    ]


class WorkspaceParameters(Parameters):
    """What a claim requests."""

    size: Annotated[
        Size | None, Field(description="How much disk space is promised to it; the class has the default.")
    ] = None
    mount_path: Annotated[
        str,
        Field(max_length=256, description="The path at which containers find it."),
        AfterValidator(_mount_path),
    ] = "/workspace"
    variable: Annotated[
        str | None,
        Field(
            max_length=64,
            pattern="^WORKSPACE_[A-Z0-9_]+_PATH$",
            description="The variable with the path in containers, instead of one named after the claim.",
        ),
    ] = None
    group: Annotated[
        str | None,
        Field(
            max_length=63,
            pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
            description="Claims of the namespace with the same group are on one node, or in one topology domain.",
        ),
    ] = None
    reserve: Annotated[
        WorkspaceReserve | None,
        Field(description="Room that is kept on its node for the pods that use it, while it is allocated."),
    ] = None
    read_only: Annotated[
        bool,
        Field(description="Whether containers can't write to it: those of all pods that use the claim."),
    ] = False
    source: Annotated[
        WorkspaceSource | None,
        Field(description="The claim is a read-only view of the workspace of another claim, and has none itself."),
    ] = None
    reclaim: Annotated[
        Literal["Delete", "Retain"],
        Field(description="Retain: the directory stays on its node when the claim ends, if the class allows it."),
    ] = "Delete"


class DirectoryOwner(Parameters):
    """To whom new directories belong, and who may use them: for containers that don't run as root."""

    uid: Annotated[int, Field(ge=0, lt=2**32 - 1, description="Of the user.")] = 0
    gid: Annotated[int, Field(ge=0, lt=2**32 - 1, description="Of the group.")] = 0
    mode: Annotated[str, Field(pattern="^[0-7]{3,4}$", description="Octal, as in 2770.")] = "0770"


class WorkspaceClass(Parameters):
    """What all claims of a class have in common."""

    owner: Annotated[
        DirectoryOwner | None, Field(description="Of new directories; the node's configuration has the default.")
    ] = None

    on_node_unavailable: Annotated[
        Literal["Wait", "Fail", "Recreate"],
        Field(
            description="What happens to a claim whose node is cordoned, not ready or gone: its pods wait, or it "
            "fails for good, or, if the node is deleted or out of service, it is allocated again elsewhere."
        ),
    ] = "Wait"
    unavailable_seconds: Annotated[
        int,
        Field(
            ge=0, le=MAX_DEADLINE, description="How long the node has to be unavailable before Fail or Recreate."
        ),
    ] = 300
    default_size: Annotated[Size, Field(description="For claims that do not say how much they need.")] = "1Gi"
    max_size: Annotated[Size | None, Field(description="A claim for more waits, and says why.")] = None
    enforce: Annotated[
        Literal["Watch", "Image"],
        Field(
            description="Watch: a workspace that outgrows its size gets an event. Image: it can't, since it is a "
            "file system of that size, in a file of the node."
        ),
    ] = "Watch"
    max_reserve: Annotated[
        WorkspaceReserve | None,
        Field(description="The most that a claim may reserve; what is left out can't be reserved."),
    ] = None
    hold: Annotated[
        Hold,
        Field(
            description="Who is kept out of what claims reserve. Ledger: pods with Parley's claims, and all of "
            "its second scheduler. Nominated: all pods, by reservation pods, if the installation has these."
        ),
    ] = "Ledger"
    yields_to: Annotated[
        YieldsTo,
        Field(
            description="Classes, of any driver: pods with a claim of such a class, in all namespaces, may use "
            "what is reserved and unused, until they end.",
        ),
    ] = ()
    topology_key: Annotated[
        str,
        Field(max_length=317, description="The label of nodes by which groups are kept together."),
    ] = HOSTNAME
    retain_at_most: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_RETAINED,
            description="How many directories of a namespace stay on each node when claims with `reclaim: Retain` "
            "have ended; the oldest are removed first. Without it, such claims wait.",
        ),
    ] = 0
