"""The node part of the workspace driver: a directory for each claim, which stays when its pods are gone.

    ROOT/data/ID     the workspace; ID is another one for each allocation, and begins with the claim's UID
    ROOT/new/ID      one that is being made
    ROOT/trash/ID.N  one that is being removed; N is drawn
    ROOT/generated   which generated claims have one; `generated` has it
    ROOT/retained    what claims with `reclaim: Retain` left; `retained` has it
    ROOT/identity    which disk it is; `disk_identity` has it

Decides what is made and removed; on which node a workspace is, the controller's part decides
(`parley.drivers.workspace`), and when its claim ends, the controller. A named claim's directory goes with the
claim (`remove_data`), a generated one's with its pod (`unprepare`). A directory is made aside and renamed into its
place, and removing begins with a rename into the trash: so it is there as a whole or not at all. What
`remove_data` did not finish, it finds again by its name. All else in the trash is removed by a thread that
`devices` starts, once a minute; two plugins of a rolling update may empty it together. The disk is used in threads
alone (`disk_threads`): where it does not answer, nothing but its claims waits.

What a workspace uses is measured while a pod uses it, and once after that (`usage`). One that uses more than its
size, or can't be measured, is told by `notices`; nothing keeps it from that. Where the class says `enforce: Image`
the directory has a file system of the claim's size in it, which is what containers get (`images`).
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
from parley_kubelet.driver.retained import Ended, Retained
from parley_kubelet.driver.usage import DiskUsage
from parley_kubelet.driver.workspace_handle import WorkspaceHandle, WorkspaceSettings
from parley_kubelet.edits import Edits, Mount
from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Notice, Offer, Prepared, Refused

NAME: Final = "workspace.parley.dev"
DISK: Final = "workspaces"
"""The one device of a node: the disk that all workspaces are on."""

IMAGES: Final = "images"
"""Its attribute: whether sizes can be enforced."""

IDENTITY: Final = "identity"
"""The same: which disk it is."""

DATA, NEW, TRASH = "data", "new", "trash"
_REMOVALS: Final = 2
"""So many directories are removed at a time, beside the trash: the disk is not faster with more. Of a namespace
one, as of the next two: none waits for all that another has to be done."""

_IMAGES: Final = 4
"""So many file systems are made at a time."""

_FLUSHES: Final = 4
"""So many flushes are under way at a time."""

CALLS: Final = 8
"""So many other calls wait for the disk at a time; when it answers, they take milliseconds."""

PATIENCE: Final = 10.0
"""Seconds after which a disk that has not answered one of these calls is said not to answer."""

_TURN: Final = 60.0
"""Seconds for a directory that is removed, then it is the turn of others: its owner may still be filling it."""

_FIRST_TURN: Final = 1.0
"""The same for one in the trash that nobody waits for, until there is none that had no turn yet."""

_SHARE: Final = 0.9
"""Of the file system is for workspaces if the settings do not say how much."""

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
        self._asked: Future[Sequence[Offer]] | None = None
        self._generated = GeneratedRecords(settings.root)
        self._retained = Retained(settings.root)
        self._usage = DiskUsage(partial(self._folder, DATA))
        self._measured: dict[str, WorkspaceClaim] = {}
        """By workspace: those in use, and those that were and are there still."""

    def devices(self) -> Sequence[Offer]:
        """One disk, if it is mounted and answers. What is retained is nobody's any more, but takes room."""
        if self._asked is None or self._asked.done():
            self._asked = self._disk.start(self._offers)
        try:
            return self._asked.result(PATIENCE)
        except TimeoutError:
            log.warning("no disk for workspaces", reason=self.blocked())
            return ()

    def blocked(self) -> str:
        """That the disk does not answer, and since when; "" while it does."""
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
        self._sweep()
        capacity = {"size": str(max(self._size() - self._retained.bytes(), 0))}
        attributes: dict[str, str | bool] = {IMAGES: not images.lacking()}
        with suppress(OSError):  # full or read-only: it has none yet
            attributes[IDENTITY] = identity(self.configured.root)
        return (Offer(DISK, attributes, capacity),)

    def _size(self) -> int:
        if self.configured.size is not None:
            return int(parse(self.configured.size))
        with trees.opened(self.configured.root) as root:
            disk = os.statvfs(root)
        return int(disk.f_blocks * disk.f_frsize * _SHARE)

    def admit(self, claim: WorkspaceClaim, rivals: Sequence[HeldClaim[WorkspaceHandle]]) -> None:
        """All workspaces share the disk; how much of it is promised the controller's part counts."""

    async def prepare(self, claim: WorkspaceClaim) -> Prepared:
        """Make the directory, unless a pod before this one did."""
        handle, path = claim.handle, self._path(claim.handle.workspace)
        if handle.enforce == "Image":
            return _mounted(handle, await self._prepare_image(claim), type_=images.FILE_SYSTEM)
        try:
            await self._disk.run(partial(self._make, claim), handle.workspace)
        except OSError as error:
            raise Refused(
                f"claim {claim}: its directory {path} cannot be created: {error.strerror}: "
                "check whether the disk is full or read-only"
            ) from error
        return _mounted(handle, path, "rbind")

    async def _prepare_image(self, claim: WorkspaceClaim) -> Path:
        workspace = claim.handle.workspace
        path = self._path(workspace)
        try:
            if not await self._disk.run(partial(self._has_image, claim), workspace):
                await self._images.run(partial(self._make_image, claim), claim.namespace)
            return await self._disk.run(partial(images.attach, path, workspace), workspace)
        except (OSError, images.NotMade) as error:
            raise Refused(
                f"claim {claim}: its file system {path} cannot be created: {error}: make "
                "room on that disk, or request a smaller size; if it is read-only, repair it"
            ) from error

    async def unprepare(self, held: HeldClaim[WorkspaceHandle]) -> None:
        """The directory stays, unless the claim goes with its pod. A view has none."""
        handle = held.claim.handle
        if handle.source:
            return
        if handle.generated:
            await self._disk.run(partial(self._end, held.claim), handle.workspace)
            self._sweep()
        elif handle.enforce == "Image":
            await self._disk.run(partial(_detach, held.claim), handle.workspace)

    def keeps_room(self, claim: WorkspaceClaim) -> bool:
        """What a generated claim retained takes room from then on; of a named one its removal is waited for."""
        return claim.handle.generated and claim.handle.retain > 0

    async def left(self) -> Sequence[WorkspaceClaim]:
        """Generated claims that have a directory."""
        return await self._disk.run(self._generated.all, GENERATED)

    async def remove_data(self, claim: WorkspaceClaim) -> None:
        """Remove the directory, or put it by. Nothing of it is left when this returns, also what an earlier call
        did not finish. A view has none."""
        workspace = claim.handle.workspace
        if claim.handle.source:
            return
        await self._disk.run(partial(self._end, claim), workspace)
        await self._flushes.run(self._flush, claim.namespace)
        if discarded := await self._disk.run(partial(self._discarded, f"{workspace}."), workspace):
            await self._removals.run(partial(self._remove, discarded, _TURN), claim.namespace)
            log.info("workspace removed", claim=str(claim), workspace=workspace)

    async def notices(self, held: Sequence[HeldClaim[WorkspaceHandle]]) -> Sequence[Notice[WorkspaceHandle]]:
        """Who uses more than its size, or can't be measured; everybody, if the disk does not answer."""
        if why := self.blocked():
            return [Notice(one.claim, reasons.DISK_UNRESPONSIVE, why) for one in held]
        handles = ((one.claim, one.claim.handle) for one in held)
        watched = (claim for claim, handle in handles if handle.enforce == "Watch" and not handle.source)
        in_use = {claim.handle.workspace: claim for claim in watched}
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
        """Why the disk is not mounted, by its marker; "" if it is, or has none."""
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
        """A directory that is not here may be on the disk where the claim was allocated."""
        root, disk = self.configured.root, claim.handle.disk
        if disk and disk != identity(root):
            raise Refused(
                f"claim {claim}: its files are not on the disk that {root} on node {self.node} is on now: mount "
                "the one that has them and restart the node plugin, or, if they are lost, delete the claim to "
                "start over"
            )

    def _make(self, claim: WorkspaceClaim) -> None:
        self._check_mounted(claim)
        workspace, owner = claim.handle.workspace, claim.handle.owner or self.configured
        with self._end_places(claim), self._folder(DATA) as data, self._folder(NEW) as new:
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
        with self._end_places(claim), self._folder(DATA) as data, self._folder(NEW) as new:
            self._check_disk(claim)
            self._record(claim)
            trees.make(new, workspace, 0o700, (os.getuid(), os.getgid()))
            folder = self.configured.root / NEW / workspace
            images.make(folder, handle.bytes, (owner.uid, owner.gid), int(owner.mode, 8))
            trees.move(new, workspace, data, workspace)

    @contextmanager
    def _end_places(self, claim: WorkspaceClaim) -> Iterator[None]:
        """Where the workspace goes when its claim ends: a full disk makes none."""
        if claim.handle.retain:
            with suppress(OSError):  # it is there, perhaps, and can be used
                self._retained.make_place(claim.namespace)
        with self._folder(TRASH):
            yield

    def _record(self, claim: WorkspaceClaim) -> None:
        if claim.handle.generated and not claim.handle.source:
            self._generated.add(claim)

    def _end(self, claim: WorkspaceClaim) -> None:
        """The claim has no directory any more: it is retained, or in the trash, and so are others in its place."""
        handle = claim.handle
        self._usage.forget(handle.workspace)
        _detach(claim)  # again, where the checkpoint was lost: else the file keeps its room
        if handle.retain:
            with self._folder(DATA) as data, self._folder(TRASH) as trash:
                self._retained.put_by(data, handle.workspace, Ended(claim.namespace, claim.name, handle.bytes))
                self._retained.trim(claim.namespace, handle.retain, trash)
        self._discard(handle.workspace)
        if handle.generated:
            self._generated.remove(handle.workspace)

    def _discard(self, workspace: str) -> None:
        """Move the directory to the trash, also one that was only being made."""
        with self._folder(TRASH) as trash:
            for kind in (DATA, NEW):
                with self._folder(kind) as source:
                    trees.move_away(source, workspace, trash, f"{workspace}.{token_hex(8)}")

    def _flush(self) -> None:
        """So that no power cut brings back what is in `data` no more: nobody would ask for it again. Takes long
        where others write much."""
        with self._folder(DATA) as data:
            os.fsync(data)

    def _folder(self, kind: str) -> AbstractContextManager[int]:
        """That of data, new or trash, open. Raises OSError, also if the disk is not mounted."""
        if why := self._not_mounted():
            raise OSError(errno.ENODEV, why)
        return trees.opened(self.configured.root / kind)

    def _discarded(self, prefix: str = "") -> list[str]:
        """The names of what is in the trash."""
        with self._folder(TRASH) as trash:
            names = os.listdir(trash)  # noqa: PTH208 - a descriptor has no path
        return [name for name in names if name.startswith(prefix)]

    def _remove(self, discarded: Iterable[str], seconds: float) -> None:
        with self._folder(TRASH) as trash:
            for name in discarded:
                trees.remove(trash, name, seconds)

    def _sweep(self) -> None:
        """Have the trash emptied, in a thread of its own."""
        if not self._sweeper.is_alive():
            self._sweeper = threading.Thread(target=self._empty_trash, name="workspace-trash", daemon=True)
            self._sweeper.start()

    def _empty_trash(self) -> None:
        """Remove what can be removed; what cannot, or takes long, keeps nothing else from it."""
        known: set[str] = set()
        slow: list[str] = []
        while True:
            new = [name for name in self._listed() if name not in known]
            slow += [name for name in new if not self._has_ended(name, _FIRST_TURN)]
            known.update(new)
            if not slow:
                return
            self._has_ended(slow.pop(0), _TURN)

    def _listed(self) -> list[str]:
        try:
            return self._discarded()
        except OSError as error:
            log.warning("trash not read", root=str(self.configured.root), reason=str(error))
            return []

    def _has_ended(self, name: str, seconds: float) -> bool:
        """Remove it; False if it takes longer."""
        try:
            self._remove((name,), seconds)
        except OSError as error:
            path = self.configured.root / TRASH / name
            log.warning("not removed yet", path=str(path), reason=str(error))
            return not isinstance(error, TimeoutError)
        return True


def _detach(claim: WorkspaceClaim) -> None:
    """No container has the claim's file system any more. Raises OSError."""
    if claim.handle.enforce != "Image":
        return
    if images.lacking_devices():
        log.warning(
            "no search for the loop device", claim=str(claim), reason="the plugin is not privileged any more"
        )
        return
    images.detach(claim.handle.workspace)


def _mounted(handle: WorkspaceHandle, source: Path, *options: str, type_: str | None = None) -> Prepared:
    chosen = (*options, "ro" if handle.read_only else "rw", "nosuid", "nodev")
    mount = Mount(host_path=str(source), container_path=handle.mount_path, options=chosen, type=type_)
    return Prepared(Edits(env={handle.variable: handle.mount_path}, mounts=(mount,)))
