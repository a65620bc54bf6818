# ruff: noqa: ARG002, N802 - the protocol gives the names, and arguments that not every answer needs
"""Answers the kubelet's registration calls: what this plugin is and where it serves.

The kubelet sees the socket in its registration folder and comes by itself, again after each of its own
restarts. Its refusal is logged and not acted on: it tries again while the socket is there.
"""

import asyncio
from pathlib import Path
from typing import Any

import structlog

from parley_kubelet.proto import registration_v1_pb2 as registration
from parley_kubelet.proto.registration_v1_pb2_grpc import RegistrationServicer

PREPARING = ("v1.DRAPlugin",)
"""Kubelets from 1.34 know it (pkg/kubelet/cm/dra/plugin, read for 1.36 and 1.37); those before, v1beta1 alone."""

HEALTH = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""The kubelet takes the first that it knows: v1 from 1.37, v1alpha1 before."""

log = structlog.get_logger(__name__)


class RegistrationService(RegistrationServicer):
    """Answers who serves what at `endpoint`. `registered` is set once the kubelet has taken the plugin."""

    def __init__(self, driver: str, endpoint: Path, *, health: bool) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._versions = PREPARING + HEALTH if health else PREPARING
        self.registered = asyncio.Event()

    async def GetInfo(self, request: registration.InfoRequest, context: Any) -> registration.PluginInfo:
        """From memory: the kubelet waits a second at most."""
        return registration.PluginInfo(
            type="DRAPlugin",
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=self._versions,
        )

    async def NotifyRegistrationStatus(
        self, request: registration.RegistrationStatus, context: Any
    ) -> registration.RegistrationStatusResponse:
        """Take note of it."""
        if request.plugin_registered:
            self.registered.set()
            log.info("registered with the kubelet", driver=self._driver)
        else:
            log.error("the kubelet refused the plugin", driver=self._driver, reason=request.error)
        return registration.RegistrationStatusResponse()
