"""The Helm chart on a real node: installed, changed, put back and removed, while a pod with a device runs."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cluster.deployed import NODE, logs, machine
from tests.cluster.helm import CHART, HelmFailed, helm
from tests.cluster.manifests import claim, pod, resource_class, template
from tests.cluster.namespace import Namespace
from tests.cluster.patience import patient
from tests.cluster.reader import ROOT, Reader, line
from tests.cluster.starting import require_machine
from tests.cluster.watching import until_one
from tests.support.shown import shown

from parley.api.exits import Exit
from parley.api.names import FINALIZER, driver_finalizer
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, PODS, Resource
from parley.sdk import Device
from parley_devcluster import Cluster
from parley_devcluster.manifests import NAMESPACE, RELEASE

pytestmark = pytest.mark.cluster

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict[str, Any])
TOKENS = "tokens.parley.dev"
ELSEWHERE = "127.0.13.13"
"""A loopback address."""
FULL = {"glob": "/dev/fu[l]l", "model": "full"}
ZERO = {"glob": "/dev/ze[r]o", "model": "zero"}

OF_PARLEY = ("clusterroles", "clusterrolebindings", "flowschemas", "validatingadmissionpolicies")
"""Kinds outside of namespaces, beside the CRDs."""


class Chart:
    """helm and the chart, in one cluster."""

    def __init__(self, cluster: Cluster, scratch: Path) -> None:
        self.cluster = cluster
        self._scratch = scratch

    def __call__(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        return helm(self.cluster, *arguments, values=values, scratch=self._scratch)

    def values(self, *devices: Mapping[str, str], **more: Any) -> dict[str, Any]:
        """For images that no registry has, and the folders of this machine's kubelet."""
        node = self.cluster.node(NODE)
        pool = {"name": "default", "configuration": {"devices": list(devices)}}
        return {
            "image": {"repository": "parley.dev/parley", "tag": "dev", "pullPolicy": "Never"},
            "nodePlugin": {
                "kubeletFolder": str(node.kubelet_dir),
                "cdiFolder": str(node.cdi_dir),
                "pools": [pool],
            },
            **more,
        }

    def install(self, values: Mapping[str, Any]) -> None:
        self("install", RELEASE, str(CHART), "--create-namespace", "--wait", "--timeout=180s", values=values)

    def no_kinds(self) -> None:
        """Wait until the CRDs are gone, with all that was of their kinds."""
        there = self.cluster.kubectl("get", "crd", "--output=name").split()
        if ours := [name for name in there if name.endswith(".parley.dev")]:
            self.cluster.kubectl("wait", "--for=delete", *ours, "--timeout=240s")

    def left(self) -> set[str]:
        """What is left of Parley outside of namespaces, and in its own."""
        outside = self.cluster.kubectl("get", ",".join(OF_PARLEY), "--output=name").split()
        inside = self.cluster.kubectl(
            *("-n", NAMESPACE, "get", "all,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,pdb"),
            *("--field-selector=metadata.name!=default", "--output=name"),
        )
        here = {name for name in inside.split() if not name.endswith(("/default", "kube-root-ca.crt"))}
        return {name for name in outside if "parley" in name} | here


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chart]:
    require_machine(real_nodes=True)
    with machine(tmp_path_factory.mktemp("machine")) as cluster:
        yield Chart(cluster, tmp_path_factory.mktemp("helm"))
        print(logs(cluster))


@pytest.fixture
async def team(chart: Chart) -> AsyncIterator[Namespace]:
    async with patient(chart.cluster.kubeconfig) as client:
        mine = Namespace(client, "team")
        chart.cluster.kubectl("create", "namespace", mine.name)
        await until_one(client, ACCOUNTS, "default", bool, "is there", namespace=mine.name)
        yield mine
        chart.cluster.kubectl("delete", "namespace", mine.name, "--ignore-not-found", "--timeout=90s")


async def containers(team: Namespace, name: str) -> list[Any]:
    """The pod's UID, and what is known of its containers: it changes if one starts again. Devices' health is left
    out: the kubelet says Unknown while plugins follow each other on a busy machine."""
    found = await team.client.get(PODS.untyped(), name, team.name)
    for status in found["status"]["containerStatuses"]:
        status.pop("allocatedResourcesStatus", None)
    return [found["metadata"]["uid"], found["status"]["containerStatuses"]]


async def page_of_the_controller(reader: Reader) -> str:
    """By the command of docs/web.md, at an address that nobody else has taken that port of."""
    forward = shown((ROOT / "docs" / "web.md").read_text(), "kubectl -n parley-system port-forward")
    async with reader.typed(f"{forward} --address {ELSEWHERE}") as process:
        await line(process, "Forwarding from")
        address = f"http://{ELSEWHERE}:{forward.split()[-1]}/"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return await answer.text()


async def test_installed_upgraded_rolled_back_and_removed_while_a_pod_runs(
    chart: Chart, team: Namespace, tmp_path: Path
) -> None:
    chart.install(chart.values(FULL))
    await team.create(resource_class("dev"), claim("held", "dev", model="full"), claim("idle", "dev"))
    await team.create(template("full", "dev", model="full"), template("zero", "dev", model="zero"))
    await team.create(pod("one", claims={"it": "held"}))
    await team.runs("one")
    before = await containers(team, "one")

    standalone = {"embedded": [{"load": "device"}], "standalone": [{"name": TOKENS, "load": "tokens"}]}
    wanted = chart.values(FULL, ZERO, drivers=standalone, web={"enabled": True})
    chart("upgrade", RELEASE, str(CHART), "--wait", "--timeout=180s", values=wanted)
    assert "Pods and classes" in await page_of_the_controller(Reader.of(chart.cluster, tmp_path))
    await team.create(resource_class("licences", TOKENS, parameters={"pool": 1}, nodePart="None"))
    await team.create(template("licence", "licences"))
    await team.create(pod("two", templates={"it": "zero", "licence": "licence"}))
    await team.runs("two")
    assert await team.devices("two") == {Device(NODE, "zero")}
    assert await containers(team, "one") == before
    await team.delete(PODS, "two")

    chart("rollback", RELEASE, "1", "--wait", "--timeout=180s")
    await team.create(pod("three", templates={"it": "full"}))
    assert await containers(team, "one") == before

    with pytest.raises(HelmFailed) as refused:
        chart("uninstall", RELEASE, "--timeout=120s")
    assert "claim team/held is used by pod one: delete the pod" in str(refused.value)
    assert chart("history", RELEASE).splitlines()[-1].split()[0] == "3"
    chart("rollback", RELEASE, "3", "--wait", "--timeout=180s")
    await team.delete(PODS, "one")
    await team.runs("three")
    await team.delete(PODS, "three")

    told = chart("uninstall", RELEASE, "--wait", "--timeout=180s")

    assert told.count("[CustomResourceDefinition]") == 5
    assert {name for name in chart.left() if "uninstall-check" not in name} == set()
    found = await team.client.get(CLAIMS, "idle", team.name)
    assert found.metadata.finalizers == ()
    await team.delete(CLAIMS, "idle")
    for name in ("dev", "licences"):
        await team.client.delete(CLASSES, name)


def uninstall(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, as an administrator runs it."""
    program = [str(Path(sys.executable).with_name("parley")), "uninstall", *arguments]
    return subprocess.run(
        [*program, "--kubeconfig", str(cluster.kubeconfig)], capture_output=True, text=True, check=False
    )


async def finalizers(team: Namespace) -> set[str]:
    """All of Parley's and its drivers', on claims and on the built-in ones."""
    listed = [(await team.client.list(kind.untyped())).items for kind in (CLAIMS, BUILTIN_CLAIMS)]
    there = {f for items in listed for it in items for f in it["metadata"].get("finalizers") or ()}
    return {f for f in there if not f.startswith("resource.kubernetes.io/")}


async def test_claims_in_use_are_guarded_again_when_parley_is_back_after_a_removal_by_force(
    chart: Chart, team: Namespace
) -> None:
    drivers = {"embedded": [{"load": "device"}], "standalone": [{"name": TOKENS, "load": "tokens"}]}
    chart.install(chart.values(FULL, drivers=drivers))
    await team.create(
        resource_class("dev"), resource_class("seats", TOKENS, parameters={"pool": 1}, nodePart="None")
    )
    await team.create(claim("held", "dev"), claim("seat", "seats"))
    await team.create(pod("one", claims={"it": "held"}), pod("two", claims={"it": "seat"}))
    await team.runs("one")
    await team.runs("two")
    before = await containers(team, "one")
    assert await finalizers(team) == {FINALIZER, driver_finalizer(TOKENS)}

    chart("uninstall", RELEASE, "--no-hooks")
    chart.cluster.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pods", "--all", "--timeout=90s")
    assert uninstall(chart.cluster, "--release-finalizers", "--force").returncode == 0
    assert await finalizers(team) == set()
    chart.install(chart.values(FULL, drivers=drivers))
    for name in ("held", "seat"):
        await team.parley_claim(name, lambda it: FINALIZER in it.metadata.finalizers, "is guarded again")
        await team.claim(name, lambda it: FINALIZER in it.metadata.finalizers, "is guarded again")
        await team.client.delete(CLAIMS, name, team.name)
        found = await team.client.get(CLAIMS, name, team.name)
        assert found.metadata.deletion_timestamp
        assert len(found.status.reserved_for) == 1

    assert await containers(team, "one") == before
    for user, name in (("one", "held"), ("two", "seat")):
        await team.delete(PODS, user)
        await team.gone(CLAIMS, name)
    assert await finalizers(team) == set()
    chart("uninstall", RELEASE, "--timeout=180s")
    for name in ("dev", "seats"):
        await team.client.delete(CLASSES, name)


async def test_removed_with_everything_in_use_and_the_controller_first(chart: Chart, team: Namespace) -> None:
    chart.install(chart.values(FULL, ZERO, crds={"keep": False}))
    await team.create(resource_class("dev"), claim("held", "dev", model="full"), claim("idle", "dev"))
    await team.create(template("full", "dev"), pod("one", claims={"it": "held"}))
    await team.runs("one")

    chart("uninstall", RELEASE, "--no-hooks")
    chart.cluster.kubectl("-n", NAMESPACE, "wait", "--for=delete", "pods", "--all", "--timeout=90s")
    await team.client.delete(PODS, "one", team.name)
    stuck = await team.client.list(CLAIMS, team.name)
    assert {it.metadata.name for it in stuck.items if it.metadata.deletion_timestamp} == {"held", "idle"}

    refused = uninstall(chart.cluster, "--release-finalizers")
    assert (refused.returncode, refused.stdout) == (
        Exit.IN_USE,
        "claim team/held is used by pod one: delete the pod\n",
    )

    forced = uninstall(chart.cluster, "--release-finalizers", "--force")
    assert forced.returncode == 0
    assert "install Parley again, and the pod ends at once" in forced.stderr
    chart.no_kinds()
    assert (await team.client.get(PODS, "one", team.name)).metadata.deletion_timestamp

    chart.install(chart.values(FULL, ZERO, crds={"keep": False}))
    await team.gone(PODS, "one")
    chart("uninstall", RELEASE, "--timeout=180s")
    chart.no_kinds()
    assert chart.left() == set()
