# ruff: noqa: ARG002, N802 - the protocol gives the names, and arguments that not every answer needs
"""Answers the kubelet's registration calls with the plugin's name, versions and socket.

The kubelet finds the socket in its registration folder and calls, again after each of its own restarts. If it
refuses the plugin, that is logged, and it tries again while the socket exists. A plugin that is not registered is
not ready; after a minute its liveness probe fails, too.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from parley_kubelet.proto import registration_v1_pb2 as registration
from parley_kubelet.proto.registration_v1_pb2_grpc import RegistrationServicer

PREPARING = ("v1.DRAPlugin",)
"""Supported by kubelets from 1.34 on (pkg/kubelet/cm/dra/plugin, read for 1.36 and 1.37); before, only v1beta1."""

HEALTH = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""The kubelet uses the first that it supports: v1 from 1.37, v1alpha1 before."""

log = structlog.get_logger(__name__)


class RegistrationService(RegistrationServicer):
    """The registration service for the plugin at `endpoint`. `registered` is set once the kubelet has registered
    it."""

    def __init__(
        self, driver: str, endpoint: Path, *, health: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._versions = PREPARING + HEALTH if health else PREPARING
        self._clock = clock
        self._missing_since: float | None = clock()
        self._refusal = ""
        self.registered = asyncio.Event()

    def socket_made(self) -> None:
        """Record that the socket was created, again or for the first time: the kubelet unregisters a plugin whose
        socket is removed, and registers it again."""
        self._missing_since = self._clock()

    def missing_seconds(self) -> float:
        """For how many seconds the plugin has not been registered; 0 while it is."""
        return 0.0 if self._missing_since is None else self._clock() - self._missing_since

    @property
    def is_registered(self) -> bool:
        """Whether the plugin is registered, by the kubelet's last notification."""
        return self._missing_since is None

    def fault(self) -> str:
        """For how long the plugin has not been registered, and why the kubelet refused it, if it did; "" while it
        is registered."""
        if self.is_registered:
            return ""
        why = f": the kubelet refused it: {self._refusal}" if self._refusal else ""
        return f"not registered with the kubelet for {self.missing_seconds():.0f} s{why}"

    async def GetInfo(self, request: registration.InfoRequest, context: Any) -> registration.PluginInfo:
        """Describes the plugin, without I/O: the kubelet waits a second at most."""
        return registration.PluginInfo(
            type="DRAPlugin",
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=self._versions,
        )

    async def NotifyRegistrationStatus(
        self, request: registration.RegistrationStatus, context: Any
    ) -> registration.RegistrationStatusResponse:
        """Records whether the kubelet registered or refused the plugin."""
        if request.plugin_registered:
            self._missing_since, self._refusal = None, ""
            self.registered.set()
            log.info("registered with the kubelet", driver=self._driver)
        else:
            self._missing_since = self._clock() if self._missing_since is None else self._missing_since
            self._refusal = request.error
            log.error("the kubelet refused the plugin", driver=self._driver, reason=request.error)
        return registration.RegistrationStatusResponse()
