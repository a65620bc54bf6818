"""What a standalone driver tries to write beyond its own claims and their status, on a real API server."""

import pytest
from tests.integration.api.isolation.conftest import ALLOCATED, CLASS, CLEARED, DISKS, MARKS, SEATS, Body, Claim

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES
from parley.kube.client import Client, Forbidden

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {f"{DISKS}/allocating-on": "n1"}},
        {"annotations": {f"{SEATS}/allocating-on": None}},
        {"finalizers": ["parley.dev/in-use"]},
        {"finalizers": ["parley.dev/in-use", driver_finalizer(SEATS), driver_finalizer(DISKS)]},
        {"managedFields": [{}]},
        {"labels": {"parley.dev/generated-for": "gpu"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]},
    ],
    ids=str,
)
async def test_nothing_at_all_is_written_to_a_claim_of_another_drivers_class(
    foreign: Claim, other_driver: Client, metadata: Body, mode: str
) -> None:
    name = f"one-{mode.lower()}"
    spec = {"resourceClassName": CLASS[SEATS], "allocationMode": mode}
    marked = {"finalizers": ["parley.dev/in-use"]}
    await foreign.admin.create(CLAIMS, {"metadata": {"name": name, **marked}, "spec": spec}, foreign.namespace)
    begun = {
        "finalizers": ["parley.dev/in-use", driver_finalizer(SEATS)],
        "annotations": {f"{SEATS}/allocating-on": "n1"},
    }
    await other_driver.patch(CLAIMS, name, {"metadata": begun}, foreign.namespace)

    with pytest.raises(Forbidden, match="denied request"):
        await foreign.driver.patch(CLAIMS, name, {"metadata": metadata}, foreign.namespace)


async def test_an_immediate_claim_of_another_drivers_class_is_not_allocated(foreign: Claim) -> None:
    spec = {"resourceClassName": CLASS[SEATS], "allocationMode": "Immediate"}
    await foreign.admin.create(CLAIMS, {"metadata": {"name": "now"}, "spec": spec}, foreign.namespace)

    with pytest.raises(Forbidden, match=f"of class {CLASS[SEATS]}, whose driver is {SEATS}"):
        await foreign.driver.patch(CLAIMS, "now", {"status": ALLOCATED}, foreign.namespace, subresource="status")


async def test_what_is_asked_for_is_its_users(own: Claim) -> None:
    for spec in ({"resourceClassName": CLASS[SEATS]}, {"parameters": {"size": "1Ti"}}):
        with pytest.raises(Exception, match="spec is immutable"):
            await own.driver.patch(CLAIMS, "one", {"spec": spec}, own.namespace)


async def test_status_and_the_rest_are_not_written_together(own: Claim) -> None:
    marks = {**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]], "labels": {"kept": None}}
    body = {"metadata": marks, "spec": {"resourceClassName": CLASS[SEATS]}, "status": ALLOCATED}

    written = await own.driver.patch(CLAIMS, "one", body, own.namespace, subresource="status")

    assert written.status.driver_name == DISKS
    assert written.metadata.finalizers == ("parley.dev/in-use",)
    assert written.metadata.labels == {"kept": ""}
    assert written.spec.resource_class_name == CLASS[DISKS]


async def test_how_long_an_unused_claim_stays_is_the_controllers_to_say(own: Claim) -> None:
    """A new controller would go by it, and keep the claim although its class does not say so."""
    forever = {"keptUntil": "9999-01-01T00:00:00Z"}

    with pytest.raises(Forbidden, match="the rest of status belongs to the controller"):
        await own.write({**ALLOCATED, **forever})

    await own.write(ALLOCATED)
    await own.is_(forever)
    with pytest.raises(Forbidden, match="the rest of status belongs to the controller"):
        await own.write({"keptUntil": None})
    await own.write(CLEARED)


async def test_two_drivers_names_are_not_in_one_write(own: Claim) -> None:
    both = {"finalizers": ["parley.dev/in-use", driver_finalizer(DISKS), driver_finalizer(SEATS)]}
    with pytest.raises(Forbidden, match="denied request"):
        await own.mark(both)
    handles = [{"driverName": DISKS, "data": {}}, {"driverName": SEATS, "data": {}}]
    with pytest.raises(Forbidden, match="have to be of one driver"):
        await own.write({"driverName": DISKS, "allocation": {"handles": handles}})


async def test_an_allocation_does_not_change_hands(own: Claim, other_driver: Client) -> None:
    await own.write({"driverName": DISKS, "allocation": {"handles": []}})
    taken = {"driverName": SEATS}
    for client in (own.driver, other_driver):
        with pytest.raises(Forbidden, match="denied request"):
            await client.patch(CLAIMS, "one", {"status": taken}, own.namespace, subresource="status")


async def test_its_own_claim_is_a_drivers_to_mark_until_the_end(own: Claim, other_driver: Client) -> None:
    """Also if its class has another driver by now, which may not take part."""
    await own.mark({**MARKS, "finalizers": ["parley.dev/in-use", *MARKS["finalizers"]]})
    await own.admin.patch(CLASSES, CLASS[DISKS], {"driverName": SEATS})
    try:
        await own.mark({"annotations": {f"{DISKS}/allocating-on": "n2"}})
        await own.mark({"finalizers": ["parley.dev/in-use"], "annotations": {f"{DISKS}/allocating-on": None}})
        with pytest.raises(Forbidden, match="whose driver is"):
            await own.mark({"annotations": {f"{DISKS}/allocating-on": "n3"}})
    finally:
        await own.admin.patch(CLASSES, CLASS[DISKS], {"driverName": DISKS})
