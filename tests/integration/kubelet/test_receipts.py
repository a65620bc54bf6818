"""Receipts on a real API server: with the account, the permissions and the policy that the node plugin has."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from tests.cluster.patience import patient
from tests.cluster.watching import until

from parley.api.resources import CLAIM_RELEASES, NODES
from parley.kube.client import Client
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.state.durable import Folder

pytestmark = pytest.mark.cluster


@pytest.fixture
async def admin(installed: Cluster) -> AsyncIterator[Client]:
    async with patient(installed.kubeconfig) as client:
        yield client


@pytest.fixture
async def node(admin: Client) -> AsyncIterator[str]:
    name = f"n-{uuid.uuid4().hex[:8]}"
    await admin.create(NODES, {"metadata": {"name": name}})
    yield name
    await admin.delete(NODES, name)


async def asked(admin: Client, name: str, node: str) -> None:
    spec = {
        "claim": {"namespace": "default", "name": "mine", "uid": "u1"},
        "holdingUid": "u1",
        "nodeName": node,
        "driverName": "device.parley.dev",
        "allocation": {},
    }
    body = {"metadata": {"name": name}, "spec": spec, "status": {"allocationCleared": True}}
    await admin.create(CLAIM_RELEASES, body)


async def test_a_node_gives_its_receipts_and_no_other_nodes(
    installed: Cluster, admin: Client, node: str, tmp_path: Path
) -> None:
    await asked(admin, f"own-{node}", node)
    await asked(admin, f"other-{node}", "n2")
    account = installed.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=node)
    async with patient(account) as client:
        state, cdi = Folder(tmp_path / "state"), Folder(tmp_path / "cdi")
        plugin = Preparation(DeviceNodeDriver(node, Configuration()), client, state=state, cdi=cdi, boot="b")
        task = asyncio.create_task(Receipts(client, node, {"device.parley.dev": plugin}).run())
        with structlog.testing.capture_logs() as logs:
            await until(admin, CLAIM_RELEASES, lambda seen: ("", f"own-{node}") not in seen, "the receipt")
            async with asyncio.timeout(60):
                while not logs:  # noqa: ASYNC110 - the entry follows the answer, which watches may overtake
                    await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [log["event"] for log in logs] == ["receipt given: not prepared on this node"]
    await admin.delete(CLAIM_RELEASES, f"other-{node}")
