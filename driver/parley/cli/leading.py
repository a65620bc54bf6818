"""Shared by processes that lead by a lease: options, election, metrics, a clean end on SIGTERM.

Everything that leads is recreated when the lease is acquired. A process that lost the lease ends with an error,
and whoever started it starts it again. It ends before others may lead, even if a driver ignores its cancellation.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import structlog
import typer

from parley.api.exits import Exit
from parley.api.names import CONTROLLER_LEASE
from parley.cli.endpoints import application, process_figures, served
from parley.cli.failures import address_errors, end
from parley.cli.logs import LogFormat, LogLevel
from parley.control.telemetry.connections import allow_many_files
from parley.control.telemetry.measured import MeasuredClient
from parley.control.telemetry.metrics import Metrics, label
from parley.kube import loop_lag
from parley.kube.client import Client
from parley.kube.credentials import NoConfiguration
from parley.kube.fencing import LeasedClient
from parley.kube.followed_lease import FollowedLease
from parley.kube.http import HttpClient
from parley.kube.informer import Informer
from parley.kube.lease import LeaseElector, LeaseLost, LeaseTimes

log = structlog.get_logger(__name__)

LONG_OUTAGE = 60.0
"""Seconds without news of a kind after which a leader is not ready."""

_LOOKS = 4
"""So many times in a row the lease has to be gone, within the time that a write may take: a process that was
stopped may need a moment to notice."""

_COLLECT_AFTER = (10_000, 10, 10)
"""New objects, and rounds of the younger generation, before garbage is looked for."""

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        help="Default: the pod's service account, else $KUBECONFIG or ~/.kube/config.", show_default=False
    ),
]
Namespace = Annotated[str, typer.Option(help="The namespace of the lease.")]
LeaseName = Annotated[
    str, typer.Option(help="The lease; of all processes with the same lease, one works at a time.")
]
LeaseDuration = Annotated[
    int,
    typer.Option(
        min=5,
        max=3600,
        metavar="SECONDS",
        help="How long others wait for a leader that does not renew its lease. A short lease fails over fast, but "
        "is lost if the API server is slow.",
    ),
]
Identity = Annotated[
    str,
    typer.Option(help="Prefix of the holder's name in the lease. Default: the host name.", show_default=False),
]
OneAtATime = Annotated[
    bool,
    typer.Option(
        "--one-at-a-time",
        help="At most one process at a time has this --identity, as in a container of a pod: the lease of one "
        "that was killed is taken over when its last write has surely ended, after a quarter of --lease-duration.",
    ),
]
FollowLease = Annotated[
    str,
    typer.Option(
        help="Lead only while this lease, of the same namespace, is held on this host: that of the scheduler in "
        "the same pod, which calls no other controller.",
        show_default=False,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Serve /metrics, /healthz and /readyz at this port.", show_default=False),
]
Format = Annotated[LogFormat, typer.Option(help="Format of the log on stderr.")]
Level = Annotated[LogLevel, typer.Option(help="The lowest level that is logged.")]

NAMESPACE = "parley-system"


@dataclass(frozen=True)
class Options:
    """What the command line sets. `identity` is this process's alone; without `metrics_port` nothing is served.

    Processes whose identities begin with `replaced`, unless that is "", had ended before this one began.
    """

    identity: str
    namespace: str = NAMESPACE
    lease_name: str = CONTROLLER_LEASE
    metrics_port: int | None = None
    lease_duration: int = 15
    follow_lease: str = ""
    """Of which another process on this host has to be the holder for this one to lead."""
    replaced: str = ""


class Leader(Protocol):
    """Runs while the lease is held. `ready` is set when it has begun to act; `caches` are its informers."""

    ready: asyncio.Event

    @property
    def caches(self) -> Sequence[Informer[Any]]: ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...


Make = Callable[[Client, Metrics], Leader]
"""Makes a leader that knows nothing yet; its client writes only while the lease is held."""

Beside = Callable[[], AbstractAsyncContextManager[Any]]
"""Something that is there as long as the process is, whether it leads or not."""


def identities(given: str, *, one_at_a_time: bool) -> tuple[str, str]:
    """An identity that no other process has, not even an earlier one of the same pod; and the prefix of the
    identities of processes that this one replaces, "" if that is not known."""
    common = f"{given or socket.gethostname()}_"
    return f"{common}{uuid.uuid4().hex[:8]}", common if one_at_a_time else ""


def run(kubeconfig: Path | None, options: Options, make: Make, beside: Sequence[Beside] = ()) -> None:
    """Serve until SIGTERM or SIGINT; exits with a status other than 0 if that cannot be."""
    _seldom_look_for_garbage()
    allow_many_files()
    try:
        with address_errors():
            asyncio.run(_run(api_client(kubeconfig), options, make, beside))
    except NoConfiguration as error:
        end(error, Exit.NO_ACCESS)
    except LeaseLost as error:
        log.error("lease lost", error=str(error))
        raise typer.Exit(Exit.FAILED) from None


def unready(leading: Sequence[Leader]) -> str:
    """Why this process can't do its work; "" if it can, or while it does not lead."""
    silent = [
        f"{label(cache.resource)}: neither listed nor watched for {outage.seconds:.0f} s: {outage.reason}"
        for leader in leading
        for cache in leader.caches
        if (outage := cache.outage()) is not None and outage.seconds >= LONG_OUTAGE
    ]
    if silent:
        return "; ".join(silent)
    return "" if all(leader.ready.is_set() for leader in leading) else "the first list is not complete"


def _seldom_look_for_garbage() -> None:
    """Modules stay for ever, and nearly all else is freed when its last user goes: to look for circles as often as
    Python does by itself took up to a tenth of the controller's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def api_client(kubeconfig: Path | None) -> HttpClient:
    """A client with the pod's service account, or with a kubeconfig."""
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return HttpClient.in_cluster()
    return HttpClient.from_kubeconfig(str(kubeconfig) if kubeconfig else None)


async def _run(client: HttpClient, options: Options, make: Make, beside: Sequence[Beside]) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    try:
        async with client:
            await serve(client, options, client.fenced, make, beside, _end_by_force)
    except asyncio.CancelledError:
        log.info("stopped", identity=options.identity)


def _end_by_force() -> None:
    """Whatever still runs."""
    log.error(
        "ended by force: the work went on without a lease although it was cancelled",
        remedy="let no driver catch asyncio.CancelledError, or block the event loop",
    )
    sys.stderr.flush()
    os._exit(Exit.FAILED)


async def serve(
    client: Client,
    options: Options,
    fenced: Callable[[Callable[[], bool]], Client],
    make: Make,
    beside: Sequence[Beside] = (),
    overdue: Callable[[], None] = lambda: None,
) -> None:
    """Lead whenever the lease allows it, until cancelled. Raises LeaseLost when another may lead.

    `fenced` makes the client of the leader: it asks before the bytes of a write leave. `beside` is entered first.
    `overdue` is called, in a thread of its own, if the leader's work has not ended and others are about to lead.
    """
    times = LeaseTimes.lasting(options.lease_duration)
    elector = LeaseElector(
        client, options.namespace, options.lease_name, options.identity, times, replaced=options.replaced
    )
    metrics = Metrics(process_figures())
    metrics.leader.of(lambda: {(options.lease_name,): elector.held()})
    leading: list[Leader] = []

    async def lead() -> None:
        leased = LeasedClient(fenced(elector.held), elector)
        try:
            leading.append(make(MeasuredClient(leased, metrics), metrics))
            with _overseen(elector, overdue):
                await leading[0].run()
        finally:
            await leased.close()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(loop_lag.watched(metrics.loop_was_late))
        if options.metrics_port is not None:
            routes = application(lambda: unready(leading), metrics.registry)
            await stack.enter_async_context(served(routes, options.metrics_port))
        for context in beside:
            await stack.enter_async_context(context())
        log.info("started", identity=options.identity, lease=f"{options.namespace}/{options.lease_name}")
        if options.follow_lease:
            followed = FollowedLease(client, options.namespace, options.follow_lease, socket.gethostname())
            await followed.run(elector, lead)
        else:
            await elector.run(lead)


@contextmanager
def _overseen(elector: LeaseElector, overdue: Callable[[], None]) -> Iterator[None]:
    """The block needs the lease. Another thread looks whether it ends without, since it may not give way."""
    ended = threading.Event()

    def watch() -> None:
        gone = 0
        while not ended.wait(elector.times.write_seconds / _LOOKS):
            gone = 0 if elector.held() else gone + 1
            if gone == _LOOKS:
                overdue()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
