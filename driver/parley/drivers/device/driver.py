"""The device driver: finds nodes with the devices that a pod's claims request, and allocates devices."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from parley.api.builtin import ResourceSlice
from parley.api.quantity import parse
from parley.api.resources import RESOURCE_SLICES, Resource
from parley.api.wording import noun_for
from parley.drivers.device.findings import STEPS_PER_CALL, STEPS_PER_NODE, Findings, NodeFinding
from parley.drivers.device.flow import OutOfSteps, Steps
from parley.drivers.device.inventory import Inventory
from parley.drivers.device.packing import ClaimDemand, exact
from parley.sdk import (
    Allocation,
    Answer,
    Capacity,
    ClaimRequest,
    ClassOnNodes,
    Device,
    Driver,
    Held,
    NoParameters,
    Parameters,
    Request,
)
from parley.sdk.checks import MAX_ALTERNATIVES, MAX_DEVICES

_LEAST = 200
"""Steps for each node, of however many: with fewer, none of thousands would be found out about. Eight claims on a
node of eight devices that all differ take about as many."""

_QUICK = 500
"""The most search steps for each possible alternative node: it is searched fully when it is a candidate."""

_STEPS_FOR_REASONS = 20_000
"""The most steps of one call for reasons by claim and node; beyond that, reasons are about all claims together."""

_TOO_MANY = (
    "too many combinations to search: have the pod request less at once, with fewer claims (`count` takes several "
    "devices with one) or claims that are alike"
)


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

    @cached_property
    def demand(self) -> ClaimDemand:
        """The parameters as a demand, for comparison with devices."""
        return ClaimDemand(self.count, self.model, exact(parse(self.memory)), self.shared)


class NotEnough(Exception):
    """Raised when the devices that were free when the driver was asked are not free any more."""


DeviceRequest = Request[DeviceParameters, NoParameters]


class DeviceDriver(Driver[DeviceParameters, NoParameters]):
    """Devices from ResourceSlices of this driver's name, handed out whole or by share.

    All state is in memory and changes between two awaits only, so two requests never get the same device.
    """

    name: ClassVar[str] = "device.parley.dev"
    parameters = DeviceParameters
    class_parameters = NoParameters
    parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {"device.parley.dev/v1alpha1": DeviceParameters}
    class_parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {
        "device.parley.dev/v1alpha1": NoParameters
    }
    node_local: ClassVar[bool] = True
    watches: ClassVar[tuple[Resource[Any], ...]] = (RESOURCE_SLICES,)

    def __init__(self) -> None:
        self._inventory = Inventory(self.name)
        self._findings = Findings(self._inventory.stock)

    def observe(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool | Collection[str]:
        """Takes over published devices; waiting pods may succeed on the nodes whose devices changed."""
        touched = self._inventory.publish(old, new)
        for node in touched:
            if not self._inventory.kinds(node):
                self._findings.forget(node)
        return touched

    def restore(self, held: Held) -> None:
        """Counts a claim's devices; an allocation of ordinary DRA takes whole devices."""
        shared = bool((held.data or {}).get("shared", False))
        self._inventory.hold(held.uid, held.devices, shared=shared)

    def forget(self, uid: str) -> None:
        """Frees the devices of a claim that ordinary DRA had allocated."""
        self._inventory.release(uid)

    def units(self, claim: ClaimRequest[DeviceParameters, NoParameters]) -> int:
        """The number of devices: the limits of a class count these; a share of a device counts as one."""
        return claim.parameters.count

    def viable(self, request: DeviceRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        """A node is viable if it has devices for all claims of the request together.

        A node whose search takes too long is not viable, and the reason says so.
        """
        demands, steps = _demands(request), Steps(STEPS_PER_CALL - STEPS_PER_NODE)
        share = max(_LEAST, steps.left // max(1, len(nodes)))
        found = dict(self._findings.each(demands, nodes, steps, share))
        steps.left += STEPS_PER_NODE
        open_ = [node for node in nodes if found[node] is None]  # the hard ones, with what the others have left
        found.update(self._findings.each(demands, open_, steps, STEPS_PER_NODE))
        viable = tuple(node for node in nodes if found[node] is NodeFinding.ROOM)
        alternatives = None if viable else self._alternatives(demands, frozenset(nodes), steps)
        refused = [node for node in nodes if found[node] is not NodeFinding.ROOM]
        left = Steps(_STEPS_FOR_REASONS)
        answers = {
            demand: Answer(
                viable,
                alternatives,
                {node: self._reason(demand, demands, node, found[node], left) for node in refused},
            )
            for demand in dict.fromkeys(demands)
        }
        return {claim.name: answers[demand] for claim, demand in zip(request.claims, demands, strict=True)}

    def capacity(self, of: ClassOnNodes[NoParameters]) -> Capacity:
        """The devices of the nodes; a device with a held share is not free."""
        free = 0
        for node in of.nodes:
            stock = self._inventory.stock(node)
            free += sum(len(names) for (kind, shares), names in stock.items() if shares == kind.slices)
        return Capacity(sum(len(self._inventory.kinds(node)) for node in of.nodes), free)

    def has_room(self, request: DeviceRequest, node: str) -> bool:
        """Whether the node may have devices for all claims of the request, after a short search."""
        return self._findings.has_room(_demands(request), node, _QUICK)

    def viable_without(self, request: DeviceRequest, node: str, uids: Collection[str]) -> bool:
        """Whether the node would have devices for all claims if the claims with these UIDs held none."""
        return self._findings.would_fit(_demands(request), self._inventory.stock_without(node, frozenset(uids)))

    def room_left(self, request: DeviceRequest, nodes: Sequence[str]) -> Mapping[str, float]:
        """The number of whole devices left that the request could use."""
        return self._inventory.fullness.room_left(_demands(request), nodes)

    def fullest(self, request: DeviceRequest) -> Iterable[str]:
        """The nodes with suitable devices, those with the fewest first."""
        return self._inventory.fullness.fullest(_demands(request))

    async def allocate(self, request: DeviceRequest, node: str) -> Mapping[str, Allocation]:
        """Holds the devices. Raises NotEnough if another request was faster."""
        try:
            packed = self._findings.pack(_demands(request), node)
        except OutOfSteps:
            raise NotEnough(f"node {node}: {_TOO_MANY}") from None
        if packed is None:
            raise NotEnough(
                f"node {node} no longer has free devices for {', '.join(c.name for c in request.claims)}"
            )
        return {
            claim.name: self._hold(claim.uid, names, shared=claim.parameters.shared)
            for claim, names in zip(request.claims, packed, strict=True)
        }

    async def deallocate(self, uid: str) -> None:
        """Frees the claim's devices at once."""
        self._inventory.release(uid)

    def _hold(self, uid: str, names: tuple[str, ...], *, shared: bool) -> Allocation:
        devices = tuple(Device(*name.rsplit("/", 1)) for name in names)
        self._inventory.hold(uid, devices, shared=shared)
        handle = {"devices": [{"pool": d.pool, "device": d.device} for d in devices], "shared": shared}
        return Allocation(devices, handle)

    def _alternatives(
        self, demands: tuple[ClaimDemand, ...], asked: frozenset[str], steps: Steps
    ) -> tuple[str, ...] | None:
        """Other nodes that have room; None if none was found and not all nodes were searched."""
        of_use = self._inventory.fullness.nodes_of_use(demands)
        if not of_use:
            return None if of_use is None else ()
        others = (node for node in self._inventory.nodes() if node in of_use and node not in asked)
        found, unknown = list[str](), False
        for node, finding in self._findings.each(demands, others, steps, _QUICK):
            unknown = unknown or finding in (None, NodeFinding.TOO_LONG) or not steps.left
            if finding is NodeFinding.ROOM:
                found.append(node)
            if len(found) == MAX_ALTERNATIVES or not steps.left:
                break
        return tuple(found) if found or not unknown else None

    def _reason(
        self,
        demand: ClaimDemand,
        demands: tuple[ClaimDemand, ...],
        node: str,
        finding: NodeFinding | None,
        steps: Steps,
    ) -> str:
        if finding is not NodeFinding.NO_ROOM:
            return _TOO_MANY
        kinds = self._inventory.kinds(node)
        if not kinds:
            return "has no devices"
        if not steps.try_take(len(kinds)):
            return f"has no devices for all {len(demands)} claims of the pod together"
        suitable = sum(1 for kind in kinds.values() if demand.suits(kind))
        free = demand.supply(self._inventory.stock(node))
        if free < demand.count:
            return f"{free} of {suitable} {_devices(demand, suitable)} free, {demand.count} wanted"
        return f"{free} {_devices(demand, free)} free, but not for all {len(demands)} claims of the pod together"


def _demands(request: DeviceRequest) -> tuple[ClaimDemand, ...]:
    return tuple(claim.parameters.demand for claim in request.claims)


def _devices(demand: ClaimDemand, number: int) -> str:
    noun = noun_for(number, "shared device" if demand.shared else "device")
    if demand.model is not None:
        noun += f" of model {demand.model}"
    if demand.memory:
        noun += f" with {float(demand.memory / 1024**3):g}Gi"
    return noun
