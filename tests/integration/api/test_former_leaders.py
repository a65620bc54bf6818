"""Fencing by the API server: what a pod of the controller sent while it led is refused once another pod leads."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.cluster.raw import raw

from parley.api.names import CONTROLLER_LEASE, DEVICE_CLASS
from parley.api.resources import BUILTIN_CLAIMS, LEASES, PODS
from parley.kube.client import Client, Forbidden, NotFound
from parley.kube.http import HttpClient
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER, NAMESPACE

pytestmark = pytest.mark.cluster

LIMIT = 30.0
ALLOCATION = {
    "devices": {
        "results": [{"request": "exclusive", "driver": "device.parley.dev", "pool": "n1", "device": "gpu-0"}]
    }
}
Lead = Callable[[str | None], Awaitable[None]]


@pytest.fixture
async def admin(installed: Cluster) -> AsyncIterator[Client]:
    async with HttpClient.from_kubeconfig(str(installed.kubeconfig)) as client:
        yield client


@pytest.fixture
async def replicas(installed: Cluster) -> AsyncIterator[dict[str, Client]]:
    """The API server as two pods of the controller see it, with the tokens that a kubelet gets for them."""
    names = [f"parley-controller-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    spec = {
        "serviceAccountName": CONTROLLER,
        "schedulingGates": [{"name": "parley.dev/test"}],
        "containers": [{"name": "main", "image": "none"}],
    }
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {}
        for name in names:
            raw(installed).post(PODS.path(NAMESPACE), {"metadata": {"name": name}, "spec": spec})
            stack.callback(raw(installed).request, "DELETE", PODS.path(NAMESPACE, name))
            account = installed.kubeconfig_for_service_account(NAMESPACE, CONTROLLER, pod=name)
            clients[name] = await stack.enter_async_context(HttpClient.from_kubeconfig(str(account)))
        yield clients


@pytest.fixture
async def lead(admin: Client) -> AsyncIterator[Lead]:
    """Makes a pod the holder of the controllers' Lease; None: nobody is. There is no Lease at first, and at the
    end
    the one that is installed."""

    async def remove() -> None:
        try:
            await admin.delete(LEASES, CONTROLLER_LEASE, NAMESPACE)
        except NotFound:
            return

    async def pass_on(pod: str | None) -> None:
        spec = {"holderIdentity": f"{pod}_{uuid.uuid4().hex[:8]}" if pod else "", "leaseDurationSeconds": 15}
        try:
            await admin.patch(LEASES, CONTROLLER_LEASE, {"spec": spec}, NAMESPACE)
        except NotFound:
            body = {"metadata": {"name": CONTROLLER_LEASE, "namespace": NAMESPACE}, "spec": spec}
            await admin.create(LEASES, body, NAMESPACE)

    await remove()
    yield pass_on
    await remove()
    await admin.create(LEASES, {"metadata": {"name": CONTROLLER_LEASE, "namespace": NAMESPACE}}, NAMESPACE)


@pytest.fixture
def mirror(installed: Cluster, namespace: str) -> dict[str, Any]:
    """A claim that waits."""
    spec = {"devices": {"requests": [{"name": "exclusive", "exactly": {"deviceClassName": DEVICE_CLASS}}]}}
    made: dict[str, Any] = raw(installed).post(
        BUILTIN_CLAIMS.path(namespace),
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one"}, "spec": spec},
    )
    return made


async def allocate(client: Client, mirror: dict[str, Any]) -> None:
    """Write the mirror's allocation as the controller does, with the version at which it was decided."""
    meta = mirror["metadata"]
    body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": {"allocation": ALLOCATION}}
    await client.patch(BUILTIN_CLAIMS, meta["name"], body, meta["namespace"], subresource="status")


async def may_write(client: Client, mirror: dict[str, Any]) -> str:
    """ "" or the refusal. What is written changes nothing, and is judged like any other write."""
    try:
        await client.patch(BUILTIN_CLAIMS, mirror["metadata"]["name"], {}, mirror["metadata"]["namespace"])
    except Forbidden as error:
        return str(error)
    return ""


async def until_seen(replicas: dict[str, Client], mirror: dict[str, Any], leaders: set[str]) -> None:
    """The API server knows Leases by a watch of its own: wait until it lets these pods write and no others."""
    async with asyncio.timeout(LIMIT):
        while True:
            if {pod for pod, client in replicas.items() if not await may_write(client, mirror)} == leaders:
                return
            await asyncio.sleep(0.05)


async def test_an_allocation_that_arrives_when_another_pod_leads_is_refused(
    replicas: dict[str, Client], lead: Lead, mirror: dict[str, Any]
) -> None:
    former, leader = replicas
    await lead(former)
    await until_seen(replicas, mirror, {former})
    await lead(leader)
    await until_seen(replicas, mirror, {leader})

    with pytest.raises(Forbidden) as refusal:
        await allocate(replicas[former], mirror)

    assert f"pod {former} does not lead: Lease {NAMESPACE}/{CONTROLLER_LEASE} is held by" in str(refusal.value)
    assert leader in str(refusal.value)
    await allocate(replicas[leader], mirror)


async def test_after_an_end_in_good_order_nobody_writes_and_without_a_lease_everybody_may(
    replicas: dict[str, Client], lead: Lead, mirror: dict[str, Any]
) -> None:
    await until_seen(replicas, mirror, set(replicas))
    await lead(None)
    await until_seen(replicas, mirror, set())


async def test_a_pod_whose_name_begins_like_the_leaders_does_not_lead(
    replicas: dict[str, Client], lead: Lead, mirror: dict[str, Any]
) -> None:
    former, leader = replicas
    await lead(former)
    await until_seen(replicas, mirror, {former})
    await lead(f"{leader}-2")
    await until_seen(replicas, mirror, set())


async def test_an_account_outside_the_cluster_and_other_accounts_are_let_through(
    installed: Cluster, replicas: dict[str, Client], lead: Lead, mirror: dict[str, Any]
) -> None:
    leader, _ = replicas
    await lead(leader)
    await until_seen(replicas, mirror, {leader})
    outside = installed.kubeconfig_for_service_account(NAMESPACE, CONTROLLER)
    async with HttpClient.from_kubeconfig(str(outside)) as client:
        assert await may_write(client, mirror) == ""
