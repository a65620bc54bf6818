"""The plugin as a whole: what it consists of, and the order in which that starts and stops.

    start   checkpoint read, CDI folder restored; own socket; registration socket; once the kubelet has taken the
            plugin, devices published: before that a pod would be refused, and tried again a minute later only
    stop    devices no longer published; registration socket removed, so that the kubelet sends nothing new;
            calls in progress end within a grace period; own socket removed

Published slices and prepared claims stay: a plugin that is updated comes back. If it does not, the kubelet
removes the slices by itself, and containers keep what they were given.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from parley.kube.client import Client
from parley_kubelet.configuration import DEFAULT_DRIVER, Configuration, ConfigurationError
from parley_kubelet.devices import NodeDevice, absent, discover
from parley_kubelet.durable import Folder
from parley_kubelet.preparation import Preparation
from parley_kubelet.proto.dra_v1_pb2_grpc import add_DRAPluginServicer_to_server
from parley_kubelet.proto.registration_v1_pb2_grpc import add_RegistrationServicer_to_server
from parley_kubelet.registration import RegistrationService
from parley_kubelet.service import DraService
from parley_kubelet.settings import Settings
from parley_kubelet.slices import SlicePublisher
from parley_kubelet.sockets import serving, socket_paths

GRACE = 10.0
"""Seconds that calls in progress have at the end; less than the 30 that a pod has."""

log = structlog.get_logger(__name__)


def choose_driver(settings: Settings, configuration: Configuration) -> str:
    """The driver's name. Raises ConfigurationError if the option and the file differ."""
    ours, theirs = settings.driver, configuration.driver
    if ours and theirs and ours != theirs:
        raise ConfigurationError(
            f"{settings.config}: driver={theirs!r} differs from --driver-name={ours!r}: leave one of them out"
        )
    return ours or theirs or DEFAULT_DRIVER


async def run_plugin(
    settings: Settings, configuration: Configuration, client: Client, stop: asyncio.Event
) -> None:
    """Serve until `stop` is set.

    Raises ConfigurationError, NameTaken, CheckpointError, SocketRefused or OSError if it cannot start.
    """
    driver = choose_driver(settings, configuration)

    def devices() -> tuple[NodeDevice, ...]:
        return discover(configuration)

    found = devices()
    for fault in absent(configuration):
        log.warning("device left out", device=fault)
    paths = socket_paths(settings.plugins, settings.registry, driver, settings.instance)
    preparation = Preparation(
        client,
        driver=driver,
        node=settings.node,
        devices=devices,
        state=Folder(settings.state or settings.plugins / driver),
        cdi=Folder(settings.cdi, mode=0o755),
    )
    prepared = preparation.restore()
    log.info("starting", driver=driver, node=settings.node, devices=len(found), prepared=len(prepared))
    publisher = SlicePublisher(client, driver=driver, node=settings.node, devices=devices)
    dra = DraService(preparation, driver)
    registration = RegistrationService(driver, paths.plugin)
    async with (
        serving(paths.plugin, lambda server: add_DRAPluginServicer_to_server(dra, server), GRACE),
        serving(
            paths.registration, lambda server: add_RegistrationServicer_to_server(registration, server), GRACE
        ),
    ):
        await _until(stop, _publish(registration, publisher))
        log.info("stopping", driver=driver, node=settings.node)


async def _publish(registration: RegistrationService, publisher: SlicePublisher) -> None:
    await registration.registered.wait()
    await publisher.run()


async def _until(stop: asyncio.Event, publication: Coroutine[Any, Any, None]) -> None:
    """Publish until `stop` is set; an unexpected error of the publisher ends the plugin."""
    publishing = asyncio.create_task(publication)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((publishing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if publishing.done():
            publishing.result()
    finally:
        for task in (publishing, stopping):
            task.cancel()
        await asyncio.gather(publishing, stopping, return_exceptions=True)
