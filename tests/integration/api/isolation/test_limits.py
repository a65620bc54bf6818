"""What a class's limits keep a standalone driver from: immediate claims that the controller has not accepted."""

import uuid
from collections.abc import AsyncIterator

import pytest
from tests.integration.api.isolation.conftest import ACCEPTED, ALLOCATED, DISKS, MARKS

from parley.api.resources import CLAIMS, CLASSES
from parley.kube.client import Client, Forbidden

pytestmark = pytest.mark.cluster


@pytest.fixture
async def limited(admin: Client) -> AsyncIterator[str]:
    """A class of the driver's, of which each namespace may have one claim."""
    name = f"limited-{uuid.uuid4().hex[:6]}"
    body = {"metadata": {"name": name}, "driverName": DISKS, "limits": [{"claims": 1}]}
    await admin.create(CLASSES, body)
    yield name
    await admin.delete(CLASSES, name)


@pytest.mark.parametrize("begins", [{"metadata": MARKS}, {"status": ALLOCATED}], ids=["finalizer", "allocation"])
async def test_an_immediate_claim_is_allocated_when_it_is_accepted(
    admin: Client, driver: Client, namespace: str, limited: str, begins: dict[str, object]
) -> None:
    spec = {"resourceClassName": limited, "allocationMode": "Immediate"}
    await admin.create(CLAIMS, {"metadata": {"name": "now"}, "spec": spec}, namespace)
    of_status = "status" if "status" in begins else ""

    with pytest.raises(
        Forbidden, match=f"its class {limited} has limits: allocate it when its condition Accepted"
    ):
        await driver.patch(CLAIMS, "now", begins, namespace, subresource=of_status)

    refused = {**ACCEPTED, "status": "False", "reason": "LimitReached"}
    await admin.patch(CLAIMS, "now", {"status": {"conditions": [refused]}}, namespace, subresource="status")
    with pytest.raises(Forbidden, match="has limits"):
        await driver.patch(CLAIMS, "now", begins, namespace, subresource=of_status)

    await admin.patch(CLAIMS, "now", {"status": {"conditions": [ACCEPTED]}}, namespace, subresource="status")
    await driver.patch(CLAIMS, "now", begins, namespace, subresource=of_status)


async def test_a_claim_that_pods_use_needs_no_acceptance(
    admin: Client, driver: Client, namespace: str, limited: str
) -> None:
    """The controller has counted it when it selects a node."""
    await admin.create(CLAIMS, {"metadata": {"name": "later"}, "spec": {"resourceClassName": limited}}, namespace)

    await driver.patch(CLAIMS, "later", {"metadata": MARKS}, namespace)
    await driver.patch(CLAIMS, "later", {"status": ALLOCATED}, namespace, subresource="status")
