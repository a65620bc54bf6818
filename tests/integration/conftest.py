"""The two real control planes of a run of the integration tests, and what programs need that work in one.

One is for tests of objects, which may leave some behind. In the other one Parley works, and every test leaves it
empty. Nodes without kubelets come and go with the modules that want them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster import starting
from tests.cluster.patience import PatientClient, patient
from tests.cluster.proxy import Proxy
from tests.cluster.starting import DEPLOY, directory, require_machine

from parley.cli.permissions import account_name, permissions
from parley.drivers.tokens import TokensDriver
from parley.kube.client import Client
from parley.sdk.standalone.runner import StandaloneDriver
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER, NAMESPACE, install

TOKENS = "tokens.parley.dev"
CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """API server, scheduler and controller-manager with Parley's CRDs, and no node.

    Skips with the reasons where no cluster can run; under CI that is a failure.
    """
    require_machine(real_nodes=False)
    with directory() as place, Cluster.start(place, node_lifecycle=False) as cluster:
        cluster.kubectl("apply", "-k", str(CRDS))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        # Established is not yet served: kubectl waits while the server says 429.
        cluster.kubectl("get", "--all-namespaces", "podschedulings,prclaims,prtemplates,prclasses")
        yield cluster


@pytest.fixture(scope="session")
def installed(control_plane: Cluster) -> Cluster:
    """The first one, with Parley's accounts, permissions and admission policies."""
    install(control_plane, DEPLOY)
    return control_plane


@pytest.fixture(scope="session")
def workplace() -> Iterator[Cluster]:
    """The second one, with Parley's kinds, accounts and guards, and no node."""
    with starting.workplace() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def controller_account(workplace: Cluster) -> Path:
    """The kubeconfig of the controller's service account."""
    return workplace.kubeconfig_for_service_account(NAMESPACE, CONTROLLER)


@pytest.fixture(scope="session")
def driver_account(workplace: Cluster) -> Path:
    """The kubeconfig of the account of a standalone driver for tokens, made as the documentation says."""
    workplace.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(permissions(TOKENS, NAMESPACE)))
    return workplace.kubeconfig_for_service_account(NAMESPACE, account_name(TOKENS))


@pytest.fixture
async def admin(workplace: Cluster) -> AsyncIterator[Client]:
    """The API server as the tests' user sees it, who waits while it is down."""
    async with patient(workplace.kubeconfig) as client:
        yield PatientClient(client)


@pytest.fixture
async def proxy(controller_account: Path) -> AsyncIterator[Proxy]:
    """A way of a controller to the API server that can be cut."""
    async with Proxy.serve(controller_account) as serving:
        yield serving


@pytest.fixture
async def tokens(driver_account: Path) -> AsyncIterator[None]:
    """A standalone driver, with the rights of its account. It runs until all of the test's objects are gone."""
    async with patient(driver_account) as client:
        driver = asyncio.create_task(StandaloneDriver(client, TokensDriver()).run())
        yield
        driver.cancel()
        await asyncio.gather(driver, return_exceptions=True)
