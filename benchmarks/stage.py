"""What everything is measured on: a local control plane with fake nodes that have devices, and Parley in it.

Parley's controller is a process of its own with the identity that it has at a user's.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks import workloads
from benchmarks.api import Api
from benchmarks.usage import Process, busy_seconds, cpu_seconds, put_first
from parley.api.resources import CLASSES, RESOURCE_SLICES
from parley.devcluster import Cluster
from parley.devcluster.parley import CONTROLLER, run_parley
from parley.kube.client import Client
from parley.kube.http import HttpClient

_DEPLOY = Path(__file__).parents[1] / "deploy"
_CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")

_SELF = Process("benchmark", "self")

OTHERS = "others"
"""What the machine did beside the benchmark: if it is not small, the numbers of the run say little."""


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

    def __init__(self, cluster: Cluster, api: Api, watcher: Client) -> None:
        self._cluster = cluster
        self._nodes = 0
        self.api = api
        self.watcher = watcher

    def start_parley(self, profile: Path | None) -> None:
        """Start the controller; it writes a profile of all its life into that file when it ends."""
        under = ("-m", "benchmarks.sampled", str(profile)) if profile else ("-m",)
        run_parley(
            self._cluster,
            deploy=_DEPLOY,
            controller=(sys.executable, *under, "parley", "controller"),
        )

    def stop_parley(self) -> None:
        """Ask the controller to end, and wait for it."""
        self._cluster.component(CONTROLLER).stop(limit=60)

    async def grow_to(self, nodes: int) -> None:
        """Add nodes with devices until there are so many."""
        if nodes <= self._nodes:
            return
        added = await asyncio.to_thread(self._cluster.add_fake_nodes, nodes - self._nodes)
        await asyncio.gather(
            *(self.api.request("POST", RESOURCE_SLICES.path(), workloads.resource_slice(node)) for node in added)
        )
        self._nodes = nodes

    async def create_class(self) -> None:
        """The class that all workloads name."""
        await self.api.request("POST", CLASSES.path(), workloads.resource_class())

    @contextmanager
    def running_first(self, wanted: bool) -> Iterator[None]:
        """Inside, what is measured does not wait for other work on the machine, if that is wanted."""
        names = (*_CONTROL_PLANE, CONTROLLER) if wanted else ()
        processes = [*map(self._process, names), *([_SELF] if wanted else [])]
        for process in processes:
            put_first(process, True)
        try:
            yield
        finally:
            for process in processes:
                put_first(process, False)

    def check_alive(self) -> None:
        """Raises RuntimeError, with its last words, if a process has ended that should run."""
        for name in (*_CONTROL_PLANE, CONTROLLER):
            self._process(name)

    @property
    def controller(self) -> Process:
        """Parley's controller."""
        return self._process(CONTROLLER)

    def cpu_seconds(self) -> dict[str, float]:
        """What each process of the cluster, this one and all others of the machine used so far, by name."""
        used = {name: cpu_seconds(self._process(name)) for name in (*_CONTROL_PLANE, CONTROLLER)}
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
        ready = Stage(cluster, api, watcher)
        ready.start_parley(profile)
        await ready.create_class()
        try:
            yield ready
        finally:
            ready.stop_parley()
