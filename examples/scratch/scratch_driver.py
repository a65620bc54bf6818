"""Scratch folders, the controller's part: how much of each node's disk is promised to whom.

How big a disk is, the node's part (scratch_node.py) publishes in a ResourceSlice; a node without a slice has none,
or its plugin is gone.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from parley.api.builtin import ResourceSlice
from parley.api.quantity import parse
from parley.api.resources import RESOURCE_SLICES, Resource
from parley.sdk import Allocation, Answer, Device, Driver, Held, NoParameters, Parameters, Request

MIB = 1024 * 1024


class Wanted(Parameters):
    """Parameters of a claim."""

    size: Annotated[int, Field(alias="sizeMiB", ge=1, strict=True, description="The folder's size.")]


class NoRoom(Exception):
    """Raised when another pod was faster."""


ScratchRequest = Request[Wanted, NoParameters]


class ScratchDriver(Driver[Wanted, NoParameters]):
    """Counts MiB on each node."""

    name = "scratch.example.com"
    parameters = Wanted
    class_parameters = NoParameters
    watches: ClassVar[tuple[Resource[Any], ...]] = (RESOURCE_SLICES,)

    def __init__(self) -> None:
        self._size: dict[str, int] = {}
        self._held: dict[str, tuple[str, int]] = {}

    def observe(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """Learn how big the disks are."""
        slice_ = new or old
        if slice_ is None or slice_.spec.driver != self.name:
            return False
        self._size.pop(slice_.spec.node_name, None)
        for device in new.spec.devices if new else ():
            self._size[slice_.spec.node_name] = int(parse(device.capacity["size"].value) // MIB)
        return True

    def restore(self, held: Held) -> None:
        """Count a folder that exists."""
        if held.data is not None:
            (device,) = held.devices
            self._held[held.uid] = (device.pool, held.data["sizeMiB"])

    def forget(self, uid: str) -> None:
        """Ordinary DRA took the disk, and gave it back."""
        self._held.pop(uid, None)

    def viable(self, request: ScratchRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        """Where there is room for all claims together."""
        wanted = sum(claim.parameters.size for claim in request.claims)
        lacking = {n: f"{self._free(n)} MiB free, {wanted} wanted" for n in nodes if self._free(n) < wanted}
        others = [n for n in sorted(self._size) if n not in nodes and self._free(n) >= wanted][:32]
        answer = Answer(tuple(n for n in nodes if n not in lacking), tuple(others), lacking)
        return {claim.name: answer for claim in request.claims}

    async def allocate(self, request: ScratchRequest, node: str) -> Mapping[str, Allocation]:
        """Promise the room."""
        wanted = sum(claim.parameters.size for claim in request.claims)
        if self._free(node) < wanted:
            raise NoRoom(f"node {node}: {self._free(node)} MiB free, {wanted} wanted")
        for claim in request.claims:
            self._held[claim.uid] = (node, claim.parameters.size)
        return {
            claim.name: Allocation((Device(node, "scratch"),), {"sizeMiB": claim.parameters.size})
            for claim in request.claims
        }

    async def deallocate(self, uid: str) -> None:
        """The room is free."""
        self._held.pop(uid, None)

    def units(self, claim: Any) -> int:
        """The limits of a class are numbers of MiB."""
        size: int = claim.parameters.size
        return size

    def _free(self, node: str) -> int:
        return self._size.get(node, 0) - sum(size for where, size in self._held.values() if where == node)
