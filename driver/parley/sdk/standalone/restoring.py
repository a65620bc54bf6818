"""Tells a driver what it holds by the claims' own records: at start, and when an allocation turns up later."""

from parley.api.models import ResourceClaim
from parley.kube.cache import Key
from parley.sdk.driver import Held
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.recorded import driver_of_record, held_as_recorded, recorded
from parley.sdk.standalone.holdings import Holdings, Stage, StandaloneHolding
from parley.sdk.standalone.records import StandaloneRecords
from parley.sdk.standalone.view import View


def held(claim: ResourceClaim) -> Held:
    """What an allocated claim holds. Its node is the first that the record names; None if it can be used
    everywhere."""
    found = recorded(claim, ())
    assert found is not None
    return held_as_recorded(claim.metadata.uid, *found)


def restore_one(driver: EmbeddedDriver, holdings: Holdings, claim: ResourceClaim) -> None:
    """The driver counts what the claim's record says."""
    found, meta = held(claim), claim.metadata
    driver.restore(found, f"{meta.namespace}/{meta.name}")
    holdings.put(meta.uid, StandaloneHolding((meta.namespace, meta.name), found.node, Stage.RECORDED))


def restore(driver: EmbeddedDriver, view: View, holdings: Holdings, records: StandaloneRecords) -> None:
    """At start: what is recorded is held, and what is only marked may be."""
    for claim in view.claims():
        meta = claim.metadata
        if driver_of_record(claim) == driver.name:
            restore_one(driver, holdings, claim)
        elif records.marked(claim):
            key: Key = (meta.namespace, meta.name)
            holdings.put(meta.uid, StandaloneHolding(key, records.marked_for(claim) or None, Stage.CARRIED))
