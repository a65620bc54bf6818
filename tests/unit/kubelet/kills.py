"""A node whose plugin is killed at a step of its life and started again, as often as a test wants.

A step is whatever can be seen from outside of the process: a change on the disk, a driver's hook, a write to the
API server. A life ends before its last step; before the step that follows is after this one, but hooks and writes
that are on their way at the same time may also end it when they are done. All of the plugin is real but its
sockets: the kubelet's messages are handed to the services. Time is virtual; threads are not used, so that a course
is the same each time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tests.support.faults import FaultClient, NumberedCall
from tests.unit.kubelet.lossy import LossyDisk

from parley.kube.client import Client
from parley.simulate.virtual_time import run
from parley_kubelet.claims.orphans import release_orphans
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.hooks import Health, HeldClaim, NodeClaim, NodeDriver, Offer, Prepared
from parley_kubelet.serving.service import DraService
from parley_kubelet.serving.slices import SlicePublisher
from parley_kubelet.state.durable import Disk, Folder

T = TypeVar("T")

Drivers = Callable[[], Sequence[NodeDriver[Any, Any]]]

SETTLED = 20.0
"""Seconds after which a plugin that nobody asks for anything has done what it had to do."""


class Killed(BaseException):
    """The process is gone."""


class Life:
    """What a process does, step by step, until it ends at `last`, the number of a step or what it is (0: never).
    Afterwards it does nothing."""

    def __init__(self, last: int | str = 0) -> None:
        self.steps: list[str] = []
        self.ended = asyncio.Event()
        self.killed = False
        self._last = last

    def step(self, what: str) -> None:
        if self.ended.is_set():
            raise Killed
        self.steps.append(what)
        if self._last in (len(self.steps), what):
            self.killed = True
            self.ended.set()
            raise Killed

    def hook(self, what: str) -> Callable[[NumberedCall], None]:
        """A step for each write of a client."""
        return lambda call: self.step(f"{what} {call}") if call.write else None


class MortalDisk(Disk):
    """The node's disk as a process sees it that may be killed."""

    def __init__(self, life: Life, disk: Disk) -> None:
        self._life = life
        self._disk = disk

    def make(self, folder: Path, mode: int) -> None:
        self._life.step(f"make {folder.name}")
        self._disk.make(folder, mode)

    def create(self, folder: Path, data: bytes, mode: int) -> Path:
        self._life.step(f"create in {folder.name}")
        return self._disk.create(folder, data, mode)

    def flush(self, path: Path) -> None:
        self._life.step(f"flush {path.name}")
        self._disk.flush(path)

    def rename(self, path: Path, target: Path) -> None:
        self._life.step(f"rename to {target.name}")
        self._disk.rename(path, target)

    def remove(self, path: Path) -> None:
        self._life.step(f"remove {path.name}")
        self._disk.remove(path)


class MortalDriver(NodeDriver[Any, Any]):
    """A driver in such a process."""

    def __init__(self, life: Life, driver: NodeDriver[Any, Any]) -> None:
        super().__init__(driver.node, driver.configured)
        self.name, self.handle, self.settings = driver.name, driver.handle, driver.settings
        self._life = life
        self._driver = driver

    def devices(self) -> Sequence[Offer]:
        return self._driver.devices()

    def admit(self, claim: NodeClaim[Any], rivals: Sequence[HeldClaim[Any]]) -> None:
        self._driver.admit(claim, rivals)

    async def prepare(self, claim: NodeClaim[Any]) -> Prepared:
        self._life.step(f"before prepare of {claim.name}")
        prepared = await self._driver.prepare(claim)
        self._life.step(f"after prepare of {claim.name}")
        return prepared

    async def unprepare(self, held: HeldClaim[Any]) -> None:
        self._life.step(f"before unprepare of {held.claim.name}")
        await self._driver.unprepare(held)
        self._life.step(f"after unprepare of {held.claim.name}")

    async def health(self, held: Sequence[HeldClaim[Any]]) -> Sequence[Health]:
        return await self._driver.health(held)


class Plugin:
    """One life of the plugin: what `parley_kubelet.plugin` starts, without sockets. Raises Killed."""

    def __init__(self, machine: "Machine", life: Life) -> None:
        self.life = life
        self._running: set[asyncio.Task[None]] = set()
        client = FaultClient(machine.client, before=life.hook("before"), after=life.hook("after"))
        disk = MortalDisk(life, machine.disk)
        drivers = [MortalDriver(life, driver) for driver in machine.make()]
        self.preparations = {
            driver.name: Preparation(
                driver,
                client,
                state=Folder(machine.state(driver.name), disk=disk),
                cdi=Folder(machine.cdi, mode=0o755, disk=disk),
                boot=f"boot {machine.boot}",
            )
            for driver in drivers
        }
        for preparation in self.preparations.values():
            preparation.restore()
        self.services = {name: DraService(preparation) for name, preparation in self.preparations.items()}
        self._work = [
            Receipts(client, "n1", self.preparations).run(),
            *(release_orphans(preparation, client) for preparation in self.preparations.values()),
            *(SlicePublisher(client, driver=d.name, node="n1", devices=d.devices).run() for d in drivers),
        ]

    def run(self) -> None:
        """Do what nobody has to ask for."""
        for work in self._work:
            self._running.add(asyncio.create_task(work))
        self._work = []

    async def hear(self, call: Awaitable[T]) -> T:
        """The answer to a call. Raises Killed if the process ends before it is given."""
        asking, ending = asyncio.ensure_future(call), asyncio.create_task(self.life.ended.wait())
        await asyncio.wait([asking, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if self.life.ended.is_set():
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            raise Killed
        return asking.result()


class Machine:
    """What outlives a plugin: folders, boots, the API server. `lives` are the last steps of lives, in turn;
    those after them never end."""

    def __init__(self, client: Client, folder: Path, make: Drivers, lives: Sequence[int | str] = ()) -> None:
        self.client = client
        self.make = make
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.cdi = folder / "cdi"
        self.disk = LossyDisk()
        self.boot = 1
        self.lives: list[Life] = []
        self.judge: Callable[[], None] = lambda: None
        """Is called whenever the plugin has died, and raises AssertionError."""
        self.losing: Callable[[LossyDisk], None] | None = None
        """What a death takes from the disk if it is a power cut, from which the machine comes up again."""
        self._ends = list(lives)
        self._plugin: Plugin | None = None

    def state(self, driver: str) -> Path:
        return self.folder / "state" / driver

    @property
    def deaths(self) -> int:
        """How many lives ended at a step."""
        return sum(life.killed for life in self.lives)

    async def plugin(self) -> Plugin:
        """The one that runs; a new one, if the last one died, started as often as it takes."""
        while self._plugin is None or self._plugin.life.ended.is_set():
            await self._buried()
            self.lives.append(life := Life(self._ends.pop(0) if self._ends else 0))
            try:
                self._plugin = Plugin(self, life)
                self._plugin.run()
            except Killed:
                continue
        return self._plugin

    async def _buried(self) -> None:
        died = self._plugin is not None or (bool(self.lives) and self.lives[-1].killed)
        await self.stop()
        self.judge()
        if died and self.losing is not None:
            self.losing(self.disk)
            self.boot += 1
            self.judge()

    async def stop(self) -> None:
        """Nothing of the plugin is left in memory; what it does on its way out reaches nothing."""
        if self._plugin is not None:
            self._plugin.life.ended.set()
            self._plugin = None
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def settle(self) -> None:
        """Until the plugin has nothing to do; it may die meanwhile, and the next one has its turn."""
        while True:
            plugin = await self.plugin()
            try:
                return await plugin.hear(asyncio.sleep(SETTLED))
            except Killed:
                continue

    async def restart(self, *, keep: Callable[[LossyDisk], None] = lambda _: None) -> None:
        """The machine goes down and up; `keep` takes from the disk what a power cut takes."""
        await self.stop()
        keep(self.disk)
        self.boot += 1


class _NoThreads(ThreadPoolExecutor):
    """Does everything at once, and calls `meanwhile` after it."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(1)
        self._meanwhile = meanwhile

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        self._meanwhile()
        return done


def play(story: Callable[[], Awaitable[None]], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Run a story to its end. `meanwhile` is called whenever something was done on the disk."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_NoThreads(meanwhile))
        loop.set_exception_handler(_unless_killed)
        await story()

    run(main())


def _unless_killed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """That parts of a killed process failed is no news."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)
