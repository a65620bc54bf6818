"""The node part of the workspace driver: a directory for each claim, which stays when its pods have ended.

    ROOT/data/ID     the workspace; ID differs for each allocation, and begins with the claim's UID
    ROOT/new/ID      one that is being created
    ROOT/trash/ID.N  one that is being removed; N is random
    ROOT/generated   the records of generated claims that have one (`generated`)
    ROOT/retained    the directories of ended claims with `reclaim: Retain` (`retained`)
    ROOT/identity    the identity of the disk (`disk_identity`)

Decides what is created and removed on the node. `parley.drivers.workspace` in the controller decides on which node
a workspace is, the controller when its claim ends. A named claim's directory is removed with the claim
(`remove_data`), a generated one's with its pod (`unprepare`). A directory is created in `new` and renamed into its
place, and removing begins with a rename into the trash: so it is there whole or not at all. `remove_data` finds
its unfinished removals again by the name in the trash. The rest of the trash is removed by a thread that `devices`
starts once a minute; two plugins of a rolling update may empty it together. The disk is used only in threads
(`disk_threads`): if it does not answer, only its claims wait.

The usage of a workspace is measured while a pod uses it, and once after that (`usage`). `notices` reports one that
uses more than its size or can't be measured; nothing stops it. If the class says `enforce: Image`, the directory
has a file system of the claim's size, which is what containers get (`images`).
"""

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final

import structlog

from parley.api import reasons
from parley.api.quantity import parse
from parley.api.wording import bytes_text
from parley_kubelet.driver import images, trees
from parley_kubelet.driver.disk_identity import identity
from parley_kubelet.driver.disk_threads import DiskThreads
from parley_kubelet.driver.generated import GENERATED, GeneratedRecords
from parley_kubelet.driver.measuring import Measured
from parley_kubelet.driver.retained import RETAINED, EndedClaim, Retained
from parley_kubelet.driver.usage import DiskUsage
from parley_kubelet.driver.workspace_handle import WorkspaceHandle, WorkspaceSettings
from parley_kubelet.edits import Edits, Mount
from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Notice, Offer, Prepared, Refused

NAME: Final = "workspace.parley.dev"
DISK: Final = "workspaces"
"""The only device of a node: the disk that all workspaces are on."""

IMAGES: Final = "images"
"""The device's attribute that says whether sizes can be enforced."""

IDENTITY: Final = "identity"
"""The device's attribute with the disk's identity."""

DATA, NEW, TRASH = "data", "new", "trash"
_REMOVALS: Final = 2
"""The most directories that `remove_data` removes at a time: the disk is not faster with more. One per namespace,
as for the next two limits: no namespace waits for all the work of another."""

_IMAGES: Final = 4
"""The most file systems that are created at a time."""

_FLUSHES: Final = 4
"""The most flushes at a time."""

CALLS: Final = 8
"""The most other calls to the disk at a time; they take milliseconds if it answers."""

PATIENCE: Final = 10.0
"""Seconds without an answer to one of these calls after which the disk is reported as not answering."""

_TURN: Final = 60.0
"""Seconds for removing a directory before it is the turn of others: its owner may still be filling it."""

_FIRST_TURN: Final = 1.0
"""Seconds for the first turn of each directory in the trash that no call waits for."""

_SHARE: Final = 0.9
"""The share of the file system for workspaces if the settings have no `size`."""

log = structlog.get_logger(__name__)


WorkspaceClaim = NodeClaim[WorkspaceHandle]


class WorkspaceNode(NodeDriver[WorkspaceHandle, WorkspaceSettings]):
    """The workspaces of one node."""

    name = NAME
    handle = WorkspaceHandle
    settings = WorkspaceSettings

    def __init__(self, node: str, settings: WorkspaceSettings) -> None:
        super().__init__(node, settings)
        self._sweeper = threading.Thread()
        self._disk = DiskThreads(CALLS)
        self._images = DiskThreads(_IMAGES)
        self._removals = DiskThreads(_REMOVALS)
        self._flushes = DiskThreads(_FLUSHES)
        self._offers_call: Future[Sequence[Offer]] | None = None
        self._generated = GeneratedRecords(settings.root)
        self._retained = Retained(settings.root)
        self._attached = images.AttachedImages()
        self._following: Future[None] | None = None
        self._usage = DiskUsage(partial(self._folder, DATA))
        self._measured: dict[str, WorkspaceClaim] = {}
        """The claims whose usage is measured, by workspace: in use now, or earlier and not removed."""

    def devices(self) -> Sequence[Offer]:
        """The disk, if it is mounted and answers. Its capacity is without the room of retained directories."""
        if self._offers_call is None or self._offers_call.done():
            self._offers_call = self._disk.start(self._offers)
        try:
            return self._offers_call.result(PATIENCE)
        except TimeoutError:
            log.warning("no disk for workspaces", reason=self.blocked())
            return ()

    def blocked(self) -> str:
        """Reports for how long the disk has not answered; "" while it does."""
        if (seconds := self._disk.oldest()) < PATIENCE:
            return ""
        return (
            f"the disk of {self.configured.root} on node {self.node} has not answered for {seconds:.0f} s: check "
            "the disk, or the file server that it is mounted from"
        )

    def _offers(self) -> Sequence[Offer]:
        if why := self._not_mounted():
            log.warning("no disk for workspaces", reason=why)
            return ()
        trees.restrict(self.configured.root, (DATA, NEW, TRASH, RETAINED))
        self._start_sweeper()
        capacity = {"size": str(max(self._size() - self._retained.bytes(), 0))}
        attributes: dict[str, str | bool] = {IMAGES: not images.lacking()}
        with suppress(OSError):  # the disk is full or read-only: it gets no identity yet
            attributes[IDENTITY] = identity(self.configured.root)
        return (Offer(DISK, attributes, capacity),)

    def _size(self) -> int:
        if self.configured.size is not None:
            return int(parse(self.configured.size))
        with trees.opened(self.configured.root) as root:
            disk = os.statvfs(root)
        return int(disk.f_blocks * disk.f_frsize * _SHARE)

    def admit(self, claim: WorkspaceClaim, rivals: Sequence[HeldClaim[WorkspaceHandle]]) -> None:
        """Admits every claim: the driver in the controller counts what is promised of the disk."""

    async def prepare(self, claim: WorkspaceClaim) -> Prepared:
        """Create the directory, unless an earlier pod's call did."""
        handle, path = claim.handle, self._path(claim.handle.workspace)
        if handle.enforce == "Image":
            return _mount_edits(handle, await self._prepare_image(claim), type_=images.FILE_SYSTEM)
        try:
            await self._disk.run(partial(self._make_directory, claim), handle.workspace)
        except OSError as error:
            raise Refused(
                f"claim {claim}: its directory {path} cannot be created: {error.strerror}: "
                "check whether the disk is full or read-only"
            ) from error
        return _mount_edits(handle, path, "rbind")

    async def _prepare_image(self, claim: WorkspaceClaim) -> Path:
        workspace = claim.handle.workspace
        path = self._path(workspace)
        try:
            if not await self._disk.run(partial(self._has_image, claim), workspace):
                await self._images.run(partial(self._make_image, claim), claim.namespace)
            return await self._disk.run(partial(self._attached.attach, path, workspace), workspace)
        except (OSError, images.ImageError) as error:
            raise Refused(
                f"claim {claim}: its file system {path} cannot be created: {error}: make "
                "room on that disk, or request a smaller size; if it is read-only, repair it"
            ) from error

    async def unprepare(self, held: HeldClaim[WorkspaceHandle]) -> None:
        """Remove a generated claim's directory; a named claim's stays. A view has none."""
        handle = held.claim.handle
        if handle.source:
            return
        if handle.generated:
            await self._disk.run(partial(self._retire, held.claim), handle.workspace)
            self._start_sweeper()
        elif handle.enforce == "Image":
            await self._disk.run(partial(self._detach, held.claim), handle.workspace)

    def keeps_room(self, claim: WorkspaceClaim) -> bool:
        """Whether unprepare retains the directory, which uses room from then on: only for generated claims."""
        return claim.handle.generated and claim.handle.retain > 0

    async def left(self) -> Sequence[WorkspaceClaim]:
        """Generated claims that have a directory."""
        return await self._disk.run(self._generated.all, GENERATED)

    async def remove_data(self, claim: WorkspaceClaim) -> None:
        """Remove or retain the claim's directory. When this returns, nothing is left in the trash either, of this
        or earlier calls. A view has no directory."""
        workspace = claim.handle.workspace
        if claim.handle.source:
            return
        await self._disk.run(partial(self._retire, claim), workspace)
        await self._flushes.run(self._flush_data, claim.namespace)
        if discarded := await self._disk.run(partial(self._trash_names, f"{workspace}."), workspace):
            await self._removals.run(partial(self._remove, discarded, _TURN), claim.namespace)
            log.info("workspace removed", claim=str(claim), workspace=workspace)

    async def notices(self, held: Sequence[HeldClaim[WorkspaceHandle]]) -> Sequence[Notice[WorkspaceHandle]]:
        """Notices for claims that use more than their size, or can't be measured; for all, if the disk does not
        answer."""
        if why := self.blocked():
            return [Notice(one.claim, reasons.DISK_UNRESPONSIVE, why) for one in held]
        handles = [(one.claim.handle, one.claim) for one in held]
        if self._following is None or self._following.done():  # what failed is tried again
            enforced = {handle.workspace for handle, _ in handles if handle.enforce == "Image"}
            self._following = self._disk.start(partial(self._attached.follow, enforced))
        watched = ((one, claim) for one, claim in handles if one.enforce == "Watch" and not one.source)
        in_use = {handle.workspace: claim for handle, claim in watched}
        self._usage.follow({name: claim.namespace for name, claim in in_use.items()})
        followed = self._usage.names()
        self._measured = {name: claim for name, claim in self._measured.items() if name in followed}
        self._measured.update(in_use)
        found = ((claim, self._usage.of(name)) for name, claim in self._measured.items())
        return [notice for claim, used in found if used and (notice := self._notice(claim, used))]

    def _notice(self, claim: WorkspaceClaim, used: Measured) -> Notice[WorkspaceHandle] | None:
        over, size = used.bytes > claim.handle.bytes, bytes_text(claim.handle.bytes)
        if not over and not used.missing:
            return None
        at_least = " at least" if used.missing else ""
        uses = f"it uses {bytes_text(used.bytes)}{at_least} of the disk of node {self.node}"
        if not over:
            return Notice(claim, reasons.SIZE_UNKNOWN, f"{uses}, of its size of {size}; {used.missing}")
        remedy = "remove files, or recreate the claim with the size that it needs"
        words = f"{uses}, more than its size of {size}, and takes that from others: {remedy}"
        return Notice(claim, reasons.OVER_SIZE, words)

    def _not_mounted(self) -> str:
        """The error if the disk is not mounted, by its marker; "" if it is, or no marker is configured."""
        marker = self.configured.root / self.configured.marker
        if not self.configured.marker or marker.exists():
            return ""
        return f"the disk of {self.configured.root} is not mounted, {marker} is missing"

    def _path(self, workspace: str) -> Path:
        return self.configured.root / DATA / workspace

    def _check_mounted(self, claim: WorkspaceClaim) -> None:
        if why := self._not_mounted():
            raise Refused(f"claim {claim}: {why}: mount it, then restart the node plugin")

    def _check_disk(self, claim: WorkspaceClaim) -> None:
        """Refuses to create a directory on another disk than the claim's: its files are on that one."""
        root, disk = self.configured.root, claim.handle.disk
        if disk and disk != identity(root):
            raise Refused(
                f"claim {claim}: its files are not on the disk that {root} on node {self.node} is on now: mount "
                "the one that has them and restart the node plugin, or, if they are lost, delete the claim to "
                "start over"
            )

    def _make_directory(self, claim: WorkspaceClaim) -> None:
        self._check_mounted(claim)
        workspace, owner = claim.handle.workspace, claim.handle.owner or self.configured
        with self._end_folders(claim), self._folder(DATA) as data, self._folder(NEW) as new:
            if not trees.is_directory(data, workspace):
                self._check_disk(claim)
                self._record(claim)
                trees.make(new, workspace, int(owner.mode, 8), (owner.uid, owner.gid))
                trees.move(new, workspace, data, workspace)

    def _has_image(self, claim: WorkspaceClaim) -> bool:
        self._check_mounted(claim)
        if why := images.lacking():
            raise Refused(f"claim {claim}: node {self.node} can't enforce its size (enforce=Image): {why}")
        with self._folder(DATA) as data:
            return trees.is_directory(data, claim.handle.workspace)

    def _make_image(self, claim: WorkspaceClaim) -> None:
        handle = claim.handle
        workspace, owner = handle.workspace, handle.owner or self.configured
        with self._end_folders(claim), self._folder(DATA) as data, self._folder(NEW) as new:
            self._check_disk(claim)
            self._record(claim)
            trees.make(new, workspace, 0o700, (os.getuid(), os.getgid()))
            folder = self.configured.root / NEW / workspace
            images.make(folder, handle.bytes, (owner.uid, owner.gid), int(owner.mode, 8))
            trees.move(new, workspace, data, workspace)

    @contextmanager
    def _end_folders(self, claim: WorkspaceClaim) -> Iterator[None]:
        """Creates the folders that the workspace is moved to when its claim ends, before it can fill the disk."""
        if claim.handle.retain:
            with suppress(OSError):  # the workspace may exist already, and can be used without
                self._retained.make_folder(claim.namespace)
        with self._folder(TRASH):
            yield

    def _record(self, claim: WorkspaceClaim) -> None:
        if claim.handle.generated and not claim.handle.source:
            self._generated.add(claim)

    def _retire(self, claim: WorkspaceClaim) -> None:
        """Move the claim's directory to `retained` or to the trash; trims the retained ones of its namespace."""
        handle = claim.handle
        self._usage.forget(handle.workspace)
        self._detach(claim)  # if the checkpoint was lost, unprepare did not; an attached file would keep its room
        if handle.retain:
            with self._folder(DATA) as data, self._folder(TRASH) as trash:
                self._retained.retain(
                    data, handle.workspace, EndedClaim(claim.namespace, claim.name, handle.bytes)
                )
                self._retained.trim(claim.namespace, handle.retain, trash)
        self._discard(handle.workspace)
        if handle.generated:
            self._generated.remove(handle.workspace)

    def _detach(self, claim: WorkspaceClaim) -> None:
        """Detach the claim's file system, which no container uses any more. Raises OSError."""
        enforced = claim.handle.enforce == "Image"
        if enforced and (why := images.lacking_devices()):
            log.warning("no search for the loop device", claim=str(claim), reason=why)
        elif enforced:
            self._attached.detach(claim.handle.workspace)

    def _discard(self, workspace: str) -> None:
        """Move the directory to the trash, also an unfinished one."""
        with self._folder(TRASH) as trash:
            for kind in (DATA, NEW):
                with self._folder(kind) as source:
                    trees.move_foreign(source, workspace, trash, f"{workspace}.{token_hex(8)}")

    def _flush_data(self) -> None:
        """Flush the names in `data`, so that a removed directory is not back after a power cut: its removal would
        not be requested again. Slow while others write much."""
        with self._folder(DATA) as data:
            os.fsync(data)

    def _folder(self, kind: str) -> AbstractContextManager[int]:
        """Opens the folder data, new or trash. Raises OSError, also if the disk is not mounted."""
        if why := self._not_mounted():
            raise OSError(errno.ENODEV, why)
        return trees.opened(self.configured.root / kind)

    def _trash_names(self, prefix: str = "") -> list[str]:
        """The names in the trash that start with `prefix`."""
        with self._folder(TRASH) as trash:
            return [name for name in os.listdir(trash) if name.startswith(prefix)]  # noqa: PTH208 - no path

    def _remove(self, discarded: Iterable[str], seconds: float) -> None:
        with self._folder(TRASH) as trash:
            for name in discarded:
                trees.remove(trash, name, seconds)

    def _start_sweeper(self) -> None:
        """Start the thread that empties the trash, unless it runs."""
        if not self._sweeper.is_alive():
            self._sweeper = threading.Thread(target=self._empty_trash, name="workspace-trash", daemon=True)
            self._sweeper.start()

    def _empty_trash(self) -> None:
        """Remove the directories in the trash; ones that can't be removed, or take long, do not keep others."""
        known: set[str] = set()
        slow: list[str] = []
        while True:
            new = [name for name in self._list_trash() if name not in known]
            slow += [name for name in new if not self._try_remove(name, _FIRST_TURN)]
            known.update(new)
            if not slow:
                return
            self._try_remove(slow.pop(0), _TURN)

    def _list_trash(self) -> list[str]:
        try:
            return self._trash_names()
        except OSError as error:
            log.warning("trash not read", root=str(self.configured.root), reason=str(error))
            return []

    def _try_remove(self, name: str, seconds: float) -> bool:
        """Try to remove a directory in the trash; False if it takes longer than `seconds`."""
        try:
            self._remove((name,), seconds)
        except OSError as error:
            path = self.configured.root / TRASH / name
            log.warning("not removed yet", path=str(path), reason=str(error))
            return not isinstance(error, TimeoutError)
        return True


def _mount_edits(handle: WorkspaceHandle, source: Path, *options: str, type_: str | None = None) -> Prepared:
    chosen = (*options, "ro" if handle.read_only else "rw", "nosuid", "nodev")
    mount = Mount(host_path=str(source), container_path=handle.mount_path, options=chosen, type=type_)
    return Prepared(Edits(env={handle.variable: handle.mount_path}, mounts=(mount,)))
