"""The node driver for devices of this node, handed out whole or by share.

Decides whether a claim may have the devices that its handle names. `devices` discovers the devices, `checks` runs
their health checks. Preparing has no effects besides the edits that it returns, so it can be repeated.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from pydantic import Field

from parley.api.meta import Model
from parley_kubelet.configuration import DEFAULT_DRIVER, Configuration
from parley_kubelet.driver.checks import Checks
from parley_kubelet.driver.devices import NameTaken, NodeDevice, discover, edits_of, missing_node, named, present
from parley_kubelet.hooks import (
    DeviceCondition,
    DeviceName,
    Health,
    HeldClaim,
    NodeClaim,
    NodeDriver,
    Offer,
    Prepared,
    Refused,
)


class HandleDevice(Model):
    """A device by its pool, which has the node's name, and its name."""

    pool: str
    device: str


class DeviceHandle(Model):
    """The handle that the device driver in the controller writes: the claim's devices, and whether it has a share
    of each or the whole."""

    devices: Annotated[tuple[HandleDevice, ...], Field(min_length=1)]
    shared: bool = False


DeviceClaim = NodeClaim[DeviceHandle]
HeldDevices = HeldClaim[DeviceHandle]


class DeviceNodeDriver(NodeDriver[DeviceHandle, Configuration]):
    """Devices from the configuration file."""

    name: str = DEFAULT_DRIVER
    handle = DeviceHandle
    settings = Configuration

    def __init__(self, node: str, settings: Configuration, name: str | None = None) -> None:
        super().__init__(node, settings)
        self.name = name or settings.driver or DEFAULT_DRIVER
        self._checks = Checks(settings)

    def discovered(self) -> tuple[NodeDevice, ...]:
        """The node's devices as they are now. Raises NameTaken."""
        return discover(self.configured)

    def devices(self) -> Sequence[Offer]:
        """The devices without a fault: faulty ones are not offered to further pods."""
        return tuple(
            _offer(index, device) for index, device in enumerate(self.discovered()) if self._is_healthy(device)
        )

    def _is_healthy(self, device: NodeDevice) -> bool:
        return self._checks.fault(device.name) is None

    def admit(self, claim: DeviceClaim, rivals: Sequence[HeldDevices]) -> None:
        """Raises Refused if a device is not of this node, is not present, or is not free."""
        for handed in claim.handle.devices:
            if handed.pool != self.node:
                raise Refused(
                    f"claim {claim}: pool={handed.pool!r} of device {handed.device!r} is not of this node,"
                    f" {self.node!r}: delete the pod, so that its claim is negotiated again"
                )
        _check_handle(claim)
        known = self._present_devices(claim)
        for device in claim.devices:
            _check_free(claim, known[device.device], [r for r in rivals if device in r.claim.devices])

    async def prepare(self, claim: DeviceClaim) -> Prepared:
        """The edits of the devices as they are now; a container keeps these."""
        known = self._present_devices(claim)
        devices = [known[device.device] for device in claim.devices]
        state = {"devices": [msgspec.to_builtins(device) for device in devices]}
        return Prepared(edits_of(devices), state)

    async def unprepare(self, held: HeldDevices) -> None:
        """Does nothing: preparing has no effects."""

    async def health(self, held: Sequence[HeldDevices]) -> Sequence[Health]:
        """The health of every device that is present, is named in the configuration file, or is held by a
        claim."""
        devices = {device.name: device for claim in held for device in _recorded_devices(claim.state)}
        devices |= {device.name: device for device in (*named(self.configured), *self.discovered())}
        await self._checks.run(devices.values())
        return [self._health_of(device) for device in devices.values()]

    def _health_of(self, device: NodeDevice) -> Health:
        where = DeviceName(self.node, device.name)
        if (node := missing_node(device)) is not None:
            return Health(where, DeviceCondition.UNHEALTHY, f"device node {node} is missing", time.time())
        if self._checks.has(device.name):
            return self._checks.health(where)
        if device.device_nodes:
            return Health(where, DeviceCondition.HEALTHY, "", time.time())
        return Health(where, DeviceCondition.UNKNOWN, "no device node or check reports its health", time.time())

    def _present_devices(self, claim: DeviceClaim) -> Mapping[str, NodeDevice]:
        try:
            known = present(self.configured, {device.device for device in claim.devices})
            for device in claim.devices:
                if device.device not in known:
                    names = ", ".join(found.name for found in self.discovered())
                    raise Refused(
                        f"claim {claim}: device={device.device!r} is not a device of node {self.node!r}, which has"
                        f" {names or 'none'}: bring the device back, or delete the pod"
                    )
        except NameTaken as error:
            raise Refused(f"claim {claim}: {error}") from None
        return known


def _offer(index: int, device: NodeDevice) -> Offer:
    memory = {} if device.memory is None else {"memory": device.memory}
    return Offer(
        device.name,
        {"model": device.model, "index": index},
        {"slices": str(device.shares), **memory},
    )


def _recorded_devices(state: Any) -> list[NodeDevice]:
    return [msgspec.convert(device, NodeDevice) for device in (state or {}).get("devices", ())]


def _check_handle(claim: DeviceClaim) -> None:
    """Refuses a claim whose handle differs from its results: Kubernetes reports the results as its devices."""
    handed = {DeviceName(device.pool, device.device) for device in claim.handle.devices}
    if set(claim.devices) != handed:
        raise Refused(
            f"claim {claim}: the allocation's results are {_listed(claim.devices)}, its handle has"
            f" {_listed(handed)}: delete the pod, so that its claim is negotiated again"
        )


def _listed(devices: set[DeviceName] | tuple[DeviceName, ...]) -> str:
    return ", ".join(f"{device.pool}/{device.device}" for device in sorted(devices))


def _check_free(claim: DeviceClaim, device: NodeDevice, holders: Sequence[HeldDevices]) -> None:
    if not holders:
        return
    names = ", ".join(str(holder.claim) for holder in holders)
    if not claim.handle.shared or not all(holder.claim.handle.shared for holder in holders):
        raise Refused(
            f"claim {claim}: device={device.name!r} is still prepared for claim {names}:"
            " wait until the pods that use it are gone from this node"
        )
    if len(holders) >= device.shares:
        raise Refused(
            f"claim {claim}: device={device.name!r} has {device.shares} shares, and claims {names} have them"
            " all: wait until a pod that uses it is gone from this node"
        )
