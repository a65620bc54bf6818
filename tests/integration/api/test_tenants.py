"""What a user of one namespace can do to claims on a real control plane, and what Kubernetes' parts still can."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.admission_cases import ALLOCATED, CASES, DISKS, Case, stand_in
from tests.cluster.raw import raw
from tests.unit.simulate.test_admission_cases import RIGHTS, completed

from parley.api.names import DEVICE_CLASS
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS, Resource
from parley.simulate.admission import refused
from parley_devcluster import Cluster, ClusterError

pytestmark = pytest.mark.cluster

KUBE_SYSTEM = "system:serviceaccount:kube-system"
USERS = {
    "tenant": "tenant",
    "claim controller": f"{KUBE_SYSTEM}:resource-claim-controller",
    "collector": f"{KUBE_SYSTEM}:generic-garbage-collector",
    "namespace controller": f"{KUBE_SYSTEM}:namespace-controller",
    "parley": "system:serviceaccount:parley-system:parley-controller",
    "driver": "driver",
}


@pytest.fixture
def tenancy(installed: Cluster, namespace: str) -> str:
    """A namespace where the user "tenant" has the stock role edit, and all of Parley's claims and templates. The
    user "driver" has too, and may act as the driver for disks."""
    users = ("--user=tenant", "--user=driver")
    installed.kubectl("create", "rolebinding", "edit", "--clusterrole=edit", *users, "-n", namespace)
    kinds = "resourceclaims.parley.dev,resourceclaimtemplates.parley.dev"
    verbs = "get,list,watch,create,update,patch,delete,deletecollection"
    installed.kubectl("create", "role", "parley-user", f"--verb={verbs}", f"--resource={kinds}", "-n", namespace)
    installed.kubectl("create", "rolebinding", "parley", "--role=parley-user", *users, "-n", namespace)
    verb, drivers = "--verb=allocate", "--resource=resourceclaims.parley.dev/driver"
    role = ("create", "clusterrole", namespace, verb, drivers, f"--resource-name={DISKS}")
    installed.kubectl(*role)
    installed.kubectl("create", "clusterrolebinding", namespace, f"--clusterrole={namespace}", "--user=driver")
    return namespace


@pytest.fixture
def pod(installed: Cluster, tenancy: str) -> str:
    """UID of pod a, which nobody schedules."""
    spec = {"schedulingGates": [{"name": "parley.dev/test"}], "containers": [{"name": "main", "image": "none"}]}
    made = raw(installed).post(PODS.path(tenancy), {"metadata": {"name": "a"}, "spec": spec})
    return str(made["metadata"]["uid"])


def manifest(resource: Resource[Any], body: dict[str, Any], pod: str, version: str = "v1") -> str:
    api = resource.api_version if resource.group == "parley.dev" else f"{resource.group}/{version}"
    text = json.dumps({"apiVersion": api, "kind": resource.kind, **body})
    return text.replace('"UID"', f'"{pod}"')


def requested(cluster: Cluster, case: Case, namespace: str, pod: str) -> str:
    """Makes the case's request as its account; returns the refusal, or ""."""
    kind = (
        f"{case.resource.plural}.v1alpha1.parley.dev"
        if case.resource == CLAIMS
        else (f"{case.resource.plural}.v1.resource.k8s.io")
    )
    account = [f"--as={USERS[case.account]}"]
    name = {"name": "x", "namespace": namespace}
    if case.before is not None:
        before = completed(case.before, reserved=False)
        assert before is not None
        before["metadata"]["namespace"] = namespace
        cluster.kubectl("create", "-f", "-", stdin=manifest(case.resource, before, pod))
    if case.reserved and case.resource == CLAIMS:
        raw(cluster).patch(CLAIMS.path(namespace, "x", "status"), {"status": ALLOCATED})
    elif case.reserved:
        reserve(cluster, namespace, pod)
    try:
        if case.before is None:
            assert case.after is not None
            body = {**case.after, "metadata": {**case.after["metadata"], **name}}
            cluster.kubectl("create", "-f", "-", *account, stdin=manifest(case.resource, body, pod, case.version))
        elif case.after is None:
            cluster.kubectl("delete", kind, "x", "-n", namespace, "--wait=false", *account)
        else:
            patch = json.dumps({"metadata": case.after["metadata"]}).replace('"UID"', f'"{pod}"')
            cluster.kubectl("patch", kind, "x", "-n", namespace, "--type=merge", "-p", patch, *account)
    except ClusterError as error:
        return str(error)
    return ""


def reserve(cluster: Cluster, namespace: str, pod: str, claim: str = "x", name: str = "a") -> None:
    result = {"request": "exclusive", "driver": "device.parley.dev", "pool": "n1", "device": "gpu-0"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    users = [{"resource": "pods", "name": name, "uid": pod}]
    status = {"status": {"allocation": allocation, "reservedFor": users}}
    raw(cluster).patch(BUILTIN_CLAIMS.path(namespace, claim, "status"), status)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_policies_refuse_what_their_model_refuses_and_in_its_words(
    installed: Cluster, tenancy: str, pod: str, case: Case
) -> None:
    why = requested(installed, case, tenancy, pod)
    assert bool(why) == case.refused, why
    if not case.refused or case.version != "v1":
        assert not why or "being-negotiated.parley.dev" in why
        return
    before, after = completed(case.before, reserved=case.reserved), completed(case.after, reserved=case.reserved)
    for body in (before, after):
        if body is not None:
            body["metadata"]["namespace"] = tenancy
    words = refused(case.resource, before, after, replace(RIGHTS[case.account], name=USERS[case.account]))
    assert words in why


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one"},
    "spec": {
        "spec": {"devices": {"requests": [{"name": "exclusive", "exactly": {"deviceClassName": DEVICE_CLASS}}]}}
    },
}


def until(found: Callable[[], Any], seconds: float = 60) -> Any:
    """The first answer that is not empty."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.2)
    return answer


def claims(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return list(raw(cluster).get(BUILTIN_CLAIMS.path(namespace))["items"])


@pytest.fixture
def user(installed: Cluster, tenancy: str) -> str:
    """Name of the claim that the claim controller made for pod b, which has it reserved."""
    installed.kubectl("create", "-f", "-", "-n", tenancy, stdin=json.dumps(TEMPLATE))
    entry = {"name": "gpu", "resourceClaimTemplateName": "one"}
    spec = {
        "schedulingGates": [{"name": "parley.dev/test"}],
        "resourceClaims": [entry],
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
    }
    made = raw(installed).post(PODS.path(tenancy), {"metadata": {"name": "b"}, "spec": spec})
    (claim,) = until(lambda: claims(installed, tenancy))
    name = str(claim["metadata"]["name"])
    reserve(installed, tenancy, made["metadata"]["uid"], name, "b")
    return name


@pytest.mark.parametrize("way", ["background", "foreground"])
def test_a_generated_claim_goes_with_its_pod(installed: Cluster, tenancy: str, user: str, way: str) -> None:
    installed.kubectl("delete", "pod", "b", "-n", tenancy, f"--cascade={way}", "--as=tenant")
    assert user
    until(lambda: not claims(installed, tenancy))


def test_a_generated_claim_is_orphaned_where_its_pod_is_deleted_so(
    installed: Cluster, tenancy: str, user: str
) -> None:
    installed.kubectl("delete", "pod", "b", "-n", tenancy, "--cascade=orphan", "--as=tenant")
    assert user
    until(lambda: all(not claim["metadata"].get("ownerReferences") for claim in claims(installed, tenancy)))


def test_a_namespace_goes_with_all_that_is_guarded(installed: Cluster, tenancy: str, user: str, pod: str) -> None:
    body = stand_in()
    body["metadata"].update(name="stand-in", namespace=tenancy)
    installed.kubectl("create", "-f", "-", stdin=manifest(CLAIMS, body, pod))
    assert user
    installed.kubectl("delete", "namespace", tenancy, "--timeout=90s")
