"""What deploy/extender installs, in containers on a real node: it serves pods, and goes on when a leader goes."""

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.cluster.deployed import deploy, logs
from tests.cluster.manifests import Manifest, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.starting import directory, require_machine
from tests.cluster.watching import until_one

from parley.api.resources import LEASES, PODS, Resource
from parley.devcluster import Cluster, NodeOptions
from parley.devcluster.parley import CONTROLLER, NAMESPACE, NODE_PLUGIN
from parley.devcluster.second_scheduler import SCHEDULER_NAME
from parley.kube.client import Client
from parley.kube.http import HttpClient
from parley.sdk import Device

pytestmark = pytest.mark.cluster

NODE = "n"
"""Short, as is the folder: the sockets of a plugin in a pod have the pod's UID in their names."""

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict[str, Any])

DEVICES = """\
devices:
- {glob: '/dev/fu[l]l', model: full}
- {glob: '/dev/ze[r]o', model: zero}
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster in which all of Parley is ready."""
    require_machine(real_nodes=True)
    node = NodeOptions(NODE)
    with directory(prefix="p") as place, Cluster.start(place, nodes=[node], service_accounts=True) as cluster:
        deploy(cluster, "extender", DEVICES, tmp_path_factory.mktemp("deployed"))
        try:
            for kind in (f"deployment/{CONTROLLER}", f"daemonset/{NODE_PLUGIN}"):
                cluster.kubectl("-n", NAMESPACE, "rollout", "status", kind, "--timeout=180s")
            yield cluster
        finally:
            said = logs(cluster, NAMESPACE)
            print(said)
        assert "restored" in said
        assert "orbidden" not in said


@pytest.fixture
async def team(deployed: Cluster) -> AsyncIterator[Namespace]:
    """A namespace with a class, templates for each of the two devices, and an account."""
    async with (
        HttpClient.from_kubeconfig(str(deployed.kubeconfig)) as client,
        Namespace(client, f"team-{uuid.uuid4().hex[:6]}") as mine,
    ):
        await until_one(client, ACCOUNTS, "default", bool, "is there", namespace=mine.name)
        await mine.create(resource_class("dev"), *(template(name, "dev", model=name) for name in ("full", "zero")))
        yield mine


def second(name: str, wanted: str) -> Manifest:
    return pod(name, templates={"it": wanted}, schedulerName=SCHEDULER_NAME)


async def test_pods_of_both_schedulers_run_with_their_devices(team: Namespace) -> None:
    await team.create(pod("one", templates={"it": "full"}), second("two", "zero"))

    await team.runs("one")
    await team.runs("two")

    assert await team.devices("one") == {Device(NODE, "full")}
    assert await team.devices("two") == {Device(NODE, "zero")}


async def leader(client: Client) -> str:
    """The pod that leads."""
    lease = await client.get(LEASES, CONTROLLER, NAMESPACE)
    return str(lease.spec.holder_identity).partition("_")[0]


async def test_when_the_pod_that_leads_is_deleted_the_other_one_serves_both(team: Namespace) -> None:
    before = await leader(team.client)
    await team.create(second("held", "full"))
    await team.runs("held")

    await team.client.delete(PODS, before, NAMESPACE)
    await team.create(second("two", "zero"), second("wants", "full"))
    await team.runs("two")
    assert await leader(team.client) != before
    await team.delete(PODS, "held")
    await team.runs("wants")

    assert await team.devices("two") == {Device(NODE, "zero")}


def test_the_containers_run_as_they_are_told_to_and_were_never_started_again(deployed: Cluster) -> None:
    path = "{range .items[*].status.containerStatuses[*]}{.name}={.restartCount}:{.user.linux.uid} {end}"
    shown = deployed.kubectl("-n", NAMESPACE, "get", "pods", "-o", f"jsonpath={path}").split()

    assert sorted(shown) == [*["controller=0:65532"] * 2, "plugin=0:0", *["scheduler=0:65532"] * 2]
