"""Which requests a standalone driver may make with its own token, on a real API server."""

import json
from typing import Any

import pytest
from tests.cluster.raw import RawServer, Refused, raw, with_token
from tests.integration.api.isolation.conftest import CLASS, DISKS, SEATS, Claim, kind

from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    EVENTS,
    LEASES,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.cli.permissions import account_name, lease_name
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


@pytest.fixture
def token(cluster: Cluster) -> RawServer:
    """Any request, as the driver for disks."""
    return with_token(cluster, cluster.kubeconfig_for_service_account(NAMESPACE, account_name(DISKS)))


NAMED: dict[str, Resource[Any]] = {
    "PodScheduling": POD_SCHEDULINGS,
    "ResourceClaim": CLAIMS,
    "ResourceClaimTemplate": TEMPLATES,
    "ResourceClass": CLASSES,
    "ClaimRelease": CLAIM_RELEASES,
    "built-in ResourceClaim": BUILTIN_CLAIMS,
    "built-in ResourceClaimTemplate": BUILTIN_TEMPLATES,
    "ResourceSlice": RESOURCE_SLICES,
    "Pod": PODS,
    "Node": NODES,
    "Lease": LEASES,
    "Event": EVENTS,
    "Secret": Resource("", "v1", "secrets", "Secret", True, dict[str, Any]),
    "ConfigMap": Resource("", "v1", "configmaps", "ConfigMap", True, dict[str, Any]),
    "ValidatingAdmissionPolicyBinding": Resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        False,
        dict[str, Any],
    ),
    "ClusterRoleBinding": Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, dict[str, Any]
    ),
}
READS = {"PodScheduling", "ResourceClaim", "ResourceClass", "ResourceSlice", "Node"}
PATCHES = {"PodScheduling", "ResourceClaim"}


@pytest.mark.parametrize("what", NAMED)
def test_requests_that_a_driver_may_make(cluster: Cluster, token: RawServer, namespace: str, what: str) -> None:
    resource = NAMED[what]
    place = namespace if resource.namespaced else None
    collection, one = resource.path(place), resource.path(place, "nothing")
    spec = {"spec": {"resourceClassName": CLASS[DISKS]}} if resource is CLAIMS else {}
    body = {**kind(resource), "metadata": {"name": "nothing"}, **spec}
    tried: dict[str, tuple[str, str, object, str]] = {
        "get": ("GET", one, None, ""),
        "list": ("GET", collection, None, ""),
        "create": ("POST", collection, body, "application/json"),
        "update": ("PUT", one, body, "application/json"),
        "patch": ("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, MERGE),
        "apply": ("PATCH", f"{one}?fieldManager={DISKS}&force=true", body, APPLY),
        "patch status": ("PATCH", f"{one}/status", {"status": {}}, MERGE),
        "delete": ("DELETE", one, None, ""),
        "deletecollection": ("DELETE", collection, None, ""),
    }

    let_in = {verb for verb, request in tried.items() if not forbidden(token, *request)}

    expected = {"get", "list"} if what in READS else set()
    expected |= {"patch"} if what in PATCHES else set()
    expected |= {"patch status"} if what == "ResourceClaim" else set()
    assert let_in == expected


def forbidden(token: RawServer, method: str, path: str, body: object, content: str) -> bool:
    """Whether the account lacks the right; a request that is let in may fail for other reasons."""
    try:
        token.request(method, path, body, content)
    except Refused as refused:
        return refused.status == 403
    return False


def test_only_its_own_lease_is_a_drivers(cluster: Cluster, token: RawServer) -> None:
    mine, others = (LEASES.path(NAMESPACE, lease_name(driver)) for driver in (DISKS, SEATS))
    held = {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}

    assert token.request("PATCH", mine, held, MERGE)["spec"]["holderIdentity"] == "me"

    for path in (
        others,
        LEASES.path(NAMESPACE, "parley-controller"),
        LEASES.path("kube-system", "kube-scheduler"),
    ):
        assert forbidden(token, "GET", path, None, "")
        assert forbidden(token, "PATCH", path, held, MERGE)
        assert forbidden(token, "DELETE", path, None, "")
    assert forbidden(token, "DELETE", mine, None, "")
    assert "holderIdentity" not in json.dumps(raw(cluster).get(others)["spec"])


async def test_a_class_is_not_made_a_drivers_own(cluster: Cluster, token: RawServer, foreign: Claim) -> None:
    body = {**kind(CLASSES), "metadata": {"name": f"{CLASS[DISKS]}-2"}, "driverName": DISKS}
    assert forbidden(token, "POST", CLASSES.path(), body, "application/json")
    assert forbidden(token, "PATCH", CLASSES.path(name=CLASS[SEATS]), {"driverName": DISKS}, MERGE)
    assert raw(cluster).get(CLASSES.path(name=CLASS[SEATS]))["driverName"] == SEATS
