"""What deploy/ installs, in containers on a real node: it serves, goes on when a leader goes, can go again."""

import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.certificates import make_certificates
from tests.cluster.deployed import NODE, logs, machine, manifests
from tests.cluster.manifests import Manifest, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient
from tests.cluster.starting import require_machine
from tests.cluster.watching import until_one

from parley.api.builtin import Lease
from parley.api.resources import LEASES, PODS, Resource
from parley.sdk import Device
from parley_devcluster import Cluster
from parley_devcluster.parley import CONTROLLER, NAMESPACE, NODE_PLUGIN
from parley_devcluster.second_scheduler import SCHEDULER_NAME, SECOND_SCHEDULER

pytestmark = pytest.mark.cluster

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict[str, Any])

DEVICES = """\
devices:
- {glob: '/dev/fu[l]l', model: full}
- {glob: '/dev/ze[r]o', model: zero}
"""

WORKLOADS = {
    "extender": [f"deployment/{CONTROLLER}", f"daemonset/{NODE_PLUGIN}"],
    "extender-service": [
        f"deployment/{CONTROLLER}",
        f"deployment/{SECOND_SCHEDULER}",
        f"daemonset/{NODE_PLUGIN}",
    ],
}
"""By the folder below deploy/, what is rolled out."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_machine(real_nodes=True)
    with machine(tmp_path_factory.mktemp("machine")) as started:
        yield started


@pytest.fixture(scope="module", params=WORKLOADS)
def deployed(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The cluster while all of Parley is ready in it."""
    scratch = tmp_path_factory.mktemp("deployed")
    wanted = manifests(cluster, request.param, DEVICES, scratch)
    try:
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=wanted)
        if request.param == "extender-service":
            make_certificates(cluster, scratch)
        for workload in WORKLOADS[request.param]:
            cluster.kubectl("-n", NAMESPACE, "rollout", "status", workload, "--timeout=180s")
        yield cluster
    finally:
        said = logs(cluster)
        print(said)
    assert "orbidden" not in said
    cluster.kubectl("delete", "--timeout=120s", "-f", "-", stdin=wanted)


@pytest.fixture
async def team(deployed: Cluster) -> AsyncIterator[Namespace]:
    """A namespace with a class, templates for each of the two devices, and an account."""
    async with (
        patient(deployed.kubeconfig) as client,
        Namespace(client, f"team-{uuid.uuid4().hex[:6]}") as mine,
    ):
        await until_one(client, ACCOUNTS, "default", bool, "is there", namespace=mine.name)
        await mine.create(resource_class("dev"), *(template(name, "dev", model=name) for name in ("full", "zero")))
        yield mine


def test_no_container_runs_as_root_but_the_node_plugin(deployed: Cluster) -> None:
    deployed.kubectl("-n", NAMESPACE, "wait", "--for=jsonpath={.status.phase}=Running", "pods", "--all")

    path = "{range .items[*].status.containerStatuses[*]}{.name}={.user.linux.uid} {end}"
    shown = deployed.kubectl("-n", NAMESPACE, "get", "pods", "-o", f"jsonpath={path}").split()

    assert sorted(shown) == [*["controller=65532"] * 2, "plugin=0", *["scheduler=65532"] * 2]


def process_of(pod_uid: str, program: str) -> int:
    """The process of a container that runs here, by its pod's cgroup."""
    (found,) = (
        int(place.name)
        for place in Path("/proc").glob("[0-9]*")
        if pod_uid.replace("-", "_") in _text(place / "cgroup").replace("-", "_")
        and program in _text(place / "cmdline")
    )
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has ended
        return ""


def test_a_node_plugin_that_is_stuck_is_started_anew_within_a_minute(deployed: Cluster) -> None:
    plugin = ("-n", NAMESPACE, "pods", "-l", f"app.kubernetes.io/name={NODE_PLUGIN}")
    path = "{.items[0].metadata.uid} {.items[0].status.containerStatuses[0].restartCount}"
    uid, restarts = deployed.kubectl("get", *plugin, "-o", f"jsonpath={path}").split()

    os.kill(process_of(uid, NODE_PLUGIN), signal.SIGSTOP)

    again = f"--for=jsonpath={{.status.containerStatuses[0].restartCount}}={int(restarts) + 1}"
    deployed.kubectl("wait", *plugin, again, "--timeout=60s")
    deployed.kubectl("-n", NAMESPACE, "rollout", "status", f"daemonset/{NODE_PLUGIN}", "--timeout=60s")


def second(name: str, wanted: str) -> Manifest:
    return pod(name, templates={"it": wanted}, schedulerName=SCHEDULER_NAME)


async def test_pods_of_both_schedulers_run_with_their_devices(team: Namespace) -> None:
    await team.create(pod("one", templates={"it": "full"}), second("two", "zero"))

    await team.runs("one")
    await team.runs("two")

    assert await team.devices("one") == {Device(NODE, "full")}
    assert await team.devices("two") == {Device(NODE, "zero")}


def leads(lease: Lease) -> str:
    """The name of the pod."""
    return (lease.spec.holder_identity or "").partition("_")[0]


async def test_when_the_pod_that_leads_is_deleted_the_other_one_serves_both(team: Namespace) -> None:
    before = leads(await team.client.get(LEASES, CONTROLLER, NAMESPACE))
    await team.create(second("held", "full"))
    await team.runs("held")

    await team.client.delete(PODS, before, NAMESPACE)
    await team.create(second("two", "zero"), second("wants", "full"))
    await team.runs("two")
    await until_one(
        team.client, LEASES, CONTROLLER, lambda it: leads(it) not in ("", before), "passes on", namespace=NAMESPACE
    )
    await team.delete(PODS, "held")
    await team.runs("wants")

    assert await team.devices("two") == {Device(NODE, "zero")}
