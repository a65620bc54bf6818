"""The devices that DRA drivers publish in ResourceSlices, and the DeviceClasses that select them.

Drivers of Parley may watch slices (`Driver.watches`) to learn which devices nodes have.
"""

import msgspec

from parley.api.builtin.meta import ObjectMeta, Quantity, Struct


class DeviceTaint(Struct, frozen=True):
    """Without `timeAdded`, which the API server adds to what was published."""

    key: str = ""
    value: str = ""
    effect: str = ""


class DeviceAttribute(Struct, frozen=True):
    string: str | None = None
    bool_: bool | None = msgspec.field(default=None, name="bool")
    int_: int | None = msgspec.field(default=None, name="int")
    version: str | None = None


class DeviceCapacity(Struct, frozen=True):
    value: Quantity = 0


class SliceDevice(Struct, frozen=True):
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    taints: list[DeviceTaint] = []


class Pool(Struct, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Struct, frozen=True):
    driver: str = ""
    node_name: str = ""
    pool: Pool = Pool()
    devices: list[SliceDevice] = []


class ResourceSlice(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceClassSpec(Struct, frozen=True):
    extended_resource_name: str = ""


class DeviceClass(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
