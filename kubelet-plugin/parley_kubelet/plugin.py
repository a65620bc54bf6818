"""The plugin as a whole: its drivers, each with its own registration, and what they share.

Makes the drivers that the settings name; `serving` serves each, `claims.releases` gives receipts for released
claims. An unexpected error of one driver ends the process, and with it all drivers: its pod is then restarted.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from typing import Any

import structlog

from parley.kube.client import Client
from parley.kube.loop_lag import watched
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.configuration import Configuration, ConfigurationError, settings_of
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.driver.devices import missing_device_nodes
from parley_kubelet.driver.workspaces import WorkspaceNode
from parley_kubelet.hooks import NodeDriver
from parley_kubelet.loading import load_driver
from parley_kubelet.metrics import Liveness, NodeMetrics, loop_lag, served
from parley_kubelet.serving.driver_server import DriverServer
from parley_kubelet.serving.service import call_seconds
from parley_kubelet.settings import DEVICES, WORKSPACES, PluginSettings

log = structlog.get_logger(__name__)


def make_drivers(settings: PluginSettings, configuration: Configuration) -> tuple[NodeDriver[Any, Any], ...]:
    """The drivers that the settings name. Raises ConfigurationError, NameTaken or LoadError."""
    drivers = tuple(_make(settings, configuration, option) for option in settings.drivers)
    names = [driver.name for driver in drivers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(f"--driver: two drivers have the name {twice[0]!r}: leave one of them out")
    if unused := sorted(configuration.drivers.keys() - set(names)):
        raise ConfigurationError(
            f"{settings.config}: drivers[{unused[0]!r}]: no driver of that name is in --driver,"
            f" which has {', '.join(names)}: correct the name or remove it"
        )
    return drivers


def _make(settings: PluginSettings, configuration: Configuration, option: str) -> NodeDriver[Any, Any]:
    if option == DEVICES:
        driver = DeviceNodeDriver(settings.node, configuration, choose_name(settings, configuration))
        driver.discovered()
        return driver
    loaded: type[Any] = WorkspaceNode if option == WORKSPACES else load_driver(option)
    made: NodeDriver[Any, Any] = loaded(
        settings.node, settings_of(configuration, settings.config, loaded.name, loaded.settings)
    )
    return made


def choose_name(settings: PluginSettings, configuration: Configuration) -> str | None:
    """The device driver's name. Raises ConfigurationError if the option and the file differ."""
    ours, theirs = settings.driver, configuration.driver
    if ours and theirs and ours != theirs:
        raise ConfigurationError(
            f"{settings.config}: driver={theirs!r} differs from --driver-name={ours!r}: leave one of them out"
        )
    return ours or theirs


async def run_plugin(
    settings: PluginSettings, configuration: Configuration, client: Client, stop: asyncio.Event
) -> None:
    """Serve until `stop` is set.

    Raises ConfigurationError, LoadError, NameTaken, CheckpointError, SocketRefused, PortRefused or OSError if it
    cannot start.
    """
    drivers = make_drivers(settings, configuration)
    for fault in missing_device_nodes(configuration):
        log.warning("device left out", device=fault)
    calls, lag = call_seconds(), loop_lag()
    servers = [DriverServer(driver, settings, client, calls) for driver in drivers]
    await _run_until(stop, [_restore(servers)])
    if stop.is_set():
        return
    by_name = {one.preparation.driver.name: one for one in servers}
    receipts = Receipts(
        client,
        settings.node,
        {name: one.preparation for name, one in by_name.items()},
        {name: one.publisher.up_to_date for name, one in by_name.items()},
    )
    metrics = NodeMetrics(by_name, receipts, calls, lag)
    open_sockets: list[AsyncExitStack] = []
    try:
        for one in servers:
            open_sockets.append(stack := AsyncExitStack())
            await stack.enter_async_context(one.sockets())
        async with (
            watched(lambda late, _: lag.observe(late)),
            _observed(metrics, Liveness(servers), settings.metrics_port),
        ):
            await _run_until(stop, [*(one.run() for one in servers), receipts.run()])
    finally:
        await asyncio.gather(*(stack.aclose() for stack in open_sockets))


async def _restore(servers: Sequence[DriverServer]) -> None:
    for one in servers:
        await one.restore()


def _observed(
    metrics: NodeMetrics, liveness: Liveness, port: int | None
) -> AbstractAsyncContextManager[int | None]:
    return nullcontext() if port is None else served(metrics, liveness, port)


async def _run_until(stop: asyncio.Event, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines until one ends or `stop` is set; an unexpected error of one ends the plugin."""
    working: list[asyncio.Task[Any]] = [asyncio.create_task(one) for one in work]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*working, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in working:
            if task.done():
                task.result()
    finally:
        for task in (*working, stopping):
            task.cancel()
        await asyncio.gather(*working, stopping, return_exceptions=True)
