"""Disks of nodes, a workspace driver that knows them, and requests to it."""

from typing import Any

import msgspec

from parley.api.builtin import (
    DeviceAttribute,
    DeviceCapacity,
    ObjectMeta,
    Pool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceDevice,
)
from parley.drivers.workspace import DISK, WorkspaceDriver
from parley.sdk import Request
from parley.sdk.testing import request

DRIVER = WorkspaceDriver.name

GI = 1024**3


def disk(node: str, size: str = "10Gi", pool: str = "", name: str = DISK, driver: str = DRIVER) -> ResourceSlice:
    device = SliceDevice(name=name, capacity={"size": DeviceCapacity(size)})
    spec = ResourceSliceSpec(driver=driver, pool=Pool(pool or node), node_name=node, devices=[device])
    return ResourceSlice(metadata=ObjectMeta(name=f"{node}-disk"), spec=spec)


def enforcing(slice_: ResourceSlice, able: bool = True) -> ResourceSlice:
    """The same from a node that can keep workspaces to their sizes, or says that it can't."""
    (device,) = slice_.spec.devices
    devices = [msgspec.structs.replace(device, attributes={"images": DeviceAttribute(bool_=able)})]
    return msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, devices=devices))


def stocked(driver: WorkspaceDriver | None = None) -> WorkspaceDriver:
    driver = driver or WorkspaceDriver()
    assert driver.observe(None, disk("a"))
    assert driver.observe(None, disk("b", "4Gi"))
    return driver


def asks(pod: str, *parameters: dict[str, Any], **class_: Any) -> Request[Any, Any]:
    return request(WorkspaceDriver(), pod, *parameters, class_parameters=class_)
