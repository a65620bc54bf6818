"""The kustomizations of the extender path, and what their accounts may do, asked of the real API server."""

import json
import os
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.raw import raw
from tests.cluster.starting import DEPLOY
from tests.cluster.watching import LIMIT

from parley.kube.followed_lease import held_on
from parley_devcluster import Cluster
from parley_devcluster.machine import free_ports
from parley_devcluster.processes import MARK
from parley_devcluster.second_scheduler import SECOND_SCHEDULER as SCHEDULER

pytestmark = pytest.mark.cluster

CONTROLLER = "parley-controller"
SYSTEM = "parley-system"
VARIANTS = ("extender", "extender-service")

by_variant = pytest.mark.parametrize("variant", VARIANTS)


def built(cluster: Cluster, variant: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(DEPLOY / variant))))


def named(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name))
    return found


@by_variant
def test_the_api_server_takes_it(cluster: Cluster, variant: str) -> None:
    told = cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(DEPLOY / variant)
    )

    assert told.count("(server dry run)") == len(told.strip().splitlines())


@by_variant
def test_the_lease_keeps_its_name_whatever_the_configurations_name_becomes(cluster: Cluster, variant: str) -> None:
    roles = [document for document in built(cluster, variant) if document["kind"] == "Role"]

    rules = [rule for role in roles for rule in role["rules"] if rule["resources"] == ["leases"]]
    names = {name for rule in rules for name in rule.get("resourceNames", ())}
    assert names == {SCHEDULER, CONTROLLER}


@by_variant
def test_the_scheduler_mounts_the_configuration_that_was_made(cluster: Cluster, variant: str) -> None:
    documents = built(cluster, variant)
    (configuration,) = (d for d in documents if d["kind"] == "ConfigMap" and "scheduler.yaml" in d["data"])
    deployment = named(documents, "Deployment", CONTROLLER if variant == "extender" else SCHEDULER)

    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert configuration["metadata"]["name"] in [v["configMap"]["name"] for v in volumes if "configMap" in v]


def subjects(documents: list[dict[str, Any]], role: str) -> set[str]:
    bindings = [d for d in documents if d["kind"] == "ClusterRoleBinding" and d["roleRef"]["name"] == role]
    return {subject["name"] for binding in bindings for subject in binding["subjects"]}


def test_in_one_pod_the_account_is_the_controllers(cluster: Cluster) -> None:
    documents = built(cluster, "extender")

    for role in ("system:kube-scheduler", "system:volume-scheduler", "parley-extender"):
        assert subjects(documents, role) == {CONTROLLER}
    accounts = {d["metadata"]["name"] for d in documents if d["kind"] == "ServiceAccount"}
    assert SCHEDULER not in accounts


def test_a_scheduler_of_its_own_has_an_account_of_its_own(cluster: Cluster) -> None:
    documents = built(cluster, "extender-service")

    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        assert subjects(documents, role) == {SCHEDULER}
    assert subjects(documents, "parley-extender") == {CONTROLLER}


ALLOWED = [
    (CONTROLLER, "create", "pods/binding", "", "default"),
    (CONTROLLER, "patch", "pods", "", "default"),
    (CONTROLLER, "watch", "deviceclasses.resource.k8s.io", "", ""),
    (CONTROLLER, "watch", "leases.coordination.k8s.io", SCHEDULER, SYSTEM),
    (CONTROLLER, "patch", "endpointslices.discovery.k8s.io", "parley-extender-leader", SYSTEM),
    (SCHEDULER, "watch", "pods", "", ""),
    (SCHEDULER, "patch", "pods/status", "", "default"),
    (SCHEDULER, "patch", "persistentvolumeclaims", "", "default"),
    (SCHEDULER, "update", "leases.coordination.k8s.io", SCHEDULER, SYSTEM),
]
DENIED = [
    (CONTROLLER, "patch", "endpointslices.discovery.k8s.io", "kubernetes", SYSTEM),
    (CONTROLLER, "create", "endpointslices.discovery.k8s.io", "", "default"),
    (CONTROLLER, "patch", "services", "parley-extender", SYSTEM),
    (CONTROLLER, "delete", "pods", "", "default"),
    (CONTROLLER, "create", "pods", "", "default"),
    (CONTROLLER, "create", "deviceclasses.resource.k8s.io", "", ""),
    (CONTROLLER, "watch", "leases.coordination.k8s.io", "parley-controller", SYSTEM),
    (CONTROLLER, "watch", "leases.coordination.k8s.io", "kube-scheduler", "kube-system"),
    (SCHEDULER, "update", "leases.coordination.k8s.io", "parley-controller", SYSTEM),
    (SCHEDULER, "get", "secrets", "", SYSTEM),
    (SCHEDULER, "allocate", "resourceclaims.parley.dev", "", "default"),
    (SCHEDULER, "create", "pods", "", "default"),
]


def allowed(cluster: Cluster, account: str, verb: str, what: str, name: str, namespace: str) -> bool:
    """What a SubjectAccessReview says about `what`: resource.group/subresource."""
    resource, _, subresource = what.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{SYSTEM}:{account}",
            "resourceAttributes": {**attributes, "name": name, "namespace": namespace},
        },
    }
    answer = raw(cluster).post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize(("account", "verb", "what", "name", "namespace"), ALLOWED)
def test_may(cluster: Cluster, account: str, verb: str, what: str, name: str, namespace: str) -> None:
    assert allowed(cluster, account, verb, what, name, namespace)


@pytest.mark.parametrize(("account", "verb", "what", "name", "namespace"), DENIED)
def test_may_not(cluster: Cluster, account: str, verb: str, what: str, name: str, namespace: str) -> None:
    assert not allowed(cluster, account, verb, what, name, namespace)


def test_the_schedulers_lease_writes_have_a_lane_of_their_own(cluster: Cluster) -> None:
    lane = "flowschema/parley-scheduler-leader-election"

    waited = cluster.kubectl("wait", "--for=condition=Dangling=False", "--timeout=120s", lane)

    assert "condition met" in waited


def test_a_kube_scheduler_names_its_host_in_its_lease(cluster: Cluster) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{SCHEDULER}"

    assert held_on(raw(cluster).get(path)["spec"]["holderIdentity"], socket.gethostname())


@contextmanager
def running(cluster: Cluster, command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends with the block, and with the cluster at the latest."""
    environment = {**os.environ, MARK: str(cluster.directory)}
    with log.open("wb") as output, subprocess.Popen(command, stderr=output, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def answers(url: str) -> bool:
    """Whether it answers 200, with whatever certificate: the kubelet's probes look at none."""
    trusting_all = ssl.create_default_context()
    trusting_all.check_hostname, trusting_all.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, context=trusting_all) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@by_variant
def test_a_kube_scheduler_starts_with_the_shipped_command_line_and_configuration(
    cluster: Cluster, variant: str, tmp_path: Path
) -> None:
    deployment = named(built(cluster, variant), "Deployment", CONTROLLER if variant == "extender" else SCHEDULER)
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (container,) = (c for c in containers if c["name"] == "scheduler")
    configuration = yaml.safe_load((DEPLOY / variant / "scheduler.yaml").read_text())
    configuration["clientConnection"]["kubeconfig"] = str(
        cluster.kubeconfig_for_service_account(SYSTEM, SCHEDULER)
    )
    for entry in configuration["extenders"]:
        if "tlsConfig" in entry:
            entry["tlsConfig"] = certificates(cluster)
    (tmp_path / "scheduler.yaml").write_text(json.dumps(configuration))
    (port,) = free_ports(1)
    given = " ".join(container["args"]).replace("/etc/parley-scheduler", str(tmp_path)).replace("10259", str(port))
    program = str(cluster.directory / "bin" / container["command"][0])
    environment = ("--bind-address=127.0.0.1", f"--authorization-kubeconfig={cluster.kubeconfig}")

    with running(cluster, [program, *given.split(), *environment], tmp_path / "log") as process:
        deadline = time.monotonic() + LIMIT
        while not answers(f"https://127.0.0.1:{port}{container['readinessProbe']['httpGet']['path']}"):
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)


def certificates(cluster: Cluster) -> dict[str, str]:
    """Any will do: they are only read here."""
    pki = cluster.directory / "pki"
    return {"caFile": f"{pki}/ca.crt", "certFile": f"{pki}/admin.crt", "keyFile": f"{pki}/admin.key"}
