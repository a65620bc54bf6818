"""Serves one driver to the kubelet: its parts, and the order in which they start and stop.

    start   checkpoint read, CDI folder restored; sockets of killed plugins removed; own socket; registration
            socket; once the kubelet has registered the driver, devices published: before that a pod would be
            refused, and retried only a minute later; orphans released
    stop    devices no longer published; registration socket removed, so that the kubelet makes no new calls; the
            streams of health end; calls in progress end within a grace period, or are cancelled and stay in the
            checkpoint for the next start; own socket removed

Published slices and prepared claims stay: an updated plugin comes back. If it does not, the kubelet removes the
slices by itself, and containers keep their devices.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import structlog

from parley.kube.client import Client
from parley_kubelet.claims.notices import Notices
from parley_kubelet.claims.orphans import release_orphans
from parley_kubelet.claims.preparation import Preparation, ProcessServices, boot_id
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.driver.disk_threads import DiskThreads
from parley_kubelet.health.monitor import HealthMonitor
from parley_kubelet.health.service import HealthService
from parley_kubelet.hooks import NodeDriver
from parley_kubelet.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2_grpc,
)
from parley_kubelet.proto.registration_v1_pb2_grpc import add_RegistrationServicer_to_server
from parley_kubelet.serving.registration import RegistrationService
from parley_kubelet.serving.self_check import check_sockets
from parley_kubelet.serving.service import DraService
from parley_kubelet.serving.slices import SlicePublisher
from parley_kubelet.serving.sockets import remove_dead, serving, socket_paths
from parley_kubelet.settings import PluginSettings
from parley_kubelet.state.checkpoint import CheckpointError
from parley_kubelet.state.durable import SPARE, Folder
from parley_kubelet.state.records import checkpoint_thread
from parley_kubelet.telemetry.exposition import Histogram

GRACE = 10.0
"""Seconds that calls in progress have to end at shutdown; less than a pod's grace period of 30."""

UNREGISTERED = 60.0
"""Seconds that the kubelet has to register the plugin: it looks for sockets every second, and at its own start."""

RESTORE = 60.0
"""Seconds between two searches for CDI files that somebody removed."""

_HEALTH: Sequence[tuple[Any, Any]] = (
    (dra_health_v1_pb2, dra_health_v1_pb2_grpc),
    (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc),
)
"""The messages and the service of each version of DRAResourceHealth."""

log = structlog.get_logger(__name__)


class DriverServer:
    """Serves one driver of this process. Raises SocketRefused or OSError if it can't."""

    def __init__(
        self, driver: NodeDriver[Any, Any], settings: PluginSettings, client: Client, calls: Histogram
    ) -> None:
        self._client = client
        self._calls = calls
        self._driver = driver
        self._instance = settings.instance
        self._paths = socket_paths(settings.plugins, settings.registry, driver.name, settings.instance)
        self._cdi = Folder(settings.cdi, mode=0o755)
        self.publisher = SlicePublisher(client, driver=driver.name, node=driver.node, devices=driver.devices)
        self.preparation = Preparation(
            driver,
            client,
            state=Folder(settings.state_of(driver.name, own=isinstance(driver, DeviceNodeDriver)), spare=SPARE),
            cdi=self._cdi,
            boot=boot_id(),
            process=ProcessServices(checkpoint_thread(), self.publisher.up_to_date),
        )
        self.notices = Notices(self.preparation, client)
        self._monitor = HealthMonitor(self.preparation, self.publisher.recheck)
        self.registration = RegistrationService(driver.name, self._paths.plugin, health=driver.tells_health())

    async def restore(self) -> None:
        """Restore the CDI folder from the checkpoint. Raises CheckpointError or OSError. Waits for writes of the
        other plugin of a rolling update, in a thread that the end of this process does not wait for: the other one
        may be frozen."""
        held = await asyncio.wrap_future(DiskThreads(1).start(self.preparation.restore))
        log.info("starting", driver=self._driver.name, node=self._driver.node, held=len(held))

    @asynccontextmanager
    async def sockets(self) -> AsyncIterator[None]:
        """Serve on both sockets within the block. Raises SocketRefused or OSError."""
        remove_dead(self._paths, self._instance)
        try:
            async with serving(self._paths.plugin, self._add_services, GRACE):
                try:
                    async with serving(self._paths.registration, self._add_registration, GRACE):
                        yield
                finally:
                    log.info("stopping", driver=self._driver.name, node=self._driver.node)
                    await self._monitor.end()
        finally:
            await self.preparation.close()

    async def fault(self) -> str:
        """Why the kubelet cannot use the driver, so that the plugin should be restarted; "" if it can."""
        if self.registration.missing_seconds() > UNREGISTERED:
            return self.obstacle()
        if self._cdi.is_removed():
            fault = (
                f"folder {self._cdi.path} was removed on the node: a restart creates it, with the claims' files"
            )
        else:
            fault = await check_sockets(self._paths)
        return f"driver {self._driver.name}: {fault}" if fault else ""

    def obstacle(self) -> str:
        """Why the kubelet does not call the driver now; "" if it does."""
        fault = self.registration.fault()
        return f"driver {self._driver.name}: {fault}" if fault else ""

    async def run(self) -> None:
        """Publish devices and health, report notices, and release orphans, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._driver.tells_health():
                group.create_task(self._monitor.run())
            if self._driver.tells_notices():
                group.create_task(self.notices.run())
            group.create_task(self._keep_specifications())
            await self.registration.registered.wait()
            group.create_task(self.publisher.run())
            group.create_task(release_orphans(self.preparation, self._client))

    async def _keep_specifications(self) -> None:
        """Write removed CDI files again, until cancelled."""
        while True:
            await asyncio.sleep(RESTORE)
            try:
                await self.preparation.restore_missing()
            except (CheckpointError, OSError) as error:
                log.warning("no search for removed CDI files", driver=self._driver.name, reason=str(error))

    def _add_services(self, server: grpc.aio.Server) -> None:
        dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(DraService(self.preparation, self._calls), server)
        for messages, service in _HEALTH if self._driver.tells_health() else ():
            service.add_DRAResourceHealthServicer_to_server(HealthService(self._monitor, messages), server)

    def _add_registration(self, server: grpc.aio.Server) -> None:
        self.registration.socket_made()
        add_RegistrationServicer_to_server(self.registration, server)
