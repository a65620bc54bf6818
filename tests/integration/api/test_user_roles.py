"""Every request to Parley's kinds, tried with the token of an account that has a stock role in one namespace."""

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.patience import patient
from tests.cluster.raw import RawServer, Refused, raw, with_token

from parley.api.exits import Exit
from parley.api.resources import (
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    POD_SCHEDULINGS,
    PODS,
    TEMPLATES,
    Resource,
)
from parley.kube.client import Forbidden
from parley_devcluster import Cluster, ClusterError

pytestmark = pytest.mark.cluster

READ = {"get", "list", "watch"}
WRITE = {"create", "update", "patch", "apply", "delete", "deletecollection"}
KINDS: tuple[Resource[Any], ...] = (CLAIMS, TEMPLATES, POD_SCHEDULINGS, CLASSES, CLAIM_RELEASES)
SUBRESOURCES = ("status", "driver", "binding", "scale")

MAY: dict[str, dict[str, set[str]]] = {
    "view": {"resourceclaims": READ, "resourceclaimtemplates": READ, "podschedulings": READ},
    "edit": {"resourceclaims": READ | WRITE, "resourceclaimtemplates": READ | WRITE, "podschedulings": READ},
    "admin": {"resourceclaims": READ | WRITE, "resourceclaimtemplates": READ | WRITE, "podschedulings": READ},
}
"""What each role may do to Parley's kinds in its namespace; nothing in others, nor to what is of no namespace."""

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def account(installed: Cluster, namespace: str) -> Callable[[str], Path]:
    """Makes the kubeconfig of a new account that has a role in the namespace."""

    def make(role: str) -> Path:
        name = f"{role}-{uuid.uuid4().hex[:6]}"
        installed.kubectl("create", "serviceaccount", name, "-n", namespace)
        subject = f"--serviceaccount={namespace}:{name}"
        installed.kubectl("create", "rolebinding", name, f"--clusterrole={role}", subject, "-n", namespace)
        return installed.kubeconfig_for_service_account(namespace, name)

    return make


@pytest.fixture
def elsewhere(installed: Cluster) -> str:
    """A namespace in which the account has no role."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    raw(installed).post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def let_in(user: RawServer, kind: Resource[Any], namespace: str) -> set[str]:
    """The verbs that the account may use: their requests are not refused with 403, but fail for other reasons."""
    place = namespace if kind.namespaced else None
    collection, one = kind.path(place), kind.path(place, "nothing")
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "nothing"}}
    merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
    requests: dict[str, tuple[str, str, object, str]] = {
        "get": ("GET", one, None, "-"),
        "list": ("GET", collection, None, "-"),
        "watch": ("GET", f"{collection}?watch=1&timeoutSeconds=1", None, "-"),
        "create": ("POST", collection, body, "application/json"),
        "update": ("PUT", one, body, "application/json"),
        "patch": ("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, merge),
        "apply": ("PATCH", f"{one}?fieldManager=me&force=true", body, apply),
        "delete": ("DELETE", one, None, "-"),
        "deletecollection": ("DELETE", collection, None, "-"),
    }
    for name in SUBRESOURCES:
        requests[f"patch {name}"] = ("PATCH", f"{one}/{name}", {"status": {}}, merge)
    return {verb for verb, request in requests.items() if _status(user, *request) != 403}


def _status(user: RawServer, method: str, path: str, body: object, content: str) -> int:
    try:
        user.request(method, path, body, content)
    except Refused as refused:
        return refused.status
    except ValueError:
        return 200  # the events of a watch are no one document
    return 200


@pytest.mark.parametrize("role", MAY)
def test_what_a_role_of_kubernetes_own_may_do_in_its_namespace_and_nowhere_else(
    installed: Cluster, namespace: str, elsewhere: str, account: Callable[[str], Path], role: str
) -> None:
    user = with_token(installed, account(role))

    here = {kind.plural: verbs for kind in KINDS if (verbs := let_in(user, kind, namespace))}
    there = {kind.plural: verbs for kind in KINDS if (verbs := let_in(user, kind, elsewhere))}
    everywhere = {kind.plural for kind in KINDS if _status(user, "GET", kind.path(), None, "-") != 403}

    assert here == MAY[role]
    assert there == {}
    assert everywhere == set()


@pytest.mark.parametrize(
    ("resource", "verb"),
    [
        ("resourceclaims", "allocate"),
        ("resourceclaims/driver", "allocate"),
        ("resourceclaims/driver", "associated-driver"),
        ("resourceclaims/driver", "associated-node"),
        ("resourceclaims/status", "patch"),
        ("podschedulings", "patch"),
    ],
)
def test_who_administers_a_namespace_grants_no_right_that_is_parleys(
    installed: Cluster, namespace: str, account: Callable[[str], Path], resource: str, verb: str
) -> None:
    admin = with_token(installed, account("admin"))
    rule = {"apiGroups": ["parley.dev"], "resources": [resource], "verbs": [verb]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "more"}, "rules": [rule]}

    with pytest.raises(Refused, match="attempting to grant RBAC permissions not currently held") as refused:
        admin.post(f"/apis/{RBAC}/v1/namespaces/{namespace}/roles", role)

    assert refused.value.status == 403


@pytest.mark.parametrize("role", ["parley-controller", "parley-driver", "parley-kubelet", "cluster-admin"])
def test_who_administers_a_namespace_binds_nobody_to_parleys_roles(
    installed: Cluster, namespace: str, account: Callable[[str], Path], role: str
) -> None:
    admin = with_token(installed, account("admin"))
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }

    with pytest.raises(Refused, match="attempting to grant RBAC permissions not currently held"):
        admin.post(f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", binding)


def explain(kubeconfig: Path, namespace: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("parley"))
    command = [program, "explain", "pod", "waiting", "-n", namespace, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def waiting_pod(cluster: Cluster, namespace: str) -> None:
    """A pod that waits, by its PodScheduling, for a device."""
    entry = {"name": "gpu", "resourceClaimName": "mine"}
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"schedulerName": "nobody", "resourceClaims": [entry], "containers": [container]}
    pod = raw(cluster).post(PODS.path(namespace), {"metadata": {"name": "waiting"}, "spec": spec})
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "waiting",
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }
    scheduling = {
        "apiVersion": POD_SCHEDULINGS.api_version,
        "kind": POD_SCHEDULINGS.kind,
        "metadata": {"name": "waiting", "ownerReferences": [owner]},
        "status": {"waitingFor": "NothingViable", "message": "n1: no gpu is free"},
    }
    raw(cluster).post(POD_SCHEDULINGS.path(namespace), scheduling)


@pytest.mark.parametrize("role", MAY)
def test_a_user_explains_the_pods_of_its_namespace_and_no_others(
    installed: Cluster, namespace: str, elsewhere: str, account: Callable[[str], Path], role: str
) -> None:
    for place in (namespace, elsewhere):
        waiting_pod(installed, place)
    kubeconfig = account(role)

    own, other = explain(kubeconfig, namespace), explain(kubeconfig, elsewhere)

    assert own.returncode == 0, own.stderr
    assert "n1: no gpu is free" in own.stdout
    assert other.returncode == Exit.FORBIDDEN
    assert "n1" not in other.stdout + other.stderr


def test_edit_makes_what_pods_use(installed: Cluster, namespace: str, account: Callable[[str], Path]) -> None:
    """Written as its user, in full: the objects are there afterwards."""
    user = with_token(installed, account("edit"))
    spec = {"resourceClassName": "gpu", "parameters": {"model": "a100"}, "allocationMode": "Immediate"}
    for kind, wanted in ((CLAIMS, spec), (TEMPLATES, {"spec": spec})):
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "mine"}, "spec": wanted}
        user.post(kind.path(namespace), body)
        user.patch(kind.path(namespace, "mine"), {"metadata": {"labels": {"a": "b"}}})
        found = user.get(kind.path(namespace, "mine"))
        assert (found["spec"], found["metadata"]["labels"]) == (wanted, {"a": "b"})
        user.request("DELETE", kind.path(namespace, "mine"))


def test_a_class_reader_reads_classes_in_the_whole_cluster(installed: Cluster) -> None:
    name = f"reader-{uuid.uuid4().hex[:6]}"
    installed.kubectl("create", "clusterrolebinding", name, "--clusterrole=parley-class-reader", f"--user={name}")

    installed.kubectl("get", f"--as={name}", "resourceclasses.parley.dev")
    with pytest.raises(ClusterError, match="cannot list resource"):
        installed.kubectl("get", f"--as={name}", "nodes")


async def test_a_tenant_neither_makes_nor_changes_nor_deletes_what_keeps_a_device_taken(
    installed: Cluster, namespace: str
) -> None:
    installed.kubectl("create", "serviceaccount", "editor", "-n", namespace)
    account = f"--serviceaccount={namespace}:editor"
    installed.kubectl("create", "rolebinding", "editor", "--clusterrole=edit", account, "-n", namespace)
    name = f"r-{uuid.uuid4().hex[:8]}"
    claim = {"namespace": namespace, "name": "mine", "uid": "u1"}
    spec = {
        "claim": claim,
        "holdingUid": "u1",
        "nodeName": "n1",
        "driverName": "device.parley.dev",
        "allocation": {},
    }
    body = {"apiVersion": CLAIM_RELEASES.api_version, "kind": CLAIM_RELEASES.kind, "spec": spec}
    raw(installed).post(CLAIM_RELEASES.path(), {**body, "metadata": {"name": name}})

    tenant = installed.kubeconfig_for_service_account(namespace, "editor")
    async with patient(tenant) as client:
        own = {"metadata": {"name": "own"}, "spec": {"resourceClassName": "gpu"}}
        await client.create(CLAIMS, own, namespace)
        with pytest.raises(Forbidden, match="cannot create resource"):
            await client.create(CLAIM_RELEASES, {**body, "metadata": {"name": f"{name}-2"}})
        with pytest.raises(Forbidden, match="cannot patch resource"):
            await client.patch(CLAIM_RELEASES, name, {"status": {"allocationCleared": True}})
        with pytest.raises(Forbidden, match="cannot delete resource"):
            await client.delete(CLAIM_RELEASES, name)
        with pytest.raises(Forbidden, match="cannot list resource"):
            await client.list(CLAIM_RELEASES)

    assert "status" not in raw(installed).get(CLAIM_RELEASES.path(name=name))
    raw(installed).request("DELETE", CLAIM_RELEASES.path(name=name))
