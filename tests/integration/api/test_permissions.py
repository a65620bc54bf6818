"""What the accounts of the controller, the node plugin and a driver may do, asked of the real API server."""

from typing import Any

import pytest
import yaml
from tests.cluster.raw import Refused, raw, with_token
from tests.cluster.starting import DEPLOY

from parley.cli.permissions import permissions
from parley_devcluster import Cluster
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster

CONTROLLER = "parley-controller"
NODE_PLUGIN = "parley-kubelet"
DRIVER = "parley-driver-tokens.parley.dev"

POLICIES = [
    manifest["metadata"]["name"]
    for file in sorted((DEPLOY / "base").glob("*.yaml"))
    for manifest in yaml.safe_load_all(file.read_text())
    if manifest["kind"] == "ValidatingAdmissionPolicy"
]

ALLOWED = [
    (CONTROLLER, "watch", "pods", "default"),
    (CONTROLLER, "list", "nodes", ""),
    (CONTROLLER, "watch", "resourceslices.resource.k8s.io", ""),
    (CONTROLLER, "create", "resourceclaims.resource.k8s.io", "default"),
    (CONTROLLER, "patch", "resourceclaims.resource.k8s.io", "default"),
    (CONTROLLER, "delete", "resourceclaimtemplates.resource.k8s.io", "default"),
    (CONTROLLER, "patch", "resourceclaims.resource.k8s.io/status", "default"),
    (CONTROLLER, "patch", "resourceclaims.resource.k8s.io/binding", "default"),
    (CONTROLLER, "arbitrary-node:patch", "resourceclaims.resource.k8s.io/driver/device.parley.dev", "default"),
    (CONTROLLER, "patch", "resourceclaims.parley.dev/status", "default"),
    (CONTROLLER, "create", "podschedulings.parley.dev", "default"),
    (CONTROLLER, "watch", "podschedulings.parley.dev", "default"),
    (CONTROLLER, "delete", "resourceclaims.parley.dev", "default"),
    (CONTROLLER, "create", "claimreleases.parley.dev", ""),
    (CONTROLLER, "patch", "claimreleases.parley.dev", ""),
    (CONTROLLER, "delete", "claimreleases.parley.dev", ""),
    (CONTROLLER, "patch", "pods/status", "default"),
    (CONTROLLER, "allocate", "resourceclaims.parley.dev", "default"),
    (CONTROLLER, "create", "events.events.k8s.io", "default"),
    (CONTROLLER, "create", "leases.coordination.k8s.io", "parley-system"),
    (CONTROLLER, "patch", "leases.coordination.k8s.io//parley-controller", "parley-system"),
    (DRIVER, "watch", "podschedulings.parley.dev", "default"),
    (DRIVER, "patch", "podschedulings.parley.dev", "default"),
    (DRIVER, "patch", "resourceclaims.parley.dev", "default"),
    (DRIVER, "patch", "resourceclaims.parley.dev/status", "default"),
    (DRIVER, "list", "nodes", ""),
    (DRIVER, "patch", f"leases.coordination.k8s.io//{DRIVER}", "parley-system"),
    (DRIVER, "allocate", "resourceclaims.parley.dev/driver/tokens.parley.dev", "default"),
    (NODE_PLUGIN, "get", "resourceclaims.resource.k8s.io", "default"),
    (NODE_PLUGIN, "create", "resourceslices.resource.k8s.io", ""),
    (NODE_PLUGIN, "patch", "resourceslices.resource.k8s.io", ""),
    (NODE_PLUGIN, "watch", "claimreleases.parley.dev", ""),
    (NODE_PLUGIN, "delete", "claimreleases.parley.dev", ""),
    (NODE_PLUGIN, "get", "nodes", ""),
    (NODE_PLUGIN, "publish", "resourceclaims.parley.dev/driver/device.parley.dev", ""),
    (NODE_PLUGIN, "publish", "resourceclaims.parley.dev/driver/workspace.parley.dev", ""),
]

DENIED = [
    (NODE_PLUGIN, "create", "claimreleases.parley.dev", ""),
    (NODE_PLUGIN, "patch", "claimreleases.parley.dev", ""),
    (NODE_PLUGIN, "patch", "resourceclaims.parley.dev", "default"),
    (NODE_PLUGIN, "delete", "resourceclaims.parley.dev", "default"),
    (NODE_PLUGIN, "list", "resourceclaims.parley.dev", ""),
    (DRIVER, "list", "claimreleases.parley.dev", ""),
    (DRIVER, "delete", "claimreleases.parley.dev", ""),
    (CONTROLLER, "create", "pods", "default"),
    (CONTROLLER, "patch", "pods", "default"),
    (CONTROLLER, "delete", "pods", "default"),
    (CONTROLLER, "create", "pods/binding", "default"),
    (CONTROLLER, "patch", "nodes", ""),
    (CONTROLLER, "get", "secrets", "default"),
    (CONTROLLER, "get", "secrets", "parley-system"),
    (CONTROLLER, "create", "deviceclasses.resource.k8s.io", ""),
    (CONTROLLER, "create", "resourceslices.resource.k8s.io", ""),
    (CONTROLLER, "patch", "resourceclasses.parley.dev", ""),
    (CONTROLLER, "arbitrary-node:patch", "resourceclaims.resource.k8s.io/driver/gpu.example.org", "default"),
    (CONTROLLER, "update", "leases.coordination.k8s.io", "kube-system"),
    (CONTROLLER, "update", "leases.coordination.k8s.io//another", "parley-system"),
    (CONTROLLER, "*", "*", ""),
    (DRIVER, "create", "podschedulings.parley.dev", "default"),
    (DRIVER, "create", "resourceclaims.parley.dev", "default"),
    (DRIVER, "delete", "resourceclaims.parley.dev", "default"),
    (DRIVER, "patch", "resourceclaims.resource.k8s.io/status", "default"),
    (DRIVER, "list", "pods", "default"),
    (DRIVER, "patch", "nodes", ""),
    (DRIVER, "allocate", "resourceclaims.parley.dev", "default"),
    (DRIVER, "allocate", "resourceclaims.parley.dev/driver", "default"),
    (DRIVER, "allocate", "resourceclaims.parley.dev/driver/device.parley.dev", "default"),
    (DRIVER, "arbitrary-driver", "resourceclaims.parley.dev/driver", "default"),
    (DRIVER, "create", "leases.coordination.k8s.io", "parley-system"),
    (DRIVER, "patch", "leases.coordination.k8s.io//parley-controller", "parley-system"),
    (NODE_PLUGIN, "list", "resourceclaims.resource.k8s.io", "default"),
    (NODE_PLUGIN, "patch", "resourceclaims.resource.k8s.io/status", "default"),
    (NODE_PLUGIN, "patch", "resourceclaims.resource.k8s.io", "default"),
    (NODE_PLUGIN, "update", "resourceslices.resource.k8s.io", ""),
    (NODE_PLUGIN, "create", "resourceclaims.parley.dev", "default"),
    (NODE_PLUGIN, "patch", "resourceclaims.parley.dev/status", "default"),
    (NODE_PLUGIN, "list", "resourceclasses.parley.dev", ""),
    (NODE_PLUGIN, "get", "podschedulings.parley.dev", "default"),
    (NODE_PLUGIN, "get", "secrets", "default"),
    (NODE_PLUGIN, "list", "nodes", ""),
    (NODE_PLUGIN, "list", "pods", "default"),
    (NODE_PLUGIN, "get", "leases.coordination.k8s.io", "parley-system"),
    (NODE_PLUGIN, "allocate", "resourceclaims.parley.dev", "default"),
    (NODE_PLUGIN, "patch", "nodes", ""),
    (NODE_PLUGIN, "arbitrary-node", "resourceclaims.parley.dev/driver", ""),
    (NODE_PLUGIN, "publish", "resourceclaims.parley.dev/driver", ""),
    (NODE_PLUGIN, "publish", "resourceclaims.parley.dev/driver/tokens.parley.dev", ""),
]


@pytest.fixture(scope="module", autouse=True)
def driver_account(installed: Cluster) -> None:
    installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(permissions("tokens.parley.dev", NAMESPACE)))


def allowed(cluster: Cluster, account: str, verb: str, what: str, namespace: str) -> bool:
    """What a SubjectAccessReview says about `what`: resource.group/subresource/name, the last two optional."""
    resource, subresource, name, *_ = [*what.split("/"), "", ""]
    plural, _, group = resource.partition(".")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "name": name,
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:parley-system:{account}", "resourceAttributes": attributes},
    }
    answer = raw(cluster).post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize(("account", "verb", "what", "namespace"), ALLOWED)
def test_may(installed: Cluster, account: str, verb: str, what: str, namespace: str) -> None:
    assert allowed(installed, account, verb, what, namespace)


@pytest.mark.parametrize(("account", "verb", "what", "namespace"), DENIED)
def test_may_not(installed: Cluster, account: str, verb: str, what: str, namespace: str) -> None:
    assert not allowed(installed, account, verb, what, namespace)


VIRTUAL = {"resourceclaims/binding", "resourceclaims/driver"}
"""Asked about by the API server itself; no path of the API."""


def served(cluster: Cluster, group: str) -> dict[str, set[str]]:
    """The verbs of each resource of a group."""
    prefix = f"/apis/{group}" if group else "/api"
    version = raw(cluster).get(prefix)["preferredVersion"]["version"] if group else "v1"
    resources = raw(cluster).get(f"{prefix}/{version}")["resources"]
    return {resource["name"]: set(resource["verbs"]) for resource in resources}


@pytest.mark.parametrize(
    "role",
    [
        "clusterroles/parley-controller",
        "clusterroles/parley-driver",
        "clusterroles/parley-kubelet",
        "roles/parley-leases",
    ],
)
def test_every_permission_is_for_something_that_exists(installed: Cluster, role: str) -> None:
    namespace = "/namespaces/parley-system" if role.startswith("roles") else ""
    rules = raw(installed).get(f"/apis/rbac.authorization.k8s.io/v1{namespace}/{role}")["rules"]

    assert rules
    for rule in rules:
        (group,) = rule["apiGroups"]
        known = served(installed, group)
        for resource in set(rule["resources"]) - VIRTUAL:
            assert set(rule["verbs"]) - {"allocate"} <= known[resource], f"{resource} of {group!r}"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_understood(installed: Cluster, policy: str) -> None:
    judged = "--for=jsonpath={.status.observedGeneration}"
    installed.kubectl("wait", judged, "--timeout=60s", f"validatingadmissionpolicy/{policy}")

    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{policy}"
    assert raw(installed).get(path)["status"]["typeChecking"] == {}


def test_lease_renewals_have_a_lane_of_their_own(installed: Cluster) -> None:
    lane = "flowschema/parley-leader-election"

    waited = installed.kubectl("wait", "--for=condition=Dangling=False", "--timeout=60s", lane)

    assert "condition met" in waited


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"app": "other"}},
        {"annotations": {"kept": None}},
        {"finalizers": ["example.com/stay"]},
    ],
    ids=str,
)
def test_controllers_write_a_pods_status_and_no_metadata_with_it(
    installed: Cluster, namespace: str, metadata: dict[str, object]
) -> None:
    meta = {"name": "pod", "labels": {"app": "a"}, "annotations": {"kept": "1"}}
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = raw(installed).post(pods, {"metadata": meta, "spec": spec})["metadata"]
    controller = with_token(installed, installed.kubeconfig_for_service_account(NAMESPACE, "parley-controller"))

    def write(**body: object) -> Any:
        return controller.patch(f"{pods}/pod/status", body)

    with pytest.raises(Refused, match="no labels, annotations nor finalizers with it: leave metadata as it is"):
        write(status={"phase": "Failed"}, metadata=metadata)
    failed = write(status={"phase": "Failed", "message": "no such device"})

    assert failed["status"]["phase"] == "Failed"
    assert all(failed["metadata"].get(name) == made.get(name) for name in ("labels", "annotations", "finalizers"))
