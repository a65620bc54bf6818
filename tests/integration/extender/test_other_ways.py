"""The other ways to set up the extender, as in docs/extender.md: over TLS, and in the cluster's own scheduler."""

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.certificates import PAGE, block, make_certificates
from tests.cluster.manifests import Manifest, pod, template
from tests.cluster.namespace import Namespace
from tests.cluster.starting import DEPLOY
from tests.integration.extender.conftest import MANAGED, OPTIONS, Devices, lead_again, parley_pod
from tests.integration.extender.service import Service

from parley.api.builtin import Pod
from parley.sdk import Device
from parley_devcluster import Cluster, Component
from parley_devcluster.parley import NAMESPACE
from parley_devcluster.second_scheduler import SCHEDULER_NAME, SECOND_SCHEDULER, free_address

pytestmark = pytest.mark.cluster

HOST = "parley-extender.parley-system.svc"


async def test_the_pages_pod_is_placed_by_the_second_scheduler(team: Namespace, devices: Devices) -> None:
    await devices(node_1=1)
    await team.create(template("one-gpu"), yaml.safe_load(block("yaml", "name: train")))

    bound = await team.bound("train")

    assert (bound.spec.scheduler_name, bound.spec.node_name) == (SCHEDULER_NAME, "node-1")


@pytest.fixture
def certificates(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """What the page's commands leave behind, beside the Secrets."""
    make_certificates(cluster, tmp_path)
    yield tmp_path
    for side in ("server", "client"):
        cluster.kubectl("delete", "secret", "--namespace", NAMESPACE, f"parley-extender-{side}")


def over_tls_to(address: str, cluster: Cluster, certificates: Path) -> dict[str, Any]:
    """The shipped configuration of a scheduler of its own, with files and an address of this machine."""
    settings: dict[str, Any] = yaml.safe_load((DEPLOY / "extender-service" / "scheduler.yaml").read_text())
    account = cluster.kubeconfig_for_service_account(NAMESPACE, SECOND_SCHEDULER)
    settings["clientConnection"]["kubeconfig"] = str(account)
    settings["leaderElection"] = {"leaderElect": False}
    for entry in settings["extenders"]:
        assert entry["urlPrefix"] == f"https://{HOST}:8443"
        entry["urlPrefix"] = f"https://{address}"
        files = {"caFile": "ca.crt", "certFile": "client.crt", "keyFile": "client.key"}
        paths = {name: str(certificates / file) for name, file in files.items()}
        entry["tlsConfig"] = {"serverName": HOST, **paths}
    return settings


@pytest.fixture
def over_tls(
    cluster: Cluster, controller: Component, controller_account: Path, certificates: Path
) -> Iterator[str]:
    """A controller and a scheduler in the place of those that all tests share; the controller's address."""
    address = free_address()
    files = {"tls-cert": "server.crt", "tls-key": "server.key", "client-ca": "ca.crt"}
    given = [f"--extender-{name}={certificates / file}" for name, file in files.items()]
    program = (sys.executable, "-m", "parley", "controller", "--kubeconfig", str(controller_account))
    cluster.component(SECOND_SCHEDULER).stop()
    controller.stop()
    serving = cluster.add_program("tls-controller", [*program, "--extender-address", address, *given, *OPTIONS])
    calling = cluster.add_scheduler("tls-scheduler", over_tls_to(address, cluster, certificates))
    try:
        yield address
    finally:
        for component in (calling, serving):
            component.stop()
        lead_again(cluster)
        controller.start()


def shown_certificate(address: str, client: Path | None, authority: Path) -> int:
    """The serial number of the certificate that a client is shown. Raises OSError if it is not let in."""
    context = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        context.load_cert_chain(client, client.with_suffix(".key"))
    host, port = address.split(":")
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as tls,
    ):
        tls.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        if not tls.recv(64).startswith(b"HTTP/1.1"):
            raise ConnectionError("nothing was answered")
        shown = tls.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)


async def test_the_scheduler_calls_over_tls_with_a_certificate_of_its_own(
    team: Namespace, devices: Devices, over_tls: str, certificates: Path
) -> None:
    await devices(node_0=1)
    await team.create(template("one"), parley_pod("p", templates={"gpu": "one"}))

    await team.bound("p")

    authority, client = certificates / "ca.crt", certificates / "client.crt"
    first = await asyncio.to_thread(shown_certificate, over_tls, client, authority)
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on who notices first
        await asyncio.to_thread(shown_certificate, over_tls, None, authority)
    renew(certificates)
    assert await asyncio.to_thread(shown_certificate, over_tls, client, authority) != first


async def test_a_scheduler_calls_with_its_renewed_certificate_without_a_restart(
    team: Namespace, devices: Devices, cluster: Cluster, over_tls: str, certificates: Path
) -> None:
    await devices(node_0=2)
    await team.create(template("one"), parley_pod("p", templates={"gpu": "one"}))
    await team.bound("p")

    renew(certificates, authority="other")
    (certificates / "other.crt").replace(certificates / "ca.crt")
    cluster.component("tls-controller").stop()  # its connections end, and it lets in only who was signed anew
    cluster.component("tls-controller").start()
    await team.create(parley_pod("q", templates={"gpu": "one"}))

    await team.bound("q")


def renew(certificates: Path, authority: str = "") -> None:
    """Both certificates, as the page's commands made them; if another authority is named, only the scheduler's."""
    commands = block("sh", "openssl")
    again = commands[commands.index("sign()") : commands.index("for side")]
    new = next(line for line in commands.splitlines() if line.startswith("new="))
    if authority:
        begun = next(line for line in commands.splitlines() if line.startswith("openssl req -x509"))
        begun = begun.replace("ca.", f"{authority}.")
        again = f"{begun}\n{again.replace('ca.', f'{authority}.').replace('sign server', ': server')}"
    subprocess.run(["sh", "-ec", f"{new}\n{again}"], cwd=certificates, check=True, capture_output=True)


@pytest.fixture
def own_scheduler(cluster: Cluster, service: Service) -> Iterator[Component]:
    """A scheduler that has the page's configuration, but for names and the way to the extender."""
    settings: dict[str, Any] = yaml.safe_load(block("yaml", "managedResources"))
    plain, negotiated = settings["profiles"]
    plain["schedulerName"], negotiated["schedulerName"] = "own-default", "own-negotiated"
    (entry,) = settings["extenders"]
    entry["urlPrefix"] = f"http://{service.address}"
    del entry["enableHTTPS"], entry["tlsConfig"]
    component = cluster.add_scheduler("own-scheduler", settings)
    yield component
    component.stop()


def asking(manifest: Manifest) -> Manifest:
    """The pod with the resource that stands for the extender."""
    resources: dict[str, Any] = manifest["spec"]["containers"][0]["resources"]
    resources["requests"][MANAGED] = resources.setdefault("limits", {})[MANAGED] = "1"
    return manifest


def was_tried(pod: Pod) -> bool:
    return any(condition.type == "PodScheduled" for condition in pod.status.conditions)


async def test_in_the_clusters_own_scheduler_only_pods_that_request_the_resource_come_to_the_extender(
    team: Namespace, devices: Devices, own_scheduler: Component, service: Service
) -> None:
    await devices(node_1=1)
    await team.create(template("one"))
    entries = {"gpu": "one"}
    before = service.calls["filter"]

    await team.create(pod("plain", schedulerName="own-default"))
    await team.bound("plain")
    assert service.calls["filter"] == before
    await team.create(asking(pod("negotiated", templates=entries, schedulerName="own-negotiated")))
    assert (await team.bound("negotiated")).spec.node_name == "node-1"
    assert await team.devices("negotiated") == {Device("node-1", "gpu-0")}

    reachable, service.backends = service.backends, ()
    service.forget()
    await team.create(asking(pod("waiting", schedulerName="own-negotiated")))
    await team.pod("waiting", was_tried, "was tried")
    await team.create(pod("unaffected", schedulerName="own-default"))
    await team.bound("unaffected")
    service.backends = reachable
    await team.bound("waiting")


async def test_the_scheduler_name_and_the_resource_are_those_of_the_page() -> None:
    assert f"schedulerName: {SCHEDULER_NAME}" in PAGE
    assert MANAGED in block("yaml", "managedResources")
