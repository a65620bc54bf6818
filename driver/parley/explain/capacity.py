"""Total and free capacity of a class, for the drivers that come with Parley. No I/O.

Other drivers do not publish their capacity: for these only the claims can be counted.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from parley.api.models import ResourceClass
from parley.control.objects.mirror import is_mirror
from parley.drivers.device import DeviceDriver
from parley.drivers.device.inventory import Inventory
from parley.drivers.tokens import TokensDriver
from parley.drivers.workspace import WorkspaceDriver
from parley.explain.snapshot import Snapshot
from parley.sdk import Device
from parley.sdk.checks import BadParameters, DriverFault
from parley.sdk.referenced import ParametersUnavailable

Count = Callable[[ResourceClass, Collection[str]], "Availability | None"]


@dataclass(frozen=True, slots=True)
class Availability:
    """How many `what` there are, and how many are free. `partly` counts devices of which only some shares are
    free; these are not in `free`."""

    what: str
    total: int
    free: int
    partly: int = 0


class Capacities:
    """The capacities of a snapshot's classes. Inventories that classes share are built once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._counted: Mapping[str, Count] = {
            DeviceDriver.name: self._devices,
            TokensDriver.name: partial(self._as_counted, "tokens"),
            WorkspaceDriver.name: partial(self._as_counted, "MiB"),
        }

    def of(self, class_: ResourceClass, nodes: Collection[str]) -> Availability | None:
        """The capacity of a class on its suitable nodes; None if its driver does not publish it."""
        count = self._counted.get(class_.driver_name)
        return count(class_, nodes) if count is not None else None

    def _devices(self, _: ResourceClass, nodes: Collection[str]) -> Availability:
        total = free = partly = 0
        for node in nodes:
            total += len(self._inventory.kinds(node))
            for (kind, shares), names in self._inventory.stock(node).items():
                free += len(names) if shares == kind.slices else 0
                partly += len(names) if shares < kind.slices else 0
        return Availability("devices", total, free, partly)

    @cached_property
    def _inventory(self) -> Inventory:
        return _inventory(self._snapshot)

    def _as_counted(self, what: str, class_: ResourceClass, nodes: Collection[str]) -> Availability | None:
        """The capacity as the driver itself counts it, with all holdings restored."""
        try:
            found = self._snapshot.state.drivers[class_.driver_name].capacity(class_, list(nodes))
        except (BadParameters, DriverFault, ParametersUnavailable):
            return None
        return Availability(what, found.total, found.free) if found is not None else None


def _inventory(snapshot: Snapshot) -> Inventory:
    inventory = Inventory(DeviceDriver.name)
    for slice_ in snapshot.slices:
        inventory.publish(None, slice_)
    for holding in snapshot.state.ledger:
        if holding.driver == DeviceDriver.name:
            shared = bool(holding.allocation.data.get("shared"))
            inventory.hold(holding.uid, holding.allocation.devices, shared=shared)
    for claim in snapshot.mirrors.values():
        if not is_mirror(claim) and claim.status.allocation is not None:
            results = claim.status.allocation.devices.results
            taken = tuple(Device(r.pool, r.device) for r in results if r.driver == DeviceDriver.name)
            inventory.hold(claim.metadata.uid, taken, shared=False)
    return inventory
