"""A control plane whose CRDs come and go in versions, with programs of Parley's that stop meanwhile.

`crds-7ae2afa.yaml` holds the CRDs as they were at that commit. The nodes are objects only.
"""

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.handouts import nothing_handed_out_twice
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient
from tests.cluster.replicas import Replicas
from tests.cluster.starting import fake_nodes, workplace

from parley.cli.permissions import account_name, permissions
from parley.kube.client import Client
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER, NAMESPACE

TOKENS = "tokens.parley.dev"
NODES = 2
CRDS = Path(__file__).parents[3] / "crds"
BEFORE = Path(__file__).with_name("crds-7ae2afa.yaml")

Crd = dict[str, Any]


def crds_before() -> list[Crd]:
    """Of the earlier version."""
    return list(yaml.safe_load_all(BEFORE.read_text()))


def crds_now() -> list[Crd]:
    """Of this one."""
    return [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane of its own: no other test meets its CRDs."""
    with workplace() as mine, fake_nodes(mine, NODES):
        mine.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(permissions(TOKENS, NAMESPACE)))
        yield mine


@dataclass(frozen=True)
class Parley:
    """The programs and the kinds of a cluster."""

    cluster: Cluster
    controllers: Replicas
    drivers: Replicas

    async def start(self) -> None:
        """Return when both have taken over what the API records."""
        await self.controllers.lead()
        await self.drivers.lead()

    async def stop(self) -> None:
        """In the middle of whatever they do."""
        for replicas in (self.controllers, self.drivers):
            await replicas.kill()

    def install(self, crds: Sequence[Crd]) -> None:
        """As helm does: server-side, over what is there."""
        text = yaml.safe_dump_all(crds)
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        names = [f"crd/{crd['metadata']['name']}" for crd in crds]
        self.cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Client]:
    async with patient(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
async def parley(cluster: Cluster) -> AsyncIterator[Parley]:
    """Nothing of it runs yet."""
    accounts = [
        cluster.kubeconfig_for_service_account(NAMESPACE, name) for name in (CONTROLLER, account_name(TOKENS))
    ]
    device = ("controller", "--driver", "device")
    async with (
        Replicas(cluster, accounts[0], device, "restored") as controllers,
        Replicas(cluster, accounts[1], ("driver", "run", "tokens"), "driver restored") as drivers,
    ):
        yield Parley(cluster, controllers, drivers)


@pytest.fixture
async def team(admin: Client, parley: Parley) -> AsyncIterator[Namespace]:
    """A namespace. No device is handed out twice meanwhile, and all goes at the end."""
    async with nothing_handed_out_twice(admin), Namespace(admin, f"team-{uuid.uuid4().hex[:6]}", grace=0) as mine:
        yield mine
