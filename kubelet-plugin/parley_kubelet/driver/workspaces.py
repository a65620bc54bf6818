"""The node part of the workspace driver: a directory for each claim, which stays when its pods are gone.

    ROOT/data/ID     the workspace; ID is another one for each allocation, and begins with the claim's UID
    ROOT/new/ID      one that is being made
    ROOT/trash/ID.N  one that is being removed; N is drawn
    ROOT/retained    what claims with `reclaim: Retain` left; `retained` has it

Decides what is made and removed; on which node a workspace is, the controller's part decides
(`parley.drivers.workspace`), and when its claim ends, the controller. A named claim's directory goes with the
claim (`remove_data`), a generated one's with its pod (`unprepare`). A directory is made aside and renamed into its
place, and removing begins with a rename into the trash: so it is there as a whole or not at all. What
`remove_data` did not finish, it finds again by its name. All else in the trash is removed by a thread that
`devices` starts, once a minute; two plugins of a rolling update may empty it together.

What a workspace uses is measured while a pod uses it, and once after that (`usage`). One that uses more than its
size, or can't be measured, is told by `notices`; nothing keeps it from that. Where the class says `enforce: Image`
the directory has a file system of the claim's size in it, which is what containers get (`images`).
"""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Final, Literal
from weakref import WeakValueDictionary

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from parley.api import reasons
from parley.api.quantity import parse
from parley.api.wording import bytes_text
from parley_kubelet.driver import images, trees
from parley_kubelet.driver.measuring import Measured
from parley_kubelet.driver.retained import Ended, Retained
from parley_kubelet.driver.usage import DiskUsage
from parley_kubelet.edits import Edits, Mount
from parley_kubelet.hooks import HeldClaim, NodeClaim, NodeDriver, Notice, Offer, Prepared, Refused, Settings

NAME: Final = "workspace.parley.dev"
DISK: Final = "workspaces"
"""The one device of a node: the disk that all workspaces are on."""

IMAGES: Final = "images"
"""Its attribute: whether sizes can be enforced."""

DATA, NEW, TRASH = "data", "new", "trash"
_REMOVALS: Final = 2
"""So many directories are removed at a time, beside the trash: the disk is not faster with more."""

_TURN: Final = 60.0
"""Seconds for a directory that is removed, then it is the turn of others: its owner may still be filling it."""

_FIRST_TURN: Final = 1.0
"""The same for one in the trash that nobody waits for, until there is none that had no turn yet."""

_SHARE: Final = 0.9
"""Of the file system is for workspaces if the settings do not say how much."""

log = structlog.get_logger(__name__)


_Mode = Annotated[str, Field(pattern="^[0-7]{3,4}$")]
_Id = Annotated[int, Field(ge=0, lt=2**32 - 1)]


class OwnerHandle(BaseModel):
    """To whom a new directory belongs, and its mode, octal."""

    uid: _Id
    gid: _Id
    mode: _Mode


class WorkspaceHandle(BaseModel):
    """What the controller's part hands over. `variable` has the path in containers; without `owner` the node's
    settings decide. `retain`: the directory stays when the claim ends, one of so many of its namespace.
    `enforce`: what keeps it to its bytes. `source`: the UID of the claim whose directory this is a view of."""

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
    if given, `uid` and `gid`. With `marker`, a file of that name has to be in `root`: where it is missing the disk
    is not mounted, and nothing is made or removed.
    """

    root: Annotated[Path, AfterValidator(_root)] = Path("/var/lib/parley/workspaces")
    marker: Annotated[str, Field(max_length=255, pattern=r"^(\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)?$")] = ""
    size: Annotated[str, Field(max_length=32), AfterValidator(_quantity)] | None = None
    mode: _Mode = "0777"
    uid: _Id = 0
    gid: _Id = 0


WorkspaceClaim = NodeClaim[WorkspaceHandle]


class WorkspaceNode(NodeDriver[WorkspaceHandle, WorkspaceSettings]):
    """The workspaces of one node."""

    name = NAME
    handle = WorkspaceHandle
    settings = WorkspaceSettings

    def __init__(self, node: str, settings: WorkspaceSettings) -> None:
        super().__init__(node, settings)
        self._sweeper = threading.Thread()
        self._removals = asyncio.Semaphore(_REMOVALS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Of namespaces, one removal each: none waits for all that another has to remove."""
        self._retained = Retained(settings.root)
        self._usage = DiskUsage(partial(self._folder, DATA))
        self._measured: dict[str, WorkspaceClaim] = {}
        """By workspace: those in use, and those that were and are there still."""

    def devices(self) -> Sequence[Offer]:
        """One disk, if it is mounted. What is retained is nobody's any more, but takes room."""
        if why := self._not_mounted():
            log.warning("no disk for workspaces", reason=why)
            return ()
        self._sweep()
        capacity = {"size": str(max(self._size() - self._retained.bytes(), 0))}
        return (Offer(DISK, {IMAGES: not images.lacking()}, capacity),)

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
        handle = claim.handle
        if why := self._not_mounted():
            raise Refused(f"claim {claim}: {why}: mount it, then restart the node plugin")
        if handle.enforce == "Image":
            return await self._prepare_image(claim)
        try:
            self._make(handle)  # not in a thread: that would go on if this is cancelled
        except OSError as error:
            raise Refused(
                f"claim {claim}: its directory {self._path(handle.workspace)} cannot be created: "
                f"{error.strerror}: "
                "check whether the disk is full or read-only"
            ) from error
        return _mounted(handle, self._path(handle.workspace), "rbind")

    async def _prepare_image(self, claim: WorkspaceClaim) -> Prepared:
        handle = claim.handle
        if why := images.lacking():
            raise Refused(f"claim {claim}: node {self.node} can't enforce its size (enforce=Image): {why}")
        try:
            await self._make_image(handle)
            device = images.attach(self._path(handle.workspace), handle.workspace)
        except (OSError, images.NotMade) as error:
            raise Refused(
                f"claim {claim}: its file system {self._path(handle.workspace)} cannot be created: {error}: make "
                "room on that disk, or request a smaller size; if it is read-only, repair it"
            ) from error
        return _mounted(handle, device, type_=images.FILE_SYSTEM)

    async def unprepare(self, held: HeldClaim[WorkspaceHandle]) -> None:
        """The directory stays, unless the claim goes with its pod. A view has none."""
        if held.claim.handle.source:
            return
        _detach(held.claim)
        if held.claim.handle.generated:
            self._end(held.claim)
            self._sweep()

    async def remove_data(self, claim: WorkspaceClaim) -> None:
        """Remove the directory, or put it by. Nothing of it is left when this returns, also what an earlier call
        did not finish. A view has none."""
        if claim.handle.source:
            return
        workspace = claim.handle.workspace
        self._end(claim)
        if discarded := [name for name in self._discarded() if name.startswith(f"{workspace}.")]:
            async with self._turns.setdefault(claim.namespace, asyncio.Lock()), self._removals:
                await _in_a_thread(partial(self._remove, discarded, _TURN))
            log.info("workspace removed", claim=str(claim), workspace=workspace)

    async def notices(self, held: Sequence[HeldClaim[WorkspaceHandle]]) -> Sequence[Notice[WorkspaceHandle]]:
        """Who uses more than its size, or can't be measured."""
        handles = ((one.claim, one.claim.handle) for one in held)
        watched = (claim for claim, handle in handles if handle.enforce == "Watch" and not handle.source)
        in_use = {claim.handle.workspace: claim for claim in watched}
        self._usage.follow(in_use.keys())
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

    def _make(self, handle: WorkspaceHandle) -> None:
        workspace, owner = handle.workspace, handle.owner or self.configured
        with self._folder(TRASH), self._folder(DATA) as data, self._folder(NEW) as new:  # a full disk makes none
            if not trees.is_directory(data, workspace):
                trees.make(new, workspace, int(owner.mode, 8), (owner.uid, owner.gid))
                trees.move(new, workspace, data, workspace)

    async def _make_image(self, handle: WorkspaceHandle) -> None:
        workspace, owner = handle.workspace, handle.owner or self.configured
        with self._folder(TRASH), self._folder(DATA) as data, self._folder(NEW) as new:
            if not trees.is_directory(data, workspace):
                trees.make(new, workspace, 0o700, (os.getuid(), os.getgid()))
                folder = self.configured.root / NEW / workspace
                await images.make(folder, handle.bytes, (owner.uid, owner.gid), int(owner.mode, 8))
                trees.move(new, workspace, data, workspace)

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

    def _discard(self, workspace: str) -> None:
        """Move the directory to the trash, also one that was only being made."""
        with self._folder(TRASH) as trash:
            for kind in (DATA, NEW):
                with self._folder(kind) as source:
                    trees.move(source, workspace, trash, f"{workspace}.{token_hex(8)}")

    def _folder(self, kind: str) -> AbstractContextManager[int]:
        """That of data, new or trash, open. Raises OSError, also if the disk is not mounted."""
        if why := self._not_mounted():
            raise OSError(errno.ENODEV, why)
        return trees.opened(self.configured.root / kind)

    def _discarded(self) -> list[str]:
        """The names of what is in the trash."""
        with self._folder(TRASH) as trash:
            return os.listdir(trash)  # noqa: PTH208 - a descriptor has no path

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


async def _in_a_thread(work: Callable[[], None]) -> None:
    """Do it in a thread of its own, not in one of those that record the kubelet's calls: it may take minutes. The
    process may end meanwhile."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def report(error: OSError | None) -> None:
        if not done.done() and error is not None:
            done.set_exception(error)
        elif not done.done():
            done.set_result(None)

    def run() -> None:
        failure: OSError | None = None
        try:
            work()
        except OSError as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(report, failure)

    threading.Thread(target=run, name="workspace-removal", daemon=True).start()
    await done
