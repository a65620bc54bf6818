"""Rebuilds ledger and drivers from what the API records: at start, and when an unknown allocation turns up.

Foreign allocations (ordinary DRA took a device of a driver that Parley runs) are told to the driver as devices
in use. Nothing is decided and nothing written here.
"""

from collections.abc import Mapping

from parley.api.builtin import BuiltinClaim
from parley.api.models import ResourceClaim
from parley.api.names import POD_CLAIM_NAME_ANNOTATION
from parley.control.cluster import Cluster
from parley.control.ledger import Holding, Ledger
from parley.control.mirror import allocated, driver_of, is_mirror, is_offer, nodes_of, owner_pod
from parley.sdk import Allocation, Device, Held, PodReference
from parley.sdk.embedded import EmbeddedDriver

Drivers = Mapping[str, EmbeddedDriver]


def restore(cluster: Cluster, ledger: Ledger, drivers: Drivers) -> set[str]:
    """Take over everything that is recorded. Returns the UIDs of users that the pod cache does not have."""
    for mirror in cluster.mirrors():
        if is_mirror(mirror):
            adopt(cluster, ledger, drivers, mirror)
        else:
            count_foreign(drivers, mirror)
    for claim in cluster.claims():
        _adopt_named(cluster, ledger, drivers, claim)
    users = {user for holding in ledger for user in holding.pods.values()}
    return {user.uid for user in users if not _cached(cluster, user)}


def _cached(cluster: Cluster, user: PodReference) -> bool:
    pod = cluster.pod((user.namespace, user.name))
    return pod is not None and pod.metadata.uid == user.uid


def adopt(cluster: Cluster, ledger: Ledger, drivers: Drivers, mirror: BuiltinClaim) -> None:
    """Remember what a generated claim holds by its own record, if it is definite and the driver runs here."""
    allocation = mirror.status.allocation
    if allocation is None or not (user := owner_pod(mirror)):
        return
    driver = driver_of(allocation)
    found = allocated(mirror, driver)
    if driver not in drivers or found is None or ledger.get(mirror.metadata.uid) is not None:
        return
    holding = Holding(
        uid=mirror.metadata.uid,
        namespace=mirror.metadata.namespace,
        claim=mirror.metadata.name,
        entry=mirror.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, ""),
        named=False,
        driver=driver,
        node=_node_of(cluster, user, mirror),
        allocation=found,
        pods={user.uid: user},
        version=int(mirror.metadata.resource_version),
        offered=is_offer(allocation),
    )
    _take_over(ledger, drivers, holding)


def _node_of(cluster: Cluster, user: PodReference, mirror: BuiltinClaim) -> str:
    """The allocation's one node; of an offer, the node where the scheduler put the pod."""
    assert mirror.status.allocation is not None
    nodes = nodes_of(mirror.status.allocation)
    if len(nodes) == 1:
        return nodes[0]
    pod = cluster.pod((user.namespace, user.name))
    return (pod.spec.node_name or pod.status.nominated_node_name) if pod is not None else ""


def _adopt_named(cluster: Cluster, ledger: Ledger, drivers: Drivers, claim: ResourceClaim) -> None:
    allocation = claim.status.allocation
    if allocation is None or not allocation.handles or allocation.handles[0].driver_name not in drivers:
        return
    handle, meta = allocation.handles[0], claim.metadata
    mirror = cluster.mirror((meta.namespace, meta.name))
    terms = allocation.available_on_nodes.node_selector_terms if allocation.available_on_nodes else ()
    holding = Holding(
        uid=meta.uid,
        namespace=meta.namespace,
        claim=meta.name,
        entry="",
        named=True,
        driver=handle.driver_name,
        node=next((field.values[0] for term in terms for field in term.match_fields), ""),
        allocation=Allocation(tuple(Device(d.pool, d.device) for d in handle.devices), handle.data or {}),
        pods={user.uid: PodReference(meta.namespace, user.name, user.uid) for user in claim.status.reserved_for},
        shareable=allocation.shareable,
        version=int(mirror.metadata.resource_version) if mirror and mirror.status.allocation else 0,
    )
    _take_over(ledger, drivers, holding)


def _take_over(ledger: Ledger, drivers: Drivers, holding: Holding) -> None:
    drivers[holding.driver].restore(
        Held(holding.uid, holding.node or None, holding.allocation.devices, holding.allocation.data)
    )
    ledger.add(holding)


def count_foreign(drivers: Drivers, claim: BuiltinClaim) -> bool:
    """Tell drivers of devices that an ordinary claim took; returns whether there were any."""
    allocation = claim.status.allocation
    taken: dict[str, list[Device]] = {}
    for result in allocation.devices.results if allocation else ():
        if result.driver in drivers:
            taken.setdefault(result.driver, []).append(Device(result.pool, result.device))
    for driver, devices in taken.items():
        drivers[driver].restore(Held(claim.metadata.uid, None, tuple(devices), None))
    return bool(taken)
