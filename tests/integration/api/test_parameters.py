"""`parametersRef` on the real API server: what the CRDs refuse, and who may name which ConfigMap."""

import json
import uuid
from typing import Any

import pytest
from tests.cluster.raw import Refused, raw

from parley.api.resources import CLAIMS, CLASSES, CONFIG_MAPS, TEMPLATES, Resource
from parley_devcluster import Cluster, ClusterError
from parley_devcluster.parley import NAMESPACE

pytestmark = pytest.mark.cluster

SIZE = {"kind": "ConfigMap", "name": "size"}
EITHER = "parameters and parametersRef exclude each other: leave one of them out."


def user(cluster: Cluster, namespace: str, role: str) -> str:
    """The kubectl option by which one is a new user with that role in the namespace."""
    name = f"user-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("create", "rolebinding", name, f"--clusterrole={role}", f"--user={name}", "-n", namespace)
    return f"--as={name}"


def manifest(resource: Any, namespace: str, name: str, **fields: Any) -> str:
    metadata = {"name": name, "namespace": namespace}
    return json.dumps({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields})


def of_claim(**fields: Any) -> dict[str, Any]:
    return {"spec": {"resourceClassName": "gpu", **fields}}


def of_template(**fields: Any) -> dict[str, Any]:
    return {"spec": of_claim(**fields)}


def of_class(**fields: Any) -> dict[str, Any]:
    return {"driverName": "device.parley.dev", **fields}


def post(cluster: Cluster, resource: Resource[Any], namespace: str, body: dict[str, Any]) -> Any:
    whole = json.loads(manifest(resource, namespace if resource.namespaced else "", "one", **body))
    return raw(cluster).post(resource.path(namespace) + "?dryRun=All&fieldValidation=Strict", whole)


TAKEN = [
    (CLAIMS, of_claim(parametersRef=SIZE)),
    (CLAIMS, of_claim(parametersRef={"apiGroup": "disks.example.com", "kind": "Size", "name": "a.b"})),
    (TEMPLATES, of_template(parametersRef={"apiGroup": "", **SIZE})),
    (CLASSES, of_class(parametersRef={**SIZE, "namespace": "default"})),
    (CLASSES, of_class(parametersRef={"apiGroup": "disks.example.com", "kind": "Tier", "name": "gold"})),
    (CLASSES, of_class(parameters={})),
]


@pytest.mark.parametrize(("resource", "body"), TAKEN)
def test_what_is_taken(installed: Cluster, namespace: str, resource: Resource[Any], body: dict[str, Any]) -> None:
    post(installed, resource, namespace, body)


REFUSED = [
    (CLAIMS, of_claim(parametersRef=SIZE, parameters={}), f"spec.parametersRef: Invalid value: {EITHER}"),
    (
        TEMPLATES,
        of_template(parametersRef=SIZE, parameters={}),
        f"spec.spec.parametersRef: Invalid value: {EITHER}",
    ),
    (CLASSES, of_class(parametersRef={**SIZE, "namespace": "d"}, parameters={"pool": 1}), EITHER),
    (CLASSES, of_class(parametersRef=SIZE), "namespace is missing: set the namespace of the ConfigMap."),
    (
        CLAIMS,
        of_claim(parametersRef={**SIZE, "namespace": "else"}),
        'unknown field "spec.parametersRef.namespace"',
    ),
    (CLAIMS, of_claim(parametersRef={"kind": "ConfigMap"}), "spec.parametersRef.name: Required value"),
    (CLAIMS, of_claim(parametersRef={"name": "size"}), "spec.parametersRef.kind: Required value"),
    (CLAIMS, of_claim(parametersRef={**SIZE, "kind": "config/maps"}), "should match"),
    (CLAIMS, of_claim(parametersRef={**SIZE, "name": "../../secrets/s"}), "should match"),
    (CLAIMS, of_claim(parametersRef={**SIZE, "name": "n" * 254}), "may not be more than 253 bytes"),
    (CLAIMS, of_claim(parametersRef={**SIZE, "apiGroup": "A/b"}), "should match"),
]


@pytest.mark.parametrize(("resource", "body", "why"), REFUSED)
def test_what_is_refused(
    installed: Cluster, namespace: str, resource: Resource[Any], body: dict[str, Any], why: str
) -> None:
    with pytest.raises(Refused) as refused:
        post(installed, resource, namespace, body)
    assert why in str(refused.value)


def test_a_claim_names_the_same_object_for_ever(installed: Cluster, namespace: str) -> None:
    raw(installed).post(CLAIMS.path(namespace), json.loads(manifest(CLAIMS, namespace, "one", **of_claim())))
    with pytest.raises(Refused, match="spec is immutable"):
        raw(installed).patch(CLAIMS.path(namespace, "one"), {"spec": {"parametersRef": SIZE}})


def stranger(cluster: Cluster, namespace: str) -> str:
    """The option that makes kubectl a user who writes claims, templates and classes, and reads one ConfigMap."""
    name, role = f"stranger-{uuid.uuid4().hex[:6]}", f"writer-{uuid.uuid4().hex[:6]}"
    kinds = "resourceclaims.parley.dev,resourceclaimtemplates.parley.dev,resourceclasses.parley.dev"
    cluster.kubectl("create", "clusterrole", role, f"--resource={kinds}", "--verb=get,create,patch")
    cluster.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={name}")
    one = ("--resource=configmaps", "--resource-name=open", "--verb=get")
    cluster.kubectl("create", "role", role, *one, "-n", namespace)
    cluster.kubectl("create", "rolebinding", role, f"--role={role}", f"--user={name}", "-n", namespace)
    return f"--as={name}"


NAMED = [(CLAIMS, of_claim), (TEMPLATES, of_template), (CLASSES, of_class)]


@pytest.mark.parametrize(("resource", "body"), NAMED)
def test_nobody_names_a_config_map_that_he_may_not_read(
    installed: Cluster, namespace: str, resource: Resource[Any], body: Any
) -> None:
    me, place = stranger(installed, namespace), {} if resource.namespaced else {"namespace": namespace}

    def create(reference: dict[str, str], *who: str) -> None:
        made = manifest(resource, namespace, f"one-{namespace}", **body(parametersRef={**reference, **place}))
        installed.kubectl("create", "--dry-run=server", *who, "-f", "-", stdin=made)

    with pytest.raises(ClusterError) as refused:
        create(SIZE, me)
    named = f"{resource.kind} one-{namespace}: parametersRef names ConfigMap {namespace}/size"
    told = f"{named}, which {me.removeprefix('--as=')} cannot read: name one that you may read."
    assert told in str(refused.value)
    create({"kind": "ConfigMap", "name": "open"}, me)
    create({"apiGroup": "disks.example.com", "kind": "Size", "name": "size"}, me)
    create({"apiGroup": "disks.example.com", "kind": "ConfigMap", "name": "size"}, me)
    create(SIZE)
    if resource.namespaced:
        create(SIZE, user(installed, namespace, "edit"))


def test_who_may_not_read_it_may_still_label_what_names_it(installed: Cluster, namespace: str) -> None:
    me = stranger(installed, namespace)
    installed.kubectl(
        "create", "-f", "-", stdin=manifest(CLAIMS, namespace, "one", **of_claim(parametersRef=SIZE))
    )
    installed.kubectl("label", me, "-n", namespace, "resourceclaims.parley.dev", "one", "a=b")


def test_the_controller_reads_config_maps_only_where_it_is_granted(installed: Cluster, namespace: str) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:parley-controller"

    def may(verb: str, kind: str, place: str) -> bool:
        spec = {"user": account, "resourceAttributes": {"verb": verb, "resource": kind, "namespace": place}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        found = raw(installed).post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(found["status"]["allowed"])

    assert not may("get", CONFIG_MAPS.plural, namespace)
