"""A run of the conformance kit: starts an API server and the driver's process, and runs the checks."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from parley.api.resources import NODES
from parley.conformance.checks import CHECKS
from parley.conformance.process import CommandDriver
from parley.conformance.results import Check, CheckResult
from parley.conformance.running import prepare, run
from parley.conformance.serving import served, write_kubeconfig
from parley.conformance.stage import Patience, Scene
from parley.conformance.subject import Subject
from parley.conformance.traffic import DriverTraffic
from parley.kube.client import Client
from parley.kube.http import HttpClient
from parley.kube.memory import MemoryServer


@dataclass(frozen=True)
class ConformanceSettings:
    """`start` is the driver's shell command, "" if it is started otherwise; `checks` are those to run (all if
    empty), except `skip`. `admin` is a client of the cluster, one in memory if it is None, and `driver` one of the
    same cluster with the driver's account."""

    start: str = ""
    port: int = 0
    patience: Patience = field(default_factory=Patience)
    checks: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    admin: HttpClient | None = None
    driver: HttpClient | None = None

    def chosen(self) -> Sequence[Check]:
        """The checks to run; the first one always is."""
        wanted = {CHECKS[0].name, *self.checks}
        return [check for check in CHECKS if not self.checks or check.name in wanted]


class NoSuchCheck(Exception):
    """Raised for an unknown check; the message lists the known ones."""


def verify(names: Sequence[str]) -> None:
    """Check the names of checks. Raises NoSuchCheck."""
    known = [check.name for check in CHECKS]
    if unknown := [name for name in names if name not in known]:
        raise NoSuchCheck(f"there is no check {unknown[0]!r}: choose among {', '.join(known)}")


@dataclass(frozen=True)
class RunningKit:
    """A running kit: the API server's address, its kubeconfig, and the driver's process if the kit started it."""

    scene: Scene
    server: str
    kubeconfig: Path
    process: CommandDriver | None


@asynccontextmanager
async def running_kit(subject: Subject, settings: ConformanceSettings) -> AsyncIterator[RunningKit]:
    """Runs the API server and the driver within the block."""
    async with AsyncExitStack() as stack:
        client, driver_client = await _clients(stack, settings)
        traffic = DriverTraffic(driver_client)
        server = await stack.enter_async_context(served(traffic, settings.port))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="parley-conformance-")))
        write_kubeconfig(folder / "kubeconfig", server)
        process = _process(settings, server, folder)
        subject = await _with_nodes(subject, settings, client)
        await prepare(client, subject)
        if process is not None:
            await process.start()
            stack.push_async_callback(process.kill)
        in_memory = settings.admin is None
        suffix = "" if in_memory else f"-{secrets.token_hex(2)}"  # deleting a namespace takes time
        scene = Scene(client, traffic, subject, process, settings.patience, in_memory, suffix)
        yield RunningKit(scene, server, folder / "kubeconfig", process)


async def _clients(stack: AsyncExitStack, settings: ConformanceSettings) -> tuple[Client, Client]:
    """The clients of the controller and of the driver."""
    if settings.admin is None:
        memory = MemoryServer()
        return memory.client(), memory.client("driver")
    admin = await stack.enter_async_context(settings.admin)
    return admin, await stack.enter_async_context(settings.driver) if settings.driver is not None else admin


async def _with_nodes(subject: Subject, settings: ConformanceSettings, client: Client) -> Subject:
    """The subject with the nodes that the checks ask about. Raises BadSubject."""
    if settings.admin is None:
        return subject.in_memory()
    nodes = (await client.list(NODES)).items
    return subject.on_cluster(sorted(node.metadata.name for node in nodes))


def _process(settings: ConformanceSettings, server: str, folder: Path) -> CommandDriver | None:
    if not settings.start:
        return None
    environment = {"KUBECONFIG": str(folder / "kubeconfig"), "API_SERVER": server}
    return CommandDriver(settings.start, environment, folder / "output")


async def results(
    subject: Subject,
    settings: ConformanceSettings,
    on_start: Callable[[RunningKit], None],
    on_result: Callable[[CheckResult], None],
) -> list[CheckResult]:
    """All results. `on_start` is called when the driver may connect, `on_result` with each result."""
    found: list[CheckResult] = []
    async with running_kit(subject, settings) as kit:
        on_start(kit)
        async for result in run(kit.scene, settings.chosen(), settings.skip):
            found.append(result)
            on_result(result)
            await asyncio.sleep(0)
    return found
