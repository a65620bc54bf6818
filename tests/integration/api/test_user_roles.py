"""What people may do with Kubernetes' own roles in a namespace: view reads Parley's objects, edit writes claims
and templates. Asked as a user of one namespace on the real API server."""

import json
import uuid
from typing import Any

import pytest
from tests.cluster.raw import raw

from parley.api.resources import CLAIM_RELEASES, CLAIMS, POD_SCHEDULINGS, TEMPLATES
from parley.kube.client import Forbidden
from parley.kube.http import HttpClient
from parley_devcluster import Cluster, ClusterError

pytestmark = pytest.mark.cluster

SPEC = {"resourceClassName": "gpu"}
Body = dict[str, Any]


def user(cluster: Cluster, namespace: str, role: str) -> str:
    """The option that makes kubectl a new user who has the role in the namespace."""
    name = f"{role}-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("create", "rolebinding", name, f"--clusterrole={role}", f"--user={name}", "-n", namespace)
    return f"--as={name}"


def manifest(resource: Any, namespace: str, name: str, **fields: Any) -> str:
    metadata = {"name": name, "namespace": namespace}
    return json.dumps({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields})


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_edit_writes_claims_and_templates(installed: Cluster, namespace: str, role: str) -> None:
    me = user(installed, namespace, role)
    for resource, spec in ((CLAIMS, SPEC), (TEMPLATES, {"spec": SPEC})):
        plural = f"{resource.plural}.parley.dev"
        installed.kubectl("create", me, "-f", "-", stdin=manifest(resource, namespace, "mine", spec=spec))
        installed.kubectl("label", me, "-n", namespace, plural, "mine", "a=b")
        assert "mine" in installed.kubectl("get", me, "-n", namespace, plural)
        installed.kubectl("delete", me, "-n", namespace, plural, "mine")


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_everybody_with_a_role_reads_what_his_pods_wait_for(installed: Cluster, namespace: str, role: str) -> None:
    me = user(installed, namespace, role)
    raw(installed).post(POD_SCHEDULINGS.path(namespace), json.loads(manifest(POD_SCHEDULINGS, namespace, "pod")))

    for plural in ("resourceclaims", "resourceclaimtemplates", "podschedulings"):
        installed.kubectl("get", me, "-n", namespace, f"{plural}.parley.dev")
        assert may(installed, me, "watch", f"{plural}.parley.dev", namespace)


def may(cluster: Cluster, me: str, verb: str, what: str, namespace: str) -> bool:
    resource, _, subresource = what.partition("/")
    asked = (verb, resource, f"--subresource={subresource}")
    try:
        return cluster.kubectl("auth", "can-i", me, "-n", namespace, *asked).strip() == "yes"
    except ClusterError:
        return False  # kubectl ends with 1 for a no


DENIED = [
    ("patch", "resourceclaims.parley.dev/status"),
    ("update", "resourceclaims.parley.dev/status"),
    ("allocate", "resourceclaims.parley.dev"),
    ("allocate", "resourceclaims.parley.dev/driver"),
    ("associated-node", "resourceclaims.parley.dev/driver"),
    ("create", "podschedulings.parley.dev"),
    ("patch", "podschedulings.parley.dev"),
    ("delete", "podschedulings.parley.dev"),
    ("create", "claimreleases.parley.dev"),
    ("patch", "claimreleases.parley.dev"),
    ("delete", "claimreleases.parley.dev"),
    ("list", "claimreleases.parley.dev"),
    ("create", "resourceclasses.parley.dev"),
    ("list", "resourceclasses.parley.dev"),
]


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_what_is_the_controllers_and_the_drivers_stays_theirs(
    installed: Cluster, namespace: str, role: str
) -> None:
    me = user(installed, namespace, role)

    assert [(verb, what) for verb, what in DENIED if may(installed, me, verb, what, namespace)] == []


def test_view_writes_nothing(installed: Cluster, namespace: str) -> None:
    me = user(installed, namespace, "view")

    with pytest.raises(ClusterError, match="cannot create resource"):
        installed.kubectl("create", me, "-f", "-", stdin=manifest(CLAIMS, namespace, "mine", spec=SPEC))


def test_another_namespace_is_out_of_reach(installed: Cluster, namespace: str) -> None:
    me = user(installed, namespace, "edit")

    with pytest.raises(ClusterError, match="cannot create resource"):
        installed.kubectl("create", me, "-f", "-", stdin=manifest(CLAIMS, "default", "mine", spec=SPEC))


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
    async with HttpClient.from_kubeconfig(str(tenant)) as client:
        await client.create(CLAIMS, json.loads(manifest(CLAIMS, namespace, "own", spec=SPEC)), namespace)
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
