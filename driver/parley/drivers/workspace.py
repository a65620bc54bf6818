"""The workspace driver: directories on nodes that pods use one after the other, or side by side.

Here is decided on which node a workspace is, by how much of each node's disk is promised. How large that disk is,
the node part publishes in a ResourceSlice (`parley_kubelet.driver.workspaces`), which also makes the directory,
mounts it, and removes it when the claim ends. See docs/workspaces.md.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from posixpath import normpath
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from parley.api.builtin import ResourceSlice
from parley.api.quantity import parse
from parley.api.resources import RESOURCE_SLICES, Resource
from parley.sdk import (
    Allocation,
    Answer,
    Capacity,
    Cause,
    ClaimRequest,
    ClassOnNodes,
    Device,
    Driver,
    Held,
    Parameters,
    Request,
    Stranded,
)
from parley.sdk.checks import MAX_ALTERNATIVES

DISK = "workspaces"
"""The one device of a node: the disk that its workspaces are on, with the capacity `size`."""

_TAKEN: Final = (
    *("/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/usr/bin"),
    *("/usr/lib", "/usr/lib64", "/usr/sbin", "/var", "/var/run"),
)
_TAKEN_WITH_ALL_BELOW: Final = ("/dev/", "/proc/", "/run/secrets/", "/sys/", "/var/run/secrets/")
_MI = 1024**2
_GI = 1024**3


def _size(text: str) -> str:
    if not 0 < parse(text) <= 2**60:
        raise ValueError("must be more than 0 and at most 1Ei")
    return text


def _mount_path(path: str) -> str:
    absolute = path.startswith("/") and not path.startswith("//") and normpath(path) == path
    if not absolute or not path.isprintable() or re.search("[:,]", path):
        raise ValueError(
            "write an absolute path, as in /workspace, printable, without '..', ':', ',' or a '/' at its end"
        )
    if path in _TAKEN or f"{path}/".startswith(_TAKEN_WITH_ALL_BELOW):
        raise ValueError("a container needs what it has there: choose another path, as in /workspace")
    return path


Size = Annotated[str, Field(max_length=32), AfterValidator(_size)]


class WorkspaceParameters(Parameters):
    """What a claim asks for."""

    size: Annotated[
        Size | None, Field(description="How much of the node's disk is promised to it; the class has the default.")
    ] = None
    mount_path: Annotated[
        str,
        Field(max_length=256, description="Where containers that use the claim find it."),
        AfterValidator(_mount_path),
    ] = "/workspace"


class WorkspaceClass(Parameters):
    """What all claims of a class have in common."""

    on_node_unavailable: Annotated[
        Literal["Wait", "Fail", "Recreate"],
        Field(
            description="What becomes of a claim whose node is cordoned, not ready or gone: its pods wait, or it "
            "fails for good, or, if the node is deleted or out of service, it begins anew elsewhere."
        ),
    ] = "Wait"
    unavailable_seconds: Annotated[
        int,
        Field(ge=0, le=31_536_000, description="For so long the node has to be so before Fail or Recreate act."),
    ] = 300
    default_size: Annotated[Size, Field(description="For claims that do not say how much they need.")] = "1Gi"
    max_size: Annotated[Size | None, Field(description="A claim for more waits, and says why.")] = None


class NoRoom(Exception):
    """Raised when the room that was there at the question is promised to others since."""


WorkspaceRequest = Request[WorkspaceParameters, WorkspaceClass]
WorkspaceClaim = ClaimRequest[WorkspaceParameters, WorkspaceClass]


class WorkspaceDriver(Driver[WorkspaceParameters, WorkspaceClass]):
    """Counts the bytes promised on each node. They are not enforced: a workspace may grow beyond its size."""

    name: ClassVar[str] = "workspace.parley.dev"
    parameters = WorkspaceParameters
    class_parameters = WorkspaceClass
    parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {
        "workspace.parley.dev/v1alpha1": WorkspaceParameters
    }
    class_parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {
        "workspace.parley.dev/v1alpha1": WorkspaceClass
    }
    node_local: ClassVar[bool] = True
    leaves_data: ClassVar[bool] = True
    watches: ClassVar[tuple[Resource[Any], ...]] = (RESOURCE_SLICES,)

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}
        self._promised: defaultdict[str, int] = defaultdict(int)

    def observe(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """Learn how large the nodes' disks are. A node may speak for itself only."""
        before = dict(self._sizes)
        for slice_ in (old, new):
            if slice_ is not None and slice_.spec.driver == self.name:
                self._sizes.pop(slice_.spec.node_name, None)
        if new is not None and new.spec.driver == self.name and new.spec.pool.name == new.spec.node_name:
            for device in new.spec.devices:
                if device.name == DISK and "size" in device.capacity:
                    self._sizes[new.spec.node_name] = int(parse(device.capacity["size"].value))
        return self._sizes != before

    def restore(self, held: Held) -> None:
        """Count a workspace that exists."""
        data = held.data or {}
        if held.node is not None and isinstance(data.get("bytes"), int):
            self._hold(held.uid, held.node, data["bytes"])

    def forget(self, uid: str) -> None:
        """Ordinary DRA took the disk, and gave it back."""
        self._release(uid)

    def viable(self, request: WorkspaceRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        """Where the disk has room for all claims together."""
        why = _fault(request)
        wanted = _wanted(request)
        lacking = {node: why or reason for node in nodes if (reason := why or self._lacks(node, wanted))}
        viable = tuple(node for node in nodes if node not in lacking)
        asked = frozenset(nodes)
        others = [] if why else [n for n in sorted(self._sizes) if n not in asked and not self._lacks(n, wanted)]
        answer = Answer(viable, None if viable else tuple(others[:MAX_ALTERNATIVES]), lacking)
        return {claim.name: answer for claim in request.claims}

    def viable_without(self, request: WorkspaceRequest, node: str, uids: Collection[str]) -> bool:
        """Whether there would be room if the claims with these UIDs had none."""
        freed = sum(size for uid in uids for where, size in (self._held.get(uid, ("", 0)),) if where == node)
        return not _fault(request) and self._free(node) + freed >= _wanted(request)

    def capacity(self, of: ClassOnNodes[WorkspaceClass]) -> Capacity:
        """In MiB."""
        total = sum(self._sizes.get(node, 0) for node in of.nodes)
        free = sum(max(self._free(node), 0) for node in of.nodes)
        return Capacity(total // _MI, free // _MI)

    def stranded(self, claim: WorkspaceClaim, node: str, cause: Cause) -> Stranded:  # noqa: ARG002 - on any node
        """As the class says."""
        class_ = claim.class_parameters
        return Stranded(class_.on_node_unavailable, class_.unavailable_seconds)

    def units(self, claim: WorkspaceClaim) -> int:
        """Limits of a class are in MiB."""
        return -(-_bytes(claim) // _MI)

    def room_left(self, request: WorkspaceRequest, nodes: Sequence[str]) -> Mapping[str, float]:
        """The GiB that are left."""
        wanted = _wanted(request)
        return {node: max(self._free(node) - wanted, 0) / _GI for node in nodes}

    def fullest(self, request: WorkspaceRequest) -> Iterable[str]:
        """The nodes with the least room that is enough."""
        wanted = _wanted(request)
        return sorted((n for n in self._sizes if self._free(n) >= wanted), key=lambda n: (self._free(n), n))

    async def allocate(self, request: WorkspaceRequest, node: str) -> Mapping[str, Allocation]:
        """Promise the room. Raises NoRoom if another request was faster."""
        if why := _fault(request) or self._lacks(node, _wanted(request)):
            raise NoRoom(f"node {node}: {why}")
        return {claim.name: self._allocation(claim, node) for claim in request.claims}

    async def deallocate(self, uid: str) -> None:
        """The room is free: the node has removed the directory."""
        self._release(uid)

    def _allocation(self, claim: WorkspaceClaim, node: str) -> Allocation:
        size = _bytes(claim)
        self._hold(claim.uid, node, size)
        handle = {
            "workspace": claim.uid,
            "bytes": size,
            "mountPath": claim.parameters.mount_path,
            "variable": _variable(claim.name if claim.generated else claim.claim),
            "generated": claim.generated,
        }
        return Allocation((Device(node, DISK),), handle)

    def _hold(self, uid: str, node: str, size: int) -> None:
        self._release(uid)
        self._held[uid] = (node, size)
        self._promised[node] += size

    def _release(self, uid: str) -> None:
        node, size = self._held.pop(uid, ("", 0))
        if node:
            self._promised[node] -= size

    def _free(self, node: str) -> int:
        return self._sizes.get(node, 0) - self._promised[node] if node in self._sizes else 0

    def _lacks(self, node: str, wanted: int) -> str:
        """What a node lacks, "" if nothing."""
        if node not in self._sizes:
            return "has no disk for workspaces: its node plugin publishes none"
        free = self._free(node)
        if wanted <= free:
            return ""
        return f"{_text(max(free, 0))} of {_text(self._sizes[node])} free for workspaces, {_text(wanted)} wanted"


def _fault(request: WorkspaceRequest) -> str:
    """Why no node will ever do, "" if that is not so."""
    for claim in request.claims:
        most = claim.class_parameters.max_size
        if most is not None and _bytes(claim) > parse(most):
            asked = claim.parameters.size or claim.class_parameters.default_size
            return f"size={asked} of claim {claim.claim} is more than maxSize={most} of class {claim.class_name}"
    by_path: dict[str, str] = {}
    for claim in request.claims:
        path = claim.parameters.mount_path
        if (other := by_path.setdefault(path, claim.claim)) != claim.claim:
            return f"claims {other} and {claim.claim} have the same mountPath={path}: change that of one of them"
    return ""


def _bytes(claim: WorkspaceClaim) -> int:
    return -int(-parse(claim.parameters.size or claim.class_parameters.default_size) // 1)


def _wanted(request: WorkspaceRequest) -> int:
    return sum(map(_bytes, request.claims))


def _text(amount: int) -> str:
    return f"{amount / _GI:.3g}Gi" if amount >= _GI else f"{amount / _MI:.3g}Mi"


def _variable(name: str) -> str:
    """The variable that has the path in containers."""
    return f"WORKSPACE_{re.sub('[^A-Z0-9]', '_', name.upper())}_PATH"
