"""Commands that install, change and remove Parley on a real API server, as the pages have them: those of
docs/extender.md, and those of docs/install.md and docs/workspaces.md that need no node."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import starting
from tests.cluster.reader import ROOT, Reader
from tests.support.shown import below, commands, shown

from parley_devcluster import Cluster, manifests

pytestmark = pytest.mark.cluster

PAGES = ("extender.md", "install.md", "workspaces.md")
EXTENDER, INSTALL, WORKSPACES = ((ROOT / "docs" / page).read_text() for page in PAGES)
COMMANDS = [command for command, _ in commands(EXTENDER) if not command.startswith("helm")]
(HELM,) = (command for command, _ in commands(EXTENDER) if command.startswith("helm"))
(CERTIFICATES,) = re.findall(r"```sh\n(.*?)```", EXTENDER, flags=re.DOTALL)
_, _, _, CHECK, UNINSTALL, RELEASE, ELSEWHERE = below(INSTALL, "Remove")
APPLY, *REMOVE, REMOVE_SECOND_SCHEDULER = below(INSTALL, "With kustomize")
UPGRADES = [command for command, _ in commands(WORKSPACES) if command.startswith("helm upgrade")]
INSTALLS = shown(
    INSTALL, f"helm install parley deploy/chart/parley --namespace {manifests.NAMESPACE}"
).removesuffix(" --wait")
VALUES = re.findall(r"```yaml\n(# values\.yaml\n.*?)```", INSTALL, flags=re.DOTALL)[0]


@pytest.fixture(scope="module")
def empty() -> Iterator[Cluster]:
    """A control plane without Parley and without nodes. Each test leaves no more than CRDs of the chart."""
    starting.require_machine(real_nodes=False)
    with starting.directory() as place, Cluster.start(place, node_lifecycle=False) as cluster:
        yield cluster


@pytest.fixture
def administrator(empty: Cluster, tmp_path: Path) -> Reader:
    (tmp_path / "values.yaml").write_text(VALUES)
    reader = Reader.of(empty, tmp_path)
    path = f"{manifests.helm().parent}:{reader.environment['PATH']}"
    return Reader(reader.cluster, reader.folder, {**reader.environment, "PATH": path})


async def test_its_kustomizations_and_its_certificates(administrator: Reader) -> None:
    on_loopback, *namespace, of_its_own = COMMANDS
    await administrator(on_loopback)
    await administrator(REMOVE_SECOND_SCHEDULER)
    for command in namespace:
        await administrator(command)
    await administrator(CERTIFICATES)
    await administrator(of_its_own)

    found = await administrator("kubectl -n parley-system get deployments,secrets -o name")

    assert {"deployment.apps/parley-controller", "deployment.apps/parley-scheduler"} <= set(found.split())
    assert {"secret/parley-extender-server", "secret/parley-extender-client"} <= set(found.split())
    await administrator(f"{REMOVE_SECOND_SCHEDULER}-service")


async def test_its_command_of_helm(administrator: Reader) -> None:
    for command in COMMANDS[1:-1]:
        await administrator(command)
    await administrator(CERTIFICATES)

    installed = await administrator(HELM)

    assert "STATUS: deployed" in installed
    found = await administrator("kubectl -n parley-system get deployments -o name")
    assert "deployment.apps/parley-scheduler" in found.split()
    await administrator(UNINSTALL)
    await administrator("kubectl delete namespace parley-system")


async def test_workspaces_are_enabled_in_a_release_which_is_then_removed_by_hand(administrator: Reader) -> None:
    await administrator(INSTALLS)
    await administrator("kubectl create namespace ci")

    for upgrade in UPGRADES:
        await administrator(upgrade)
    await administrator(shown(WORKSPACES, "kubectl label namespace ci"))

    assert await administrator(shown(WORKSPACES, "kubectl get resourceslices")) == "No resources found\n"
    plugin = await administrator("kubectl -n parley-system get daemonset/parley-kubelet -o yaml")
    assert "--driver=workspaces" in plugin
    assert "privileged: true" in plugin
    bridges = await administrator("kubectl get mutatingadmissionpolicies -o name")
    assert "bridge" in bridges

    for command in (CHECK, UNINSTALL, RELEASE):
        await administrator(command)
    assert await administrator("kubectl get clusterroles -o name | grep parley || true") == ""


async def test_the_kinds_that_a_removed_release_left_serve_one_in_another_namespace(
    administrator: Reader,
) -> None:
    await administrator(INSTALLS)
    await administrator(UNINSTALL)
    with pytest.raises(AssertionError, match="invalid ownership metadata"):
        await administrator(ELSEWHERE.removesuffix(" --take-ownership"))

    assert "STATUS: deployed" in await administrator(ELSEWHERE)
    accounts = await administrator("kubectl get clusterrolebinding parley-controller -o yaml")
    assert "namespace: allocation" in accounts
    await administrator("helm uninstall parley --namespace allocation --no-hooks")


async def test_its_kustomizations_are_applied_and_removed(administrator: Reader) -> None:
    await administrator(APPLY)
    found = await administrator("kubectl -n parley-system get deployments,daemonsets -o name")
    assert found.split() == ["deployment.apps/parley-controller", "daemonset.apps/parley-kubelet"]

    for command in REMOVE:
        await administrator(command)

    assert await administrator("kubectl get clusterroles -o name | grep parley || true") == ""


@pytest.mark.parametrize("folder", ["extender", "extender-service"])
async def test_nothing_of_a_second_scheduler_is_left(administrator: Reader, folder: str) -> None:
    await administrator(f"kubectl apply --server-side -k deploy/{folder}")

    for command in REMOVE[:-1]:
        await administrator(command)
    await administrator(REMOVE_SECOND_SCHEDULER.replace("deploy/extender", f"deploy/{folder}"))

    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,flowschemas,crds,namespaces"
    assert await administrator(f"kubectl get {kinds} -o name | grep parley || true") == ""
