"""Two standalone drivers on a real API server, with a question and claims for tests of what they may write.

Their accounts are those that `parley driver permissions` makes. The tests act as the driver for disks.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from tests.cluster.patience import patient
from tests.cluster.raw import raw

from parley.api.names import driver_finalizer
from parley.api.resources import CLAIMS, CLASSES, POD_SCHEDULINGS, PODS
from parley.cli.permissions import account_name, permissions
from parley.kube.client import Client
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

DISKS = f"disks-{uuid.uuid4().hex[:6]}.example.com"
SEATS = f"seats-{uuid.uuid4().hex[:6]}.example.com"
CLASS = {driver: driver.partition(".")[0] for driver in (DISKS, SEATS)}
USER = f"system:serviceaccount:{NAMESPACE}:{account_name(DISKS)}"

Body = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(installed: Cluster) -> Iterator[Cluster]:
    """With the classes and accounts of two drivers."""
    for driver in CLASS:
        installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(permissions(driver, NAMESPACE)))
    for driver, name in CLASS.items():
        raw(installed).post(CLASSES.path(), {**kind(CLASSES), "metadata": {"name": name}, "driverName": driver})
    yield installed
    for name in CLASS.values():
        raw(installed).request("DELETE", CLASSES.path(name=name))


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    async with patient(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def driver(cluster: Cluster) -> AsyncIterator[Client]:
    """The API server as the account of the driver for disks sees it."""
    account = cluster.kubeconfig_for_service_account(NAMESPACE, account_name(DISKS))
    async with patient(account) as client:
        yield client


@pytest.fixture
async def other_driver(cluster: Cluster) -> AsyncIterator[Client]:
    """The API server as the account of the driver for seats sees it."""
    account = cluster.kubeconfig_for_service_account(NAMESPACE, account_name(SEATS))
    async with patient(account) as client:
        yield client


@pytest.fixture
async def user(cluster: Cluster, namespace: str) -> AsyncIterator[Client]:
    """The API server as the account `user`, which has the role edit in the namespace, sees it."""
    cluster.kubectl("create", "serviceaccount", "user", "-n", namespace)
    subject = f"--serviceaccount={namespace}:user"
    cluster.kubectl("create", "rolebinding", "user", "--clusterrole=edit", subject, "-n", namespace)
    account = cluster.kubeconfig_for_service_account(namespace, "user")
    async with patient(account) as client:
        yield client


def kind(resource: Any) -> Body:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def entry(name: str, driver: str, **fields: Any) -> Body:
    return {"name": name, "driverName": driver, "round": 1, **fields}


@dataclass(frozen=True)
class Question:
    """A PodScheduling that asks both drivers, and has the answer of the one for seats and of one inside."""

    driver: Client
    namespace: str
    uid: str

    def apply(self, *entries: Body, manager: str = DISKS, **status: Any) -> Awaitable[Any]:
        """As a driver answers."""
        body = {
            **kind(POD_SCHEDULINGS),
            "metadata": {"name": "pod", "namespace": self.namespace, "uid": self.uid},
            "status": {"claims": list(entries), **status},
        }
        return self.driver.apply(
            POD_SCHEDULINGS,
            "pod",
            body,
            self.namespace,
            field_manager=manager,
            force=True,
        )

    def merge(self, body: Body) -> Awaitable[Any]:
        return self.driver.patch(POD_SCHEDULINGS, "pod", body, self.namespace)


@pytest.fixture
async def question(admin: Client, driver: Client, namespace: str) -> Question:
    containers = [{"name": "main", "image": "none"}]
    pod = {"metadata": {"name": "pod"}, "spec": {"schedulerName": "nobody", "containers": containers}}
    uid = (await admin.create(PODS, pod, namespace)).metadata.uid
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": uid}
    body: Body = {
        "metadata": {"name": "pod", "ownerReferences": [owner], "labels": {"parley.dev/drivers": "standalone"}},
        "spec": {
            "candidateNodes": ["n1", "n2"],
            "round": 1,
            "claims": [
                {"name": "disk", "driverName": DISKS, "resourceClaimName": "disk"},
                {"name": "seat", "driverName": SEATS, "resourceClaimName": "seat"},
            ],
        },
        "status": {
            "claims": [entry("gpu", "device.parley.dev"), entry("seat", SEATS, viableNodes=["n1"])],
            "waitingFor": "WaitingForDrivers",
        },
    }
    made = await admin.create(POD_SCHEDULINGS, body, namespace)
    return Question(driver, namespace, made.metadata.uid)


HANDLE = {"driverName": DISKS, "data": {"iqn": "a"}}
ALLOCATED: Body = {"driverName": DISKS, "allocation": {"handles": [HANDLE]}}
CLEARED: Body = {"driverName": None, "allocation": None, "deallocationRequested": None}
MARKS: Body = {"finalizers": [driver_finalizer(DISKS)], "annotations": {f"{DISKS}/allocating-on": "n1"}}
PROGRESS: Body = {
    "type": "Allocating",
    "status": "True",
    "reason": "InProgress",
    "message": "attached",
    "lastTransitionTime": "2026-11-22T00:00:00Z",
}
ACCEPTED: Body = {**PROGRESS, "type": "Accepted", "reason": "Accepted"}


@dataclass(frozen=True)
class Claim:
    """A claim as the driver for disks and as the controller write it."""

    driver: Client
    admin: Client
    namespace: str

    async def write(self, status: Body) -> None:
        await self.driver.patch(CLAIMS, "one", {"status": status}, self.namespace, subresource="status")

    async def mark(self, metadata: Body) -> None:
        await self.driver.patch(CLAIMS, "one", {"metadata": metadata}, self.namespace)

    async def is_(self, status: Body) -> None:
        """The controller, or another driver, wrote that."""
        await self.admin.patch(CLAIMS, "one", {"status": status}, self.namespace, subresource="status")


async def a_claim(driver: Client, admin: Client, namespace: str, of: str) -> Claim:
    metadata = {"name": "one", "finalizers": ["parley.dev/in-use"], "labels": {"kept": ""}}
    await admin.create(CLAIMS, {"metadata": metadata, "spec": {"resourceClassName": CLASS[of]}}, namespace)
    claim = Claim(driver, admin, namespace)
    await claim.is_({"conditions": [ACCEPTED]})
    return claim


@pytest.fixture
async def own(driver: Client, admin: Client, namespace: str) -> Claim:
    """A claim of a class of the driver's."""
    return await a_claim(driver, admin, namespace, DISKS)


@pytest.fixture
async def foreign(driver: Client, admin: Client, namespace: str) -> Claim:
    """A claim of a class of the other driver's."""
    return await a_claim(driver, admin, namespace, SEATS)
