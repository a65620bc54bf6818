"""What everything is measured on: a local control plane with fake nodes that have devices, and Parley in it.

Parley's controller, and the standalone driver of it, are processes of their own with the identities that they have
at a user's.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp

from benchmarks import objects
from benchmarks.accounts import driver_account, flow_schema
from benchmarks.api import Api
from benchmarks.schedulers import SecondScheduler
from benchmarks.usage import Process, busy_seconds, cpu_seconds, put_first
from parley.api.resources import CLASSES, RESOURCE_SLICES
from parley.kube.client import Client
from parley.kube.http import HttpClient
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER, NAMESPACE, run_parley
from parley_devcluster.second_scheduler import free_address, grant

DRIVER = "bench-driver"
"""The standalone driver: the process, and its account."""

_STANDBY = "parley-standby"

OTHERS = "others"
"""What the machine did beside the benchmark: if it is not small, the numbers of the run say little."""

ALWAYS, WHEN_WAITING = "Always", "WhenWaiting"
"""Which pods get a PodScheduling."""

_AS_SHIPPED = ("--log-format", "json")
"""Log lines, of which there are two a pod, as the shipped manifest has them."""

_DEPLOY = Path(__file__).parents[1] / "deploy"
_CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
_FLOW_SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
_SELF = Process("benchmark", "self")
_POLL = 0.1
_REST = 0.05
"""Of a core."""

_LIMIT = 300.0


@contextmanager
def control_plane() -> Iterator[Cluster]:
    """A cluster without nodes, in a folder of its own that goes with it."""
    with (
        tempfile.TemporaryDirectory(prefix="parley-bench-") as folder,
        Cluster.start(Path(folder), node_lifecycle=False, report=_say) as cluster,
    ):
        yield cluster


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Stage:
    """The cluster, and what the benchmark does to it between the measurements."""

    def __init__(self, cluster: Cluster, api: Api, watcher: Client, profile: Path | None) -> None:
        self._cluster = cluster
        self._profile = profile
        self._running: tuple[str, ...] = _CONTROL_PLANE
        self.nodes: list[str] = []
        self.api = api
        self.watcher = watcher
        self.extender = free_address()
        """Where the controller answers the second scheduler."""
        self._second = SecondScheduler(cluster, api, _DEPLOY, self.extender)
        self._published = ALWAYS
        self._checkout: Path | None = None

    async def equip(self) -> None:
        """Parley runs, all classes are there, and the standalone driver has an account."""
        controller = (*self._python(self._profile), "parley", "controller")
        options = (*_AS_SHIPPED, "--extender-address", self.extender)
        run = partial(
            run_parley, self._cluster, deploy=_DEPLOY, controller=controller, controller_arguments=options
        )
        await asyncio.to_thread(run)
        await asyncio.to_thread(grant, self._cluster, _DEPLOY)
        self._running = (*self._running, CONTROLLER)
        for account in (CONTROLLER, DRIVER):
            await self.api.request("POST", _FLOW_SCHEMAS, flow_schema(NAMESPACE, account))
        for path, body in driver_account(NAMESPACE, DRIVER):
            await self.api.request("POST", path, body)
        for ask in objects.ASKS:
            await self.api.request("POST", CLASSES.path(), objects.resource_class(ask))

    def _python(self, profile: Path | None) -> Sequence[str]:
        """How a module is started; it writes a profile of all its life into that file when it ends."""
        return (sys.executable, *(("-m", "benchmarks.sampled", str(profile)) if profile else ("-m",)))

    async def start_driver(self) -> None:
        """The standalone driver runs, and answers."""
        kubeconfig = self._cluster.kubeconfig_for_service_account(NAMESPACE, DRIVER)
        profile = self._profile.with_suffix(f".driver{self._profile.suffix}") if self._profile else None
        socket = self._cluster.directory / "driver.sock"
        program = [*self._python(profile), "benchmarks.standalone", str(kubeconfig), str(socket)]
        await asyncio.to_thread(self._cluster.add_program, DRIVER, program, health=str(socket))
        self._running = (*self._running, DRIVER)

    def stop_driver(self) -> None:
        """It is not needed any more."""
        self._running = tuple(name for name in self._running if name != DRIVER)
        self._cluster.component(DRIVER).stop(limit=60)

    def stop_parley(self) -> None:
        """Ask the controller to end, and wait for it."""
        self._running = tuple(name for name in self._running if name != CONTROLLER)
        self._cluster.component(CONTROLLER).stop(limit=60)

    def start_parley(self) -> None:
        """A new controller, after `stop_parley`."""
        self._cluster.component(CONTROLLER).start()
        self._running = (*self._running, CONTROLLER)

    def start_standby(self) -> None:
        """A second controller, which leads when the first one's lease has ended."""
        self._cluster.add_program(_STANDBY, self._controller())

    def kill_parley(self) -> None:
        """The controller ends at once, and its lease stays."""
        self._running = tuple(name for name in self._running if name != CONTROLLER)
        self._cluster.component(CONTROLLER).kill()

    async def use(self, scheduler: str, pod_schedulings: str) -> None:
        """Have that scheduler, of those in `schedulers`, and a controller that publishes these PodSchedulings."""
        if pod_schedulings != self._published:
            self._published = pod_schedulings
            await asyncio.to_thread(self._replace_parley)
        before = self._second.component
        await self._second.use(scheduler)
        running = tuple(name for name in self._running if name != before)
        self._running = (*running, *filter(None, [self._second.component]))
        await self.until(self._second.leads, "the scheduler leads")
        await self.until(self.answers, "the controller answers schedulers")

    async def take(self, checkout: Path | None) -> None:
        """Have the controller of another checkout, None for this one. `use` waits until it answers."""
        if checkout != self._checkout:
            self._checkout = checkout
            await asyncio.to_thread(self._replace_parley)

    def _replace_parley(self) -> None:
        self._cluster.component(CONTROLLER).stop(60)
        options = ("--extender-address", self.extender, "--pod-schedulings", self._published)
        environment = {"PYTHONPATH": str(self._checkout / "driver")} if self._checkout else {}
        self._cluster.add_program(CONTROLLER, [*self._controller(), *options], environment=environment)

    def _controller(self) -> Sequence[str]:
        account = self._cluster.kubeconfig_for_service_account(NAMESPACE, CONTROLLER)
        return (*self._python(self._profile), "parley", "controller", "--kubeconfig", str(account), *_AS_SHIPPED)

    async def answers(self) -> bool:
        """Whether the controller is ready for a scheduler's calls."""
        try:
            async with aiohttp.request("GET", f"http://{self.extender}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def restart_parley(self) -> None:
        """A new controller in the place of the one that runs."""
        component = self._cluster.component(CONTROLLER)
        await asyncio.to_thread(component.stop, 60)
        await asyncio.to_thread(component.start)

    async def grow_to(self, nodes: int, devices: int = objects.DEVICES_PER_NODE) -> None:
        """Add nodes with so many devices until there are so many nodes."""
        if nodes <= len(self.nodes):
            return
        added = await asyncio.to_thread(self._cluster.add_fake_nodes, nodes - len(self.nodes))
        slices = (objects.resource_slice(node, devices) for node in added)
        await self.api.create_all(RESOURCE_SLICES.path(), slices)
        self.nodes += added

    @contextmanager
    def running_first(self, wanted: bool) -> Iterator[None]:
        """Inside, what is measured does not wait for other work on the machine, if that is wanted."""
        processes = [*map(self._process, self._running), _SELF] if wanted else []
        for process in processes:
            put_first(process, True)
        try:
            yield
        finally:
            for process in processes:
                with suppress(FileNotFoundError):  # it has ended
                    put_first(process, False)

    async def until(self, holds: Callable[[], Awaitable[bool]], goal: str, limit: float = _LIMIT) -> None:
        """Raises TimeoutError, which names the goal, if that does not hold within so many seconds."""
        deadline = time.monotonic() + limit
        while not await holds():
            self.check_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {limit:.0f} s: {goal}")
            await asyncio.sleep(_POLL)

    async def at_rest(self, seconds: float = 3.0) -> None:
        """Return when the controller has had next to nothing to do for so long. Raises TimeoutError."""

        async def rests() -> bool:
            before = cpu_seconds(self.controller)
            await asyncio.sleep(seconds)
            return cpu_seconds(self.controller) - before < _REST * seconds

        await self.until(rests, "the controller is at rest")

    def check_alive(self) -> None:
        """Raises RuntimeError, with its last words, if a process has ended that should run."""
        for name in self._running:
            self._process(name)

    @property
    def controller(self) -> Process:
        """Parley's controller."""
        return self._process(CONTROLLER)

    def cpu_seconds(self) -> dict[str, float]:
        """What each process of the cluster, this one and all others of the machine used so far, by name."""
        used = {name: cpu_seconds(self._process(name)) for name in self._running}
        used["benchmark"] = cpu_seconds(_SELF)
        return {**used, OTHERS: busy_seconds() - sum(used.values())}

    def _process(self, name: str) -> Process:
        pid = self._cluster.component(name).pid
        if pid is None:
            raise RuntimeError(f"{name} has ended; its last words:\n{self._cluster.component(name).last_lines()}")
        return Process(name, str(pid))


@asynccontextmanager
async def stage(cluster: Cluster, profile: Path | None) -> AsyncIterator[Stage]:
    """Parley running in the cluster, and stopped at the end."""
    account = cluster.kubeconfig_for("benchmark", ["system:masters"])
    async with Api(account) as api, HttpClient.from_kubeconfig(str(account)) as watcher:
        ready = Stage(cluster, api, watcher, profile)
        await ready.equip()
        try:
            yield ready
        finally:
            ready.stop_parley()
