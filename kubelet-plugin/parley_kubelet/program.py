"""What the program does: settings, logging, signals, and one sentence where it cannot start."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from parley.kube.credentials import NoConfiguration
from parley.kube.http import HttpClient, HttpOptions
from parley_kubelet.configuration import ConfigurationError, load
from parley_kubelet.driver.devices import NameTaken
from parley_kubelet.loading import LoadError
from parley_kubelet.plugin import run_plugin
from parley_kubelet.serving.sockets import SocketRefused
from parley_kubelet.settings import DOCTOR, PluginSettings, parse_arguments
from parley_kubelet.state.checkpoint import CheckpointError

_THREADS = 8
_REQUESTS = HttpOptions(user_agent="parley-kubelet")

_CANNOT_START = (
    ConfigurationError,
    LoadError,
    NameTaken,
    CheckpointError,
    SocketRefused,
    NoConfiguration,
    OSError,
)


def run(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    settings = parse_arguments(arguments, os.environ)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    if settings.command == DOCTOR:
        return asyncio.run(_diagnose(settings))
    try:
        asyncio.run(_serve(settings))
    except _CANNOT_START as error:
        print(f"parley-kubelet: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: PluginSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # threads come as they are needed: one for the checkpoint, others where hooks of drivers take long
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "disk"))
    configuration = load(settings.config)
    _keep_what_is_there()
    async with _client(settings) as client:
        await run_plugin(settings, configuration, client, stop)


def _keep_what_is_there() -> None:
    """Modules stay for ever: to look through them for garbage would hold up a call for 40 ms now and then."""
    gc.collect()
    gc.freeze()


async def _diagnose(settings: PluginSettings) -> int:
    from parley_kubelet.doctor import diagnose  # not for those who serve

    findings = await diagnose(settings, _client)
    for finding in findings:
        print(finding)
    return 0 if all(finding.well for finding in findings) else 1


def _client(settings: PluginSettings) -> HttpClient:
    if settings.kubeconfig is None:
        return HttpClient.in_cluster(_REQUESTS)
    return HttpClient.from_kubeconfig(str(settings.kubeconfig), options=_REQUESTS)
