"""The program: settings, logging, signals, and a one-line error if it cannot start."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from parley.api.exits import Exit
from parley.kube.credentials import NoConfiguration
from parley.kube.http import HttpClient, HttpOptions
from parley_kubelet.configuration import ConfigurationError, load
from parley_kubelet.driver.devices import NameTaken
from parley_kubelet.loading import LoadError
from parley_kubelet.plugin import run_plugin
from parley_kubelet.serving.sockets import SocketRefused
from parley_kubelet.settings import DOCTOR, PluginSettings, parse_arguments
from parley_kubelet.state.checkpoint import CheckpointError
from parley_kubelet.telemetry.endpoint import PortRefused

_THREADS = 8
_REQUESTS = HttpOptions(user_agent="parley-kubelet")

_CANNOT_START: Mapping[type[Exception], Exit] = {
    ConfigurationError: Exit.WRONG_INPUT,
    LoadError: Exit.WRONG_INPUT,
    NameTaken: Exit.WRONG_INPUT,
    NoConfiguration: Exit.NO_ACCESS,
    SocketRefused: Exit.ADDRESS_TAKEN,
    PortRefused: Exit.ADDRESS_TAKEN,
    CheckpointError: Exit.FAILED,
    OSError: Exit.FAILED,
}
"""The errors that keep the plugin from starting, and their exit status."""


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
    except tuple(_CANNOT_START) as error:
        print(f"parley-kubelet: {_message(error)}", file=sys.stderr)
        return next(status for kind, status in _CANNOT_START.items() if isinstance(error, kind))
    return Exit.DONE


def _message(error: Exception) -> str:
    """The error's message; for system errors one that begins with the file and has a remedy."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {os.strerror(error.errno or 0).lower()}: name a folder that can be written"
    return str(error)


async def _serve(settings: PluginSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # threads for slow hooks of drivers, started when they are needed
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "disk"))
    configuration = load(settings.config)
    _freeze_modules()
    async with _client(settings) as client:
        await run_plugin(settings, configuration, client, stop)


def _freeze_modules() -> None:
    """Exclude loaded modules, which stay for ever, from garbage collection: it would delay a call by 40 ms now and
    then."""
    gc.collect()
    gc.freeze()


async def _diagnose(settings: PluginSettings) -> int:
    from parley_kubelet.doctor import diagnose  # not needed to serve
    from parley_kubelet.findings import shown

    findings = await diagnose(settings, _client)
    if text := shown(findings, settings.node, settings.output, headings=settings.headings):
        print(text)
    return Exit.DONE if all(finding.well for finding in findings) else Exit.TO_MEND


def _client(settings: PluginSettings) -> HttpClient:
    if settings.kubeconfig is None:
        return HttpClient.in_cluster(_REQUESTS)
    return HttpClient.from_kubeconfig(str(settings.kubeconfig), options=_REQUESTS)
