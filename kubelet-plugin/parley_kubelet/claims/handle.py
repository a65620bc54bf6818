"""Reads from a built-in claim which devices and handle were allocated for it by this driver on this node.

Refuses, with a message for the user, a claim that is not this driver's on this node. `preparation` checks whether
the handle fits the driver's schema; the driver checks whether the devices exist.

The controller writes results and a handle. Either each result names a device and the handle is an opaque
configuration; or the only result is a placeholder, because the devices were found after the allocation was written
or there are none to name, and the handle may be in the `data` of that result's entry in `status.devices`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from parley.api.builtin import BuiltinClaim, DeviceResult, Node, NodeSelector, NodeSelectorTerm, ObjectMeta
from parley.api.names import GROUP
from parley.api.opaque import read
from parley.api.selectors import matches
from parley_kubelet.hooks import DeviceName, Refused
from parley_kubelet.names import PLACEHOLDER
from parley_kubelet.state.checkpoint import ReportedDevice


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """A driver's allocation for a claim on this node: the results that the kubelet gets, by request; the devices,
    each once; the handle, and the field of the claim that has it."""

    results: tuple[ReportedDevice, ...]
    devices: tuple[DeviceName, ...]
    handle: Any
    field: str


def node_allocation(
    claim: BuiltinClaim, *, uid: str, driver: str, node: str, labels: Mapping[str, str] | None = None
) -> NodeAllocation:
    """What this driver allocated for the claim on this node. `labels` are the node's, needed only if the claim
    `selects_nodes_by_labels`.

    Raises Refused if the claim is another one of the same name, is not allocated by this driver and for this node,
    was not allocated by Parley, or is reserved for no pod.
    """
    full = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if claim.metadata.uid != uid:
        raise Refused(
            f"claim {full}: uid={claim.metadata.uid!r} is another claim of that name, the pod was given {uid!r}:"
            " delete the pod, so that it is recreated with the new claim"
        )
    results = _results(claim, driver, full)
    _check_allocator(claim, driver, full)
    _check_node(claim, node, labels, full)
    if not claim.status.reserved_for:
        raise Refused(
            f"claim {full}: status.reservedFor is empty, no pod may use the claim: wait until parley-controller"
            " has reserved it, or delete the pod"
        )
    field, handle = _handle(claim, results, driver, full)
    named = _named_devices(results) or _devices_in_handle(results, handle)
    devices = tuple(dict.fromkeys(DeviceName(result.pool, result.device) for result in named))
    reported = named or tuple(ReportedDevice(request=r.request, pool=r.pool, device=r.device) for r in results)
    return NodeAllocation(reported, devices, handle, field)


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


def _check_allocator(claim: BuiltinClaim, driver: str, full: str) -> None:
    """Refuses claims of ordinary DRA: their opaque configurations were written by users, not by the controller."""
    if not claim.spec.devices.is_negotiated:
        raise Refused(
            f"claim {full}: devices of {driver} were allocated by ordinary DRA, not by parley-controller: create a"
            f" claim of {GROUP} with a class of that driver"
        )


def selects_nodes_by_labels(claim: BuiltinClaim) -> bool:
    """Whether the claim's node selector selects nodes by their labels."""
    selector = claim.status.allocation.node_selector if claim.status.allocation else None
    return selector is not None and any(term.match_expressions for term in selector.node_selector_terms)


def is_on_other_nodes(claim: BuiltinClaim, node: str) -> bool:
    """Whether the claim's node selector names nodes, and not this one."""
    selector = claim.status.allocation.node_selector if claim.status.allocation else None
    return selector is not None and not selects_nodes_by_labels(claim) and not _names_node(selector, node)


def _check_node(claim: BuiltinClaim, node: str, labels: Mapping[str, str] | None, full: str) -> None:
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation else None
    if selector is None or _names_node(selector, node):
        return
    if labels is not None:
        if not matches(selector, Node(metadata=ObjectMeta(name=node, labels=dict(labels)))):
            raise Refused(
                f"claim {full}: status.allocation.nodeSelector selects nodes by labels that node {node!r} does not"
                " have: delete the pod, so that a scheduler places it where the claim is"
            )
    else:
        names = ", ".join(dict.fromkeys(_node_names(selector))) or "no node by its name"
        raise Refused(
            f"claim {full}: status.allocation.nodeSelector names {names}, and this is node {node!r}:"
            " delete the pod, so that its claim is negotiated again"
        )


def _names_node(selector: NodeSelector, node: str) -> bool:
    """Whether the selector has a term with this node's name alone, as for allocations on one node."""
    return any(node in _term_names(term) for term in selector.node_selector_terms)


def _node_names(selector: NodeSelector) -> Iterator[str]:
    for term in selector.node_selector_terms:
        yield from _term_names(term)


def _term_names(term: NodeSelectorTerm) -> list[str]:
    """The nodes that a term selects by name; none if it has other requirements."""
    if term.match_expressions or len(term.match_fields) != 1:
        return []
    (field,) = term.match_fields
    return field.values if (field.key, field.operator) == ("metadata.name", "In") else []


def _handle(claim: BuiltinClaim, results: tuple[DeviceResult, ...], driver: str, full: str) -> tuple[str, Any]:
    field, data = next(_handles(claim, results, driver), ("", None))
    if data is None:
        raise Refused(
            f"claim {full}: nodes are offered, but no device of {driver} is allocated yet:"
            " wait until parley-controller has allocated it"
        )
    return field, data


def _handles(
    claim: BuiltinClaim, results: tuple[DeviceResult, ...], driver: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The field and content of each handle, in order of precedence."""
    if any(_is_placeholder(result) for result in results):
        for status in claim.status.devices:
            placeholder = (status.driver, status.pool, status.device) == (driver, *PLACEHOLDER)
            if placeholder and (data := read(status.data)) is not None:
                yield "status.devices.data", data
    allocation = claim.status.allocation
    for config in allocation.devices.config if allocation else ():
        if config.opaque is not None and config.opaque.driver == driver:
            yield "status.allocation.devices.config.opaque.parameters", read(config.opaque.parameters)


def _is_placeholder(result: DeviceResult) -> bool:
    return (result.pool, result.device) == PLACEHOLDER


def _named_devices(results: tuple[DeviceResult, ...]) -> tuple[ReportedDevice, ...]:
    return tuple(
        ReportedDevice(request=result.request, pool=result.pool, device=result.device)
        for result in results
        if not _is_placeholder(result)
    )


def _devices_in_handle(results: tuple[DeviceResult, ...], handle: Any) -> tuple[ReportedDevice, ...]:
    """The devices behind a placeholder, if the handle lists any. The kubelet gets these instead of the
    placeholder, so that each device's health is reported."""
    listed = handle.get("devices") if isinstance(handle, dict) else None
    found = [_device(item) for item in listed] if isinstance(listed, list) else []
    devices = dict.fromkeys(device for device in found if device is not None)
    return tuple(ReportedDevice(request=results[0].request, pool=d.pool, device=d.device) for d in devices)


def _device(item: Any) -> DeviceName | None:
    if not isinstance(item, dict):
        return None
    pool, device = item.get("pool"), item.get("device")
    return DeviceName(pool, device) if isinstance(pool, str) and isinstance(device, str) else None
