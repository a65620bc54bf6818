"""Restores a driver from the claims' own records: at start, and when an unknown allocation turns up later."""

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
    """What an allocated claim holds. Its node is the first where it can be used by the record, None if that is
    everywhere. `nodes` are the cluster's, for a record that selects them by labels."""
    return held_as_recorded(claim.metadata.uid, *_recorded(claim, nodes))


def _recorded(claim: ResourceClaim, nodes: Iterable[Node]) -> tuple[str, Allocation]:
    found = recorded(claim, nodes)
    assert found is not None
    return found


def restore_one(driver: EmbeddedDriver, holdings: Holdings, claim: ResourceClaim, nodes: Iterable[Node]) -> None:
    """The driver counts what the claim's record has."""
    (node, allocation), meta = _recorded(claim, nodes), claim.metadata
    found = held_as_recorded(meta.uid, node, allocation)
    driver.restore(found, f"{meta.namespace}/{meta.name}", local=allocation.available_on == ())
    holdings.put(meta.uid, StandaloneHolding((meta.namespace, meta.name), found.node, AllocationStage.RECORDED))


def restore(driver: EmbeddedDriver, informers: Informers, holdings: Holdings, records: StandaloneRecords) -> None:
    """At start: what is recorded is held, and what has only the finalizer may be."""
    for claim in informers.claims():
        meta = claim.metadata
        if driver_of_record(claim) == driver.name:
            restore_one(driver, holdings, claim, informers.nodes())
        elif records.has_finalizer(claim):
            key: Key = (meta.namespace, meta.name)
            holdings.put(
                meta.uid, StandaloneHolding(key, records.begun_on(claim) or None, AllocationStage.CARRIED)
            )
