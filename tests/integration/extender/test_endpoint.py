"""The leader writes its address into the EndpointSlice of the Service, with the rights of its account."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.patience import patient
from tests.cluster.starting import DEPLOY
from tests.cluster.watching import until_one

from parley.api.builtin import EndpointSlice
from parley.api.resources import ENDPOINT_SLICES, SERVICES
from parley.kube.client import Client
from parley.scheduler.extender.endpoint import LeaderEndpoint, ServiceAddress
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster


def the_service() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "extender-service" / "deployment.yaml").read_text())
    (service,) = (document for document in documents if document["kind"] == "Service")
    return dict(service)


def leads_to(ip: str) -> Any:
    def holds(found: EndpointSlice) -> bool:
        return [list(one.addresses) for one in found.endpoints] == [[ip]]

    return holds


async def test_the_service_leads_to_each_leader_in_turn(
    cluster: Cluster, controller_account: Path, admin: Client
) -> None:
    service = the_service()
    name = service["metadata"]["name"]
    await admin.create(SERVICES, service, NAMESPACE)
    try:
        async with patient(controller_account) as client:
            for ip in ("10.1.2.3", "10.1.2.4", "fd00::3"):
                address = ServiceAddress(name, ip, 8443)
                leading = asyncio.create_task(LeaderEndpoint(client, NAMESPACE, address).run())
                try:
                    what = (address.slice_name, leads_to(ip), f"leads to {ip}")
                    await until_one(admin, ENDPOINT_SLICES, *what, namespace=NAMESPACE)
                    await admin.delete(ENDPOINT_SLICES, address.slice_name, NAMESPACE)
                    await until_one(admin, ENDPOINT_SLICES, *what, namespace=NAMESPACE)
                finally:
                    leading.cancel()
                    await asyncio.gather(leading, return_exceptions=True)
    finally:
        await admin.delete(SERVICES, name, NAMESPACE)
