"""The device driver: which nodes have the devices that a pod's claims ask for, and which devices those get."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from parley.api.builtin import ResourceSlice
from parley.api.quantity import parse
from parley.api.resources import RESOURCE_SLICES, Resource
from parley.drivers.device.inventory import Inventory
from parley.drivers.device.packing import Demand, Stock, exact, pack
from parley.sdk import Allocation, Answer, Device, Driver, Held, NoParameters, Parameters, Request
from parley.sdk.checks import MAX_ALTERNATIVES, MAX_DEVICES

_KEPT = 256
"""So many different demands are remembered with the nodes that can serve them."""


def _quantity(text: str) -> str:
    if parse(text) < 0:
        raise ValueError("must not be negative")
    return text


class DeviceParameters(Parameters):
    """What a claim asks for."""

    count: Annotated[int, Field(ge=1, le=MAX_DEVICES, strict=True, description="How many different devices.")] = 1
    model: Annotated[str | None, Field(min_length=1, max_length=64, description="Only devices of this model.")] = (
        None
    )
    memory: Annotated[
        str,
        Field(max_length=64, description="At least this much for each device or share."),
        AfterValidator(_quantity),
    ] = "0"
    shared: Annotated[bool, Field(description="One share of each device rather than the whole.")] = False


class NotEnough(Exception):
    """Raised when the devices that were free at the question are not free any more."""


DeviceRequest = Request[DeviceParameters, NoParameters]


class DeviceDriver(Driver[DeviceParameters, NoParameters]):
    """Devices from ResourceSlices of this driver's name, handed out whole or by share.

    All state is in memory and changes between two awaits only, so two requests never get the same device.
    """

    name: ClassVar[str] = "device.parley.dev"
    parameters = DeviceParameters
    class_parameters = NoParameters
    watches: ClassVar[tuple[Resource[Any], ...]] = (RESOURCE_SLICES,)

    def __init__(self) -> None:
        self._inventory = Inventory(self.name)
        self._found: dict[tuple[Demand, ...], dict[str, tuple[Stock, bool]]] = {}

    def observe(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """Learn of devices; waiting pods are worth another look if any of ours changed."""
        return self._inventory.publish(old, new)

    def restore(self, held: Held) -> None:
        """Count a claim's devices; a foreign allocation takes whole devices."""
        shared = bool((held.data or {}).get("shared", False))
        self._inventory.hold(held.uid, held.devices, shared=shared)

    def forget(self, uid: str) -> None:
        """A foreign claim's devices are free."""
        self._inventory.release(uid)

    def viable(self, request: DeviceRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        """A node is viable if it has devices for all claims of the request together."""
        demands = _demands(request)
        viable = tuple(self._has_room(demands, nodes))
        alternatives = None if viable else self._alternatives(demands, frozenset(nodes))
        with_room = frozenset(viable)
        refused = [node for node in nodes if node not in with_room]
        answers = {
            demand: Answer(viable, alternatives, {node: self._reason(demand, demands, node) for node in refused})
            for demand in set(demands)
        }
        return {claim.name: answers[demand] for claim, demand in zip(request.claims, demands, strict=True)}

    async def allocate(self, request: DeviceRequest, node: str) -> Mapping[str, Allocation]:
        """Hold the devices. Raises NotEnough if another request was faster."""
        packed = self._packed(_demands(request), node)
        if packed is None:
            raise NotEnough(
                f"node {node} no longer has free devices for {', '.join(c.name for c in request.claims)}"
            )
        return {
            claim.name: self._hold(claim.uid, names, shared=claim.parameters.shared)
            for claim, names in zip(request.claims, packed, strict=True)
        }

    async def deallocate(self, uid: str) -> None:
        """The claim's devices are free at once."""
        self._inventory.release(uid)

    def _has_room(self, demands: tuple[Demand, ...], nodes: Iterable[str]) -> Iterator[str]:
        """Those of the nodes that have devices for all demands.

        Many pods ask for the same of nodes of which few have changed: what was found is kept together with the
        stock that it was found in, which the inventory replaces whenever it changes.
        """
        if len(self._found) > _KEPT:
            self._found.clear()
        found = self._found.setdefault(demands, {})
        for node in nodes:
            stock = self._inventory.stock(node)
            known = found.get(node)
            if known is None or known[0] is not stock:
                known = found[node] = (stock, self._packed(demands, node) is not None)
            if known[1]:
                yield node

    def _packed(self, demands: tuple[Demand, ...], node: str) -> tuple[tuple[str, ...], ...] | None:
        stock = self._inventory.stock(node)
        return pack(demands, stock) if stock else None

    def _hold(self, uid: str, names: tuple[str, ...], *, shared: bool) -> Allocation:
        devices = tuple(Device(*name.rsplit("/", 1)) for name in names)
        self._inventory.hold(uid, devices, shared=shared)
        handle = {"devices": [{"pool": d.pool, "device": d.device} for d in devices], "shared": shared}
        return Allocation(devices, handle)

    def _alternatives(self, demands: tuple[Demand, ...], asked: frozenset[str]) -> tuple[str, ...]:
        others = (node for node in self._inventory.nodes() if node not in asked)
        return tuple(islice(self._has_room(demands, others), MAX_ALTERNATIVES))

    def _reason(self, demand: Demand, demands: tuple[Demand, ...], node: str) -> str:
        kinds = self._inventory.kinds(node)
        if not kinds:
            return "has no devices"
        suitable = sum(1 for kind in kinds.values() if demand.suits(kind))
        free = _free(demand, self._inventory.stock(node))
        if free < demand.count:
            return f"{free} of {suitable} {_words(demand)} free, {demand.count} wanted"
        return f"{free} {_words(demand)} free, but not for all {len(demands)} claims of the pod together"


def _demands(request: DeviceRequest) -> tuple[Demand, ...]:
    return tuple(
        Demand(p.count, p.model, exact(parse(p.memory)), p.shared) for p in (c.parameters for c in request.claims)
    )


def _free(demand: Demand, stock: Mapping[Any, tuple[str, ...]]) -> int:
    return sum(
        len(names)
        for (kind, free), names in stock.items()
        if demand.suits(kind) and (demand.shared or free == kind.slices)
    )


def _words(demand: Demand) -> str:
    words = "shared devices" if demand.shared else "devices"
    if demand.model is not None:
        words += f" of model {demand.model}"
    if demand.memory:
        words += f" with {float(demand.memory / 1024**3):g}Gi"
    return words
