"""Claims of built-in resource allocation (`resource.k8s.io/v1`), and their templates. Mirrors are such claims."""

import msgspec

from parley.api.builtin.meta import Condition, NodeSelector, ObjectMeta, Struct
from parley.api.names import DEVICE_CLASS
from parley.api.opaque import NOTHING


class OpaqueConfig(Struct, frozen=True):
    driver: str = ""
    parameters: msgspec.Raw = NOTHING


class DeviceConfig(Struct, frozen=True):
    requests: list[str] = []
    source: str = ""
    opaque: OpaqueConfig | None = None


class ExactRequest(Struct, frozen=True):
    device_class_name: str = ""


class DeviceRequest(Struct, frozen=True):
    name: str
    exactly: ExactRequest | None = None


class DeviceClaim(Struct, frozen=True):
    requests: list[DeviceRequest] = []
    config: list[DeviceConfig] = []

    @property
    def is_negotiated(self) -> bool:
        """Whether only Parley may allocate it: its one request names the DeviceClass that must not exist."""
        only = self.requests[0].exactly if len(self.requests) == 1 else None
        return only is not None and only.device_class_name == DEVICE_CLASS


class BuiltinClaimSpec(Struct, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceResult(Struct, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    admin_access: bool = False


class DeviceAllocation(Struct, frozen=True):
    results: list[DeviceResult] = []
    config: list[DeviceConfig] = []


class BuiltinAllocation(Struct, frozen=True):
    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(Struct, frozen=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Struct, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[Condition] = []
    data: msgspec.Raw = NOTHING


class BuiltinClaimStatus(Struct, frozen=True):
    allocation: BuiltinAllocation | None = None
    reserved_for: list[ConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class BuiltinClaim(Struct, frozen=True):
    """A `resource.k8s.io/v1` ResourceClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BuiltinClaimSpec = BuiltinClaimSpec()
    status: BuiltinClaimStatus = BuiltinClaimStatus()


class BuiltinTemplateSpec(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: BuiltinClaimSpec = BuiltinClaimSpec()


class BuiltinTemplate(Struct, frozen=True):
    """A `resource.k8s.io/v1` ResourceClaimTemplate."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BuiltinTemplateSpec = BuiltinTemplateSpec()
