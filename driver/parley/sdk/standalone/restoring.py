"""Restores a driver from the claims' records: at start, and when the API shows an unknown allocation later."""

from collections.abc import Iterable

from parley.api.builtin import Node
from parley.api.models import ResourceClaim
from parley.kube.cache import Key
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.recorded import driver_of_record, held_as_recorded, recorded
from parley.sdk.standalone.holdings import AllocationStage, Holdings, StandaloneHolding
from parley.sdk.standalone.informers import Informers
from parley.sdk.standalone.records import StandaloneRecords
from parley.sdk.values import Allocation, Held


def held(claim: ResourceClaim, nodes: Iterable[Node]) -> Held:
    """The allocation of an allocated claim. Its node is the first one in the record, None if the claim can be used
    on every node. `nodes` are the cluster's, for a record that selects nodes by labels."""
    return held_as_recorded(claim.metadata.uid, *_recorded(claim, nodes))


def _recorded(claim: ResourceClaim, nodes: Iterable[Node]) -> tuple[str, Allocation]:
    found = recorded(claim, nodes)
    assert found is not None
    return found


def restore_one(driver: EmbeddedDriver, holdings: Holdings, claim: ResourceClaim, nodes: Iterable[Node]) -> None:
    """Restores the allocation in the claim's record."""
    (node, allocation), meta = _recorded(claim, nodes), claim.metadata
    record = held_as_recorded(meta.uid, node, allocation)
    driver.restore(record, f"{meta.namespace}/{meta.name}", local=allocation.available_on == ())
    holdings.put(meta.uid, StandaloneHolding((meta.namespace, meta.name), record.node, AllocationStage.RECORDED))


def restore(driver: EmbeddedDriver, informers: Informers, holdings: Holdings, records: StandaloneRecords) -> None:
    """At start, restores all recorded allocations; claims with only the finalizer may hold something, too."""
    for claim in informers.claims():
        meta = claim.metadata
        if driver_of_record(claim) == driver.name:
            restore_one(driver, holdings, claim, informers.nodes())
        elif records.has_finalizer(claim):
            key: Key = (meta.namespace, meta.name)
            holdings.put(
                meta.uid, StandaloneHolding(key, records.begun_on(claim) or None, AllocationStage.CARRIED)
            )
