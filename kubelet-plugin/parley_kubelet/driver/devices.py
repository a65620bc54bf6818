"""Discovers the devices that this node has now, from the configuration and the device nodes that exist.

Discovery is repeated: a device node that appears or disappears changes the result, and a device that lacks one of
its nodes is not present. `device_driver` decides which claims may have a device.
"""

import glob
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from parley_kubelet.configuration import Configuration, DeviceEntry, HealthCheck
from parley_kubelet.edits import DeviceNode, Edits
from parley_kubelet.names import device_variable

_UNSAFE = re.compile(r"[^a-z0-9]+")


class NodeDevice(msgspec.Struct, frozen=True, rename="camel"):
    """One device of this node; also kept in the checkpoint, so that it can be prepared again.

    `shares` is how many claims may use it at once, `memory` a quantity.
    """

    name: str
    model: str
    memory: str | None = None
    shares: int = 1
    device_nodes: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class NameTaken(Exception):
    """Raised if two matches of globs, or a match and a named device, would have the same name."""


def discover(configuration: Configuration) -> tuple[NodeDevice, ...]:
    """All present devices, in the order of the file, matches of a glob sorted by path. Raises NameTaken."""
    devices: dict[str, NodeDevice] = {}
    for device, _ in _present_entries(configuration):
        other = devices.setdefault(device.name, device)
        if other is not device:
            raise NameTaken(
                f"device {device.name!r}: {_origin(other)} and {_origin(device)} have the same name:"
                " narrow the glob in the configuration file, or rename the device"
            )
    return tuple(devices.values())


def present(configuration: Configuration, names: Collection[str]) -> Mapping[str, NodeDevice]:
    """Those of the named devices that are present. Globs are expanded only if the file does not name all of them.

    Raises NameTaken.
    """
    entries = {entry.name: entry for entry in configuration.devices if entry.name in names}
    if len(entries) < len(names):
        return {device.name: device for device in discover(configuration) if device.name in names}
    return {
        name: _device(entry, name, entry.device_nodes)
        for name, entry in entries.items()
        if name is not None and all(map(_is_device_node, entry.device_nodes))
    }


def checks(configuration: Configuration) -> Mapping[str, HealthCheck]:
    """The check of each device that has one, by the device's name."""
    return {
        device.name: entry.check for device, entry in _present_entries(configuration) if entry.check is not None
    }


def named(configuration: Configuration) -> tuple[NodeDevice, ...]:
    """The devices that the configuration file names, present or not."""
    return tuple(
        _device(entry, entry.name, entry.device_nodes) for entry in configuration.devices if entry.name is not None
    )


def missing_node(device: NodeDevice) -> str | None:
    """The first of the device's device nodes that does not exist; None if all do."""
    return next((node for node in device.device_nodes if not _is_device_node(node)), None)


def missing_device_nodes(configuration: Configuration) -> tuple[str, ...]:
    """The device nodes that the configuration file names and that do not exist, as messages for the log."""
    return tuple(
        f"{entry.name}: {node} is not a device node"
        for entry in configuration.devices
        for node in entry.device_nodes
        if not _is_device_node(node)
    )


def edits_of(devices: Sequence[NodeDevice]) -> Edits:
    """The edits of a container with these devices. A variable that several devices set differently has all values,
    separated by commas."""
    values: dict[str, dict[str, None]] = {}
    for device in devices:
        for name, value in ((device_variable(device.name), device.model), *device.env.items()):
            values.setdefault(name, {})[value] = None
    nodes = dict.fromkeys(node for device in devices for node in device.device_nodes)
    return Edits(
        env={name: ",".join(distinct) for name, distinct in values.items()},
        device_nodes=tuple(DeviceNode(path=node) for node in nodes),
    )


def _present_entries(configuration: Configuration) -> Iterator[tuple[NodeDevice, DeviceEntry]]:
    for entry in configuration.devices:
        if entry.name is not None:
            if all(map(_is_device_node, entry.device_nodes)):
                yield _device(entry, entry.name, entry.device_nodes), entry
        elif entry.glob is not None:
            # pathlib's glob refuses patterns such as /dev/a**, with which this one does what a shell does
            for path in sorted(filter(_is_device_node, glob.glob(entry.glob))):  # noqa: PTH207
                yield _device(entry, safe_name(Path(path).name), (path,)), entry


def _is_device_node(path: str) -> bool:
    """Whether the path is a device node. A symbolic link to one is not: runc does not follow it."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _device(entry: DeviceEntry, name: str, nodes: tuple[str, ...]) -> NodeDevice:
    return NodeDevice(
        name=name,
        model=entry.model,
        memory=entry.memory,
        shares=entry.slices,
        device_nodes=nodes,
        env=entry.env,
    )


def _origin(device: NodeDevice) -> str:
    return " ".join(device.device_nodes) or "an entry of the file"


def safe_name(text: str) -> str:
    """A lower-case DNS label made from a file's name: `nvme0n1p1` stays, `GPU_0` becomes `gpu-0`."""
    return _UNSAFE.sub("-", text.lower()).strip("-")[:63].strip("-") or "device"
