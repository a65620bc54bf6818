"""What devices exist on each node, and who holds them. In memory, no decisions.

Devices come from ResourceSlices: one pool per node, attribute `model` (string), capacity `memory` (quantity)
and `slices` (how many shares a device can be split into; 1 if absent). Only the newest generation of a pool
counts, as in Kubernetes. What a claim holds stays counted when its device is no longer published.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from parley.api.builtin import ResourceSlice, SliceDevice
from parley.api.quantity import parse
from parley.drivers.device.packing import Kind, Stock, exact
from parley.sdk import Device


@dataclass(slots=True)
class _Node:
    """One node's devices by pool and name, and a cache of what is free."""

    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    kinds: dict[Device, Kind] = field(default_factory=dict)
    stock: Stock | None = None


class Inventory:
    """The devices of one driver over all nodes."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._nodes: dict[str, _Node] = {}
        self._node_of: dict[Device, str] = {}
        self._held: dict[str, tuple[tuple[Device, ...], bool]] = {}
        self._holders: defaultdict[Device, dict[str, bool]] = defaultdict(dict)

    def publish(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """Take over a changed ResourceSlice; returns whether it is one of this driver's."""
        touched = {s.spec.node_name for s in (old, new) if s is not None and s.spec.driver == self._driver}
        for slice_, present in ((old, False), (new, True)):
            if slice_ is None or slice_.spec.driver != self._driver:
                continue
            node = self._nodes.setdefault(slice_.spec.node_name, _Node())
            if present:
                node.slices[slice_.metadata.name] = slice_
            else:
                node.slices.pop(slice_.metadata.name, None)
        for name in touched:
            self._rebuild(name)
        return bool(touched)

    def _rebuild(self, name: str) -> None:
        node = self._nodes[name]
        for device in node.kinds:
            del self._node_of[device]
        newest: defaultdict[str, int] = defaultdict(int)
        for slice_ in node.slices.values():
            newest[slice_.spec.pool.name] = max(newest[slice_.spec.pool.name], slice_.spec.pool.generation)
        node.kinds = {
            Device(slice_.spec.pool.name, device.name): _kind(device)
            for slice_ in node.slices.values()
            if slice_.spec.pool.generation == newest[slice_.spec.pool.name]
            for device in slice_.spec.devices
        }
        self._node_of.update(dict.fromkeys(node.kinds, name))
        self._spoil(name)
        if not node.slices:
            del self._nodes[name]

    def _spoil(self, name: str) -> None:
        if node := self._nodes.get(name):
            node.stock = None

    def hold(self, uid: str, devices: tuple[Device, ...], *, shared: bool) -> None:
        """Count the devices, or one share of each, as held by the claim. Replaces what it held before."""
        self.release(uid)
        self._held[uid] = (devices, shared)
        for device in devices:
            self._holders[device][uid] = shared
            self._spoil(self._node_of.get(device, ""))

    def release(self, uid: str) -> None:
        """The claim holds nothing any more. Idempotent."""
        devices, _ = self._held.pop(uid, ((), False))
        for device in devices:
            holders = self._holders[device]
            holders.pop(uid, None)
            if not holders:
                del self._holders[device]
            self._spoil(self._node_of.get(device, ""))

    def held(self, uid: str) -> tuple[Device, ...] | None:
        """What the claim holds, or None."""
        holding = self._held.get(uid)
        return holding[0] if holding else None

    def nodes(self) -> tuple[str, ...]:
        """Nodes that publish devices."""
        return tuple(self._nodes)

    def kinds(self, node: str) -> Mapping[Device, Kind]:
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

    def _count(self, node: _Node) -> Stock:
        groups: defaultdict[tuple[Kind, int], list[str]] = defaultdict(list)
        for device in sorted(node.kinds):
            if free := self._free_shares(device, node.kinds[device]):
                groups[node.kinds[device], free].append(f"{device.pool}/{device.device}")
        return {group: tuple(names) for group, names in groups.items()}

    def _free_shares(self, device: Device, kind: Kind) -> int:
        holders = self._holders.get(device, {})
        if not all(holders.values()):
            return 0
        return max(0, kind.slices - len(holders))


def _kind(device: SliceDevice) -> Kind:
    model = device.attributes.get("model")
    memory, slices = device.capacity.get("memory"), device.capacity.get("slices")
    return Kind(
        memory=exact(parse(memory.value)) if memory else 0,
        slices=max(1, int(parse(slices.value))) if slices else 1,
        model=(model.string if model else None) or "",
    )
