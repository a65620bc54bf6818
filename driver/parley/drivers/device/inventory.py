"""The devices of each node, and the claims that hold them. In memory, no decisions.

Devices come from ResourceSlices: one pool per node, with the node's name, attribute `model` (string), capacity
`memory` (quantity) and `slices` (how many shares a device can be split into; 1 if absent). Only the newest
generation of a pool counts, as in Kubernetes. A held device stays counted as held when it is no longer published.

A node may publish only its own devices: a slice whose pool is not that of its node is ignored, and logged. So a
device's pool is its node. If a node publishes more than `MOST_DEVICES`, only the first count, by the slices'
names: each change costs time for all devices of the node, and Kubernetes limits only the devices of one slice.
"""

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from parley.api.builtin import ResourceSlice, SliceDevice
from parley.api.quantity import parse
from parley.drivers.device.fullness import Fullness
from parley.drivers.device.packing import DeviceKind, Stock, exact
from parley.sdk import Device

log = structlog.get_logger(__name__)

MOST_DEVICES: Final = 4096
"""The most devices of one node: 32 slices of the largest size."""


class _Published(NamedTuple):
    """The devices that one slice publishes, and its pool's generation."""

    generation: int
    kinds: Mapping[Device, DeviceKind]


@dataclass(slots=True)
class _Node:
    """One node's slices by name, with caches of its devices and of its free devices."""

    name: str
    slices: dict[str, _Published] = field(default_factory=dict)
    known: Mapping[Device, DeviceKind] | None = None
    stock: Stock | None = None
    too_many: bool = False
    """Whether the node publishes more than `MOST_DEVICES`."""

    @property
    def kinds(self) -> Mapping[Device, DeviceKind]:
        """The node's devices: only those of the newest generation."""
        if self.known is None:
            self.known = self._merged()
        return self.known

    def _merged(self) -> dict[Device, DeviceKind]:
        newest = max((slice_.generation for slice_ in self.slices.values()), default=0)
        current = (name for name, slice_ in self.slices.items() if slice_.generation == newest)
        devices: dict[Device, DeviceKind] = {}
        logged, self.too_many = self.too_many, False
        for name in sorted(current):
            more = self.slices[name].kinds
            if len(devices) + len(more) > MOST_DEVICES:
                self.too_many = True
                break
            devices.update(more)
        if self.too_many and not logged:
            log.warning(
                "a node publishes too many devices: only the first count", node=self.name, most=MOST_DEVICES
            )
        return devices


class Inventory:
    """The devices of one driver over all nodes."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._nodes: dict[str, _Node] = {}
        self._node_of: dict[str, str] = {}
        """The node of each ResourceSlice, by the slice's name."""
        self._held: dict[str, tuple[tuple[Device, ...], bool]] = {}
        self._holders: defaultdict[Device, dict[str, bool]] = defaultdict(dict)
        self.fullness = Fullness(self.stock)

    def publish(self, old: ResourceSlice | None, new: ResourceSlice | None) -> tuple[str, ...]:
        """Takes over a ResourceSlice that appeared, changed or vanished; returns the nodes whose devices may have
        changed."""
        touched: dict[str, None] = {}
        for slice_ in (old, new):
            if slice_ is not None and (node := self._node_of.pop(slice_.metadata.name, None)) is not None:
                del self._nodes[node].slices[slice_.metadata.name]
                touched[node] = None
        if new is not None and self._counts(new):
            self._node_of[new.metadata.name] = node = new.spec.node_name
            self._nodes.setdefault(node, _Node(node)).slices[new.metadata.name] = _published(new)
            touched[node] = None
        for node in touched:
            self._changed(node)
        return tuple(touched)

    def _counts(self, slice_: ResourceSlice) -> bool:
        """Whether the slice is about devices of this driver on its own node."""
        spec = slice_.spec
        if spec.driver != self._driver:
            return False
        if spec.node_name and spec.pool.name == spec.node_name:
            return True
        log.warning(
            "a ResourceSlice is ignored: its pool has to have the name of its node, spec.nodeName",
            slice=slice_.metadata.name,
            driver=spec.driver,
            node=spec.node_name,
            pool=spec.pool.name,
        )
        return False

    def _changed(self, name: str) -> None:
        node = self._nodes[name]
        node.known = node.stock = None
        self.fullness.changed(name)
        if not node.slices:
            del self._nodes[name]

    def _invalidate(self, name: str) -> None:
        if node := self._nodes.get(name):
            node.stock = None
            self.fullness.changed(name)

    def hold(self, uid: str, devices: tuple[Device, ...], *, shared: bool) -> None:
        """Counts the devices, or one share of each, as held by the claim. Replaces an earlier holding of it."""
        self.release(uid)
        self._held[uid] = (devices, shared)
        for device in devices:
            self._holders[device][uid] = shared
            self._invalidate(device.pool)

    def release(self, uid: str) -> None:
        """Releases the claim's devices. Idempotent."""
        devices, _ = self._held.pop(uid, ((), False))
        for device in devices:
            holders = self._holders[device]
            holders.pop(uid, None)
            if not holders:
                del self._holders[device]
            self._invalidate(device.pool)

    def held(self, uid: str) -> tuple[Device, ...] | None:
        """The devices that the claim holds, None if it holds none."""
        holding = self._held.get(uid)
        return holding[0] if holding else None

    def nodes(self) -> tuple[str, ...]:
        """The nodes that publish devices."""
        return tuple(self._nodes)

    def kinds(self, node: str) -> Mapping[Device, DeviceKind]:
        """All devices of the node, free or not."""
        return self._nodes[node].kinds if node in self._nodes else {}

    def stock(self, node: str) -> Stock:
        """The node's free devices, as names "pool/device" by group."""
        entry = self._nodes.get(node)
        if entry is None:
            return {}
        if entry.stock is None:
            entry.stock = self._count(entry)
        return entry.stock

    def stock_without(self, node: str, uids: Set[str]) -> Stock:
        """The node's free devices if the claims with these UIDs held nothing."""
        entry = self._nodes.get(node)
        return self._count(entry, uids) if entry is not None else {}

    def _count(self, node: _Node, without: Set[str] = frozenset()) -> Stock:
        groups: defaultdict[tuple[DeviceKind, int], list[str]] = defaultdict(list)
        for device in sorted(node.kinds):
            if free := self._free_shares(device, node.kinds[device], without):
                groups[node.kinds[device], free].append(f"{device.pool}/{device.device}")
        return {group: tuple(names) for group, names in groups.items()}

    def _free_shares(self, device: Device, kind: DeviceKind, without: Set[str]) -> int:
        holders = self._holders.get(device, {})
        if without:
            holders = {uid: shared for uid, shared in holders.items() if uid not in without}
        if not all(holders.values()):
            return 0
        return max(0, kind.slices - len(holders))


def _published(slice_: ResourceSlice) -> _Published:
    spec = slice_.spec
    return _Published(spec.pool.generation, {Device(spec.node_name, one.name): _kind(one) for one in spec.devices})


def _kind(device: SliceDevice) -> DeviceKind:
    model = device.attributes.get("model")
    memory, slices = device.capacity.get("memory"), device.capacity.get("slices")
    return DeviceKind(
        memory=exact(parse(memory.value)) if memory else 0,
        slices=max(1, int(parse(slices.value))) if slices else 1,
        model=(model.string if model else None) or "",
    )
