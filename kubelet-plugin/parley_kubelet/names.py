"""Names that several parts of the node plugin must spell alike."""

from typing import Final

PLACEHOLDER: Final = ("parley.dev", "negotiated")
"""Pool and device of a result whose devices are in the handle alone. The controller spells them alike."""

DEVICE_VARIABLE: Final = "PARLEY_DEVICE_"
"""Each device has a variable of its own: with one list for all, the last of a container's claims would win."""


def device_variable(device: str) -> str:
    """The environment variable by which a container finds a device: PARLEY_DEVICE_GPU_0 for gpu-0."""
    return DEVICE_VARIABLE + device.upper().replace("-", "_").replace(".", "_")
