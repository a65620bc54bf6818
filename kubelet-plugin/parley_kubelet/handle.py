"""What was allocated for a built-in claim, read from the claim and nothing else.

Decides which devices of this node the claim stands for, or says in a sentence why it stands for none. Whether
those devices exist here and are free is left to `preparation`.

The controller writes results and a handle. Either each result names a device and the handle, an opaque
configuration, says the same; or the one result is a placeholder, because the devices were found after the
allocation was written, and the handle is in the `data` of that result's entry in `status.devices`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from parley.api.builtin import BuiltinClaim, DeviceResult
from parley.api.meta import Model

PLACEHOLDER: Final = ("parley.dev", "negotiated")
"""Pool and device of a result whose devices are in the handle alone. The controller spells them alike."""


class HandleDevice(Model):
    """A device by its pool, which is named as its node, and its name."""

    pool: str
    device: str


class Handle(Model):
    """What the device driver hands over: its devices, and whether the claim has a share of each or the whole."""

    devices: Annotated[tuple[HandleDevice, ...], Field(min_length=1)]
    shared: bool = False


class Refused(Exception):
    """Raised when a claim cannot be prepared; the message is the whole answer to the kubelet."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The claim's results of this driver, and the names of the devices of this node behind them."""

    results: tuple[DeviceResult, ...]
    devices: tuple[str, ...]
    shared: bool


def granted(claim: BuiltinClaim, *, uid: str, driver: str, node: str) -> Granted:
    """What this driver granted to the claim on this node.

    Raises Refused if the claim is another one of the same name, is not allocated by this driver, or is
    allocated on another node.
    """
    full = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if claim.metadata.uid != uid:
        raise Refused(
            f"claim {full}: uid={claim.metadata.uid!r} is another claim of that name, the pod was given {uid!r}:"
            " delete the pod, so that it is made again with the new claim"
        )
    results = _results(claim, driver, full)
    handle = _handle(claim, results, driver, full)
    for device in handle.devices:
        if device.pool != node:
            raise Refused(
                f"claim {full}: pool={device.pool!r} of device {device.device!r} is not of this node, {node!r}:"
                " delete the pod, so that its claim is negotiated again"
            )
    names = tuple(dict.fromkeys(device.device for device in handle.devices))
    _check_agreement(results, names, node, full)
    return Granted(results, names, handle.shared)


def _results(claim: BuiltinClaim, driver: str, full: str) -> tuple[DeviceResult, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        raise Refused(f"claim {full}: status.allocation is not set: wait until parley-controller has allocated it")
    results = tuple(result for result in allocation.devices.results if result.driver == driver)
    if not results:
        others = ", ".join(sorted({result.driver for result in allocation.devices.results})) or "no driver"
        raise Refused(
            f"claim {full}: status.allocation names {others}, not {driver}: start this plugin with --driver-name"
            " of the driver that allocates for the claim's class"
        )
    return results


def _handle(claim: BuiltinClaim, results: tuple[DeviceResult, ...], driver: str, full: str) -> Handle:
    field, data = next(_handles(claim, results, driver), ("", None))
    if data is None:
        raise Refused(
            f"claim {full}: nodes are offered, but no device of {driver} is allocated yet:"
            " wait until parley-controller has allocated it"
        )
    try:
        return Handle.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join((field, *map(str, first["loc"])))
        raise Refused(
            f"claim {full}: {where}={first['input']!r}: {first['msg']}:"
            " run the same version of parley-controller and parley-kubelet"
        ) from None


def _handles(
    claim: BuiltinClaim, results: tuple[DeviceResult, ...], driver: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The field and content of each handle, the one that counts first."""
    if any(_is_placeholder(result) for result in results):
        for status in claim.status.devices:
            if (status.driver, status.pool, status.device) == (driver, *PLACEHOLDER) and status.data is not None:
                yield "status.devices.data", status.data
    allocation = claim.status.allocation
    for config in allocation.devices.config if allocation else ():
        if config.opaque is not None and config.opaque.driver == driver:
            yield "status.allocation.devices.config.opaque.parameters", config.opaque.parameters


def _is_placeholder(result: DeviceResult) -> bool:
    return (result.pool, result.device) == PLACEHOLDER


def _check_agreement(results: tuple[DeviceResult, ...], names: tuple[str, ...], node: str, full: str) -> None:
    """Built-in Kubernetes shows the results to everybody: what is handed out must not be something else."""
    shown = {(result.pool, result.device) for result in results if not _is_placeholder(result)}
    if shown and shown != {(node, name) for name in names}:
        listed = ", ".join("/".join(device) for device in sorted(shown))
        raise Refused(
            f"claim {full}: the allocation's results are {listed}, its handle has"
            f" {', '.join(f'{node}/{name}' for name in sorted(names))}:"
            " delete the pod, so that its claim is negotiated again"
        )
