"""Receipts on a real API server: with the account, the permissions and the policy that the node plugin has."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.cluster.raw import raw
from tests.cluster.watching import LIMIT

from parley.api.names import (
    CLAIM_UID_ANNOTATION,
    RELEASE_RECORD_LABEL,
    RELEASING_FROM_ANNOTATION,
    RELEASING_LABEL,
)
from parley.api.resources import CLAIMS, CLASSES, NODES
from parley.kube.client import Client, NotFound
from parley.kube.http import HttpClient
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE, NODE_PLUGIN
from parley_kubelet.claims.preparation import Preparation
from parley_kubelet.claims.releases import Receipts
from parley_kubelet.configuration import Configuration
from parley_kubelet.driver.device_driver import DeviceNodeDriver
from parley_kubelet.state.durable import Folder

pytestmark = pytest.mark.cluster

CLASS = "of-devices"


@pytest.fixture
async def admin(installed: Cluster) -> AsyncIterator[Client]:
    async with HttpClient.from_kubeconfig(str(installed.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(installed: Cluster, admin: Client) -> AsyncIterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    raw(installed).post("/api/v1/namespaces", {"metadata": {"name": name}})
    await admin.create(CLASSES, {"metadata": {"name": CLASS}, "driverName": "device.parley.dev"})
    yield name
    await admin.delete(CLASSES, CLASS)


@pytest.fixture
async def node(admin: Client) -> AsyncIterator[str]:
    name = f"n-{uuid.uuid4().hex[:8]}"
    await admin.create(NODES, {"metadata": {"name": name}})
    yield name
    await admin.delete(NODES, name)


async def asked(admin: Client, namespace: str, name: str, node: str, **labels: str) -> None:
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "labels": {RELEASING_LABEL: "true", **labels},
            "annotations": {RELEASING_FROM_ANNOTATION: node, CLAIM_UID_ANNOTATION: "u1"},
        },
        "spec": {"resourceClassName": CLASS},
    }
    await admin.create(CLAIMS, body, namespace)


async def test_a_node_gives_its_receipts_and_no_other_nodes(
    installed: Cluster, admin: Client, namespace: str, node: str, tmp_path: Path
) -> None:
    await asked(admin, namespace, "claim", node)
    await asked(admin, namespace, "record", node, **{RELEASE_RECORD_LABEL: "true"})
    await asked(admin, namespace, "other", "n2")
    account = installed.kubeconfig_for_service_account(NAMESPACE, NODE_PLUGIN, node=node)
    async with HttpClient.from_kubeconfig(str(account)) as client:
        state, cdi = Folder(tmp_path / "state"), Folder(tmp_path / "cdi")
        plugin = Preparation(DeviceNodeDriver(node, Configuration()), client, state=state, cdi=cdi, boot="b")
        task = asyncio.create_task(Receipts(client, node, {"device.parley.dev": plugin}).run())
        with structlog.testing.capture_logs() as logs:
            async with asyncio.timeout(LIMIT):
                while not await given(admin, namespace):  # noqa: ASYNC110 - two objects, two events
                    await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [log["event"] for log in logs] == ["receipt given: not prepared on this node"] * 2
    other = (await admin.get(CLAIMS, "other", namespace)).metadata
    assert (RELEASING_LABEL in other.labels, other.annotations[RELEASING_FROM_ANNOTATION]) == (True, "n2")


async def given(admin: Client, namespace: str) -> bool:
    """Whether the claim's receipt is there and the record gone."""
    claim = (await admin.get(CLAIMS, "claim", namespace)).metadata
    try:
        await admin.get(CLAIMS, "record", namespace)
    except NotFound:
        return not (claim.labels or claim.annotations)
    return False
