"""Scratch folders, the node's part: a folder of its own for each claim, mounted into the claim's containers.

Everything is named by the claim's UID: so each step can be repeated, and nothing has to be remembered. How much
is promised is decided by the controller's part (scratch_driver.py); here it is checked once more, because the node
knows best.
"""

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from parley_kubelet.edits import Edits, Mount
from parley_kubelet.hooks import (
    DeviceCondition,
    DeviceName,
    Health,
    HeldClaim,
    NodeClaim,
    NodeDriver,
    Offer,
    Prepared,
    Refused,
    Settings,
)

DISK = "scratch"
"""The one device of a node: the disk that all folders are on."""


class Scratch(BaseModel):
    """What the controller's part hands over."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    size_mib: Annotated[int, Field(alias="sizeMiB", ge=1)]


class Place(Settings):
    """Where the folders are, and how much may be promised: `drivers.scratch.example.com` in the file."""

    folder: Path = Path("/var/lib/scratch")
    size_mib: Annotated[int, Field(alias="sizeMiB", ge=1)] = 1024


class ScratchNode(NodeDriver[Scratch, Place]):
    """The folders of one node."""

    name = "scratch.example.com"
    handle = Scratch
    settings = Place

    def devices(self) -> Sequence[Offer]:
        """One disk, of the size that the configuration file says."""
        return (Offer(DISK, capacity={"size": f"{self.configured.size_mib}Mi"}),)

    def admit(self, claim: NodeClaim[Scratch], rivals: Sequence[HeldClaim[Scratch]]) -> None:
        """Many claims share the disk, as long as there is room."""
        free = self.configured.size_mib - sum(rival.claim.handle.size_mib for rival in rivals)
        if claim.handle.size_mib > free:
            raise Refused(
                f"sizeMiB={claim.handle.size_mib} is more than the {free} MiB that node {self.node} has left:"
                " wait until a pod with scratch is gone from it"
            )

    async def prepare(self, claim: NodeClaim[Scratch]) -> Prepared:
        """Make the folder, if it is not there; a pod that comes back after a restart finds its files."""
        folder = self._folder(claim)
        _make(folder)  # not in a thread: that would go on if this is cancelled
        return Prepared(
            Edits(
                env={"SCRATCH": "/scratch", "SCRATCH_MIB": str(claim.handle.size_mib)},
                mounts=(Mount(host_path=str(folder), container_path="/scratch"),),
            )
        )

    async def unprepare(self, held: HeldClaim[Scratch]) -> None:
        """Remove the folder with all that is in it."""
        await asyncio.to_thread(_remove, self._folder(held.claim))

    async def health(self, held: Sequence[HeldClaim[Scratch]]) -> Sequence[Health]:  # noqa: ARG002 - all have one disk
        """Whether files can be made."""
        fault = await asyncio.to_thread(_fault, self.configured.folder)
        condition = DeviceCondition.UNHEALTHY if fault else DeviceCondition.HEALTHY
        return (Health(DeviceName(self.node, DISK), condition, fault),)

    def _folder(self, claim: NodeClaim[Scratch]) -> Path:
        return self.configured.folder / claim.uid


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # containers run as any user


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _fault(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if disk.f_flag & os.ST_RDONLY:
        return f"{folder} is read-only"
    return "" if disk.f_bavail else f"{folder} is full"
