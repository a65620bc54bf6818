"""Names that several parts of the node plugin use."""

from typing import Final

PLACEHOLDER: Final = ("parley.dev", "negotiated")
"""Pool and device of a placeholder result, whose devices are only in the handle; the same as in the controller."""

DEVICE_VARIABLE: Final = "PARLEY_DEVICE_"
"""Prefix of a device's variable. Each device has its own: of one list, only that of a container's last claim would
count."""


def device_variable(device: str) -> str:
    """The environment variable by which a container finds a device: PARLEY_DEVICE_GPU_0 for gpu-0."""
    return DEVICE_VARIABLE + device.upper().replace("-", "_").replace(".", "_")
