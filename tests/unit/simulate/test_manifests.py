"""Manifests: what is read from files, and the exact words for everything that is wrong with them."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from textwrap import dedent

import pytest

from parley.simulate.manifests import read, read_dump
from parley.simulate.objects import BadManifests

Write = Callable[..., Path]

CLAIM = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: scanner}
spec: {resourceClassName: gpu}
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: team}
spec:
  containers: [{name: main, resources: {requests: {cpu: 100m}}}]
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "a.yaml") -> Path:
        Path(name).write_text(dedent(text))
        return Path(name)

    return write


def faults(*paths: Path) -> list[str]:
    with pytest.raises(BadManifests) as raised:
        read(paths)
    return list(raised.value.faults)


def test_objects_come_in_the_order_of_their_kinds(write: Write) -> None:
    manifests = read(
        [write(f"{POD}---{CLAIM}"), write("{apiVersion: v1, kind: Node, metadata: {name: n1}}", "b.yaml")]
    )

    assert [(m.source, m.title, m.namespace) for m in manifests] == [
        ("b.yaml, document 1", "Node n1", None),
        ("a.yaml, document 2", "ResourceClaim scanner", "default"),
        ("a.yaml, document 1", "Pod reader", "team"),
    ]


def test_a_list_holds_objects(write: Write) -> None:
    path = write("""
        apiVersion: v1
        kind: List
        items:
        - {apiVersion: v1, kind: Node, metadata: {name: n1}}
        - {apiVersion: v1, kind: Node, metadata: {name: n2}}
        """)

    assert [(m.source, m.name) for m in read([path])] == [
        ("a.yaml, document 1, item 1", "n1"),
        ("a.yaml, document 1, item 2", "n2"),
    ]


def test_empty_documents_are_counted_and_skipped(write: Write) -> None:
    assert [m.source for m in read([write(f"{CLAIM}---\n# nothing here\n---{POD}")])] == [
        "a.yaml, document 1",
        "a.yaml, document 3",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: [}\n",
            "a.yaml, line 3, column 19: is not YAML: expected the node content, but found '}'",
        ),
        (
            "just words",
            "a.yaml, document 1: is str 'just words', not an object; start it with apiVersion, kind and metadata",
        ),
        (
            "kind: Pod",
            "a.yaml, document 1: apiVersion is missing; write for example apiVersion: parley.dev/v1alpha1",
        ),
        ("apiVersion: v1", "a.yaml, document 1: kind is missing; write for example kind: ResourceClaim"),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: web}}",
            "a.yaml, document 1: kind 'Service' (v1) is not known to the simulated cluster; it knows Namespace, "
            "Node, ResourceSlice, ConfigMap, PriorityClass, ResourceClass, ResourceClaimTemplate, ResourceClaim, "
            "Deployment, StatefulSet, DaemonSet, Job, Pod",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}",
            "a.yaml, document 1 (Deployment web): spec is missing; add it",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {}}",
            "a.yaml, document 1 (Deployment web): spec.template is missing; add it",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: words}",
            "a.yaml, document 1 (Deployment web): spec='words': expected object, got str",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: two, template: {}}}",
            "a.yaml, document 1 (Deployment web): spec.replicas='two': expected int | null, got str",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: "
            "{a: b}}, template: {metadata: {labels: {a: c}}, spec: {}}}}",
            'a.yaml, document 1 (Deployment web): spec.template.metadata.labels: Invalid value: {"a":"c"}: '
            "`selector` does not match template `labels`",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: -1, selector: "
            "{matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {}}}}",
            "a.yaml, document 1 (Deployment web): spec.replicas: Invalid value: -1: must be greater than or equal "
            "to 0",
        ),
        (
            "{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {template: {spec: {nodeName: 7}}}}",
            "a.yaml, document 1 (Job web): spec.template.spec.nodeName=7: expected str, got int",
        ),
        (
            "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}}",
            "a.yaml, document 1: apiVersion 'resource.k8s.io/v1' is not one of ResourceClaim here; "
            "write apiVersion: parley.dev/v1alpha1",
        ),
        (
            "{apiVersion: v1, kind: Node}",
            "a.yaml, document 1 (Node): metadata.name is missing; every object needs a name",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: 7}}",
            "a.yaml, document 1 (Node): metadata.name=7 is not a string; put it in quotes",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: Node_1}}",
            'a.yaml, document 1 (Node Node_1): metadata.name: Invalid value: "Node_1": a lowercase RFC 1123 '
            "subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
            "with an alphanumeric character",
        ),
        (
            "{apiVersion: parley.dev/v1alpha1, kind: ResourceClaim, metadata: {name: c}, spec: {}}",
            "a.yaml, document 1 (ResourceClaim c): [spec.resourceClassName: Required value, <nil>: Invalid value: "
            "null: some validation rules were not checked because the object was invalid; correct the existing "
            "errors to complete validation]",
        ),
        (
            "{apiVersion: parley.dev/v1alpha1, kind: ResourceClass, metadata: {name: gpu}, driverName: GPU}",
            'a.yaml, document 1 (ResourceClass gpu): driverName: Invalid value: "GPU": driverName in body should '
            r"match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'",
        ),
        (
            "{apiVersion: parley.dev/v1alpha1, kind: ResourceClaim, metadata: {name: c}, "
            "spec: {resourceClassName: gpu, count: 2}}",
            'a.yaml, document 1 (ResourceClaim c): strict decoding error: unknown field "spec.count"',
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{resourceClaimName: c}]}}",
            "a.yaml, document 1 (Pod p): spec.resourceClaims[0].name is missing; add it",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: "
            "[{name: c, resourceClaimTemplate: one}]}}",
            'a.yaml, document 1 (Pod p): unknown field "spec.resourceClaims[0].resourceClaimTemplate"',
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{name: c}]}}",
            "a.yaml, document 1 (Pod p): spec.resourceClaims[0]: must specify one of: `resourceClaimName`, "
            "`resourceClaimTemplateName`",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: "
            "[{name: c, resourceClaimName: a, resourceClaimTemplateName: b}]}}",
            "a.yaml, document 1 (Pod p): spec.resourceClaims[0]: at most one of `resourceClaimName` or "
            "`resourceClaimTemplateName` may be specified",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{name: c, "
            "resourceClaimName: a}], containers: [{name: main, resources: {claims: [{name: d}]}}]}}",
            'a.yaml, document 1 (Pod p): spec.containers[0].resources.claims[0]: Not found: "d": must be one of '
            "the names in pod.spec.resourceClaims",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: "
            "[{name: c, resourceClaimName: a}, {name: c, resourceClaimName: b}]}}",
            'a.yaml, document 1 (Pod p): spec.resourceClaims[1].name: Duplicate value: "c"',
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: "
            "[{name: C, resourceClaimName: a}]}}",
            'a.yaml, document 1 (Pod p): spec.resourceClaims[0].name: Invalid value: "C": a lowercase RFC 1123 '
            "label must consist of lower case alphanumeric characters or '-', and must start and end with an "
            "alphanumeric character",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{name: c, "
            "resourceClaimName: a}], containers: [{name: main, resources: {claims: [{name: c}, {name: c}]}}]}}",
            'a.yaml, document 1 (Pod p): spec.containers[0].resources.claims[1]: Duplicate value: "c"',
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: 7}}",
            "a.yaml, document 1 (Pod p): spec.nodeName=7: expected str, got int",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeSelector: {disk: true}}}",
            "a.yaml, document 1 (Pod p): spec.nodeSelector[...]={'disk': True}: expected str, got bool",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {memory: 64GB}}}",
            "a.yaml, document 1 (Node n): status.allocatable.memory: '64GB' is not a quantity; write a "
            "number such as 2, 250m or 16Gi",
        ),
    ],
)
def test_a_fault_names_file_document_object_field_value_and_remedy(write: Write, text: str, fault: str) -> None:
    assert faults(write(text)) == [fault]


def test_a_quantity_of_a_device_is_checked_too(write: Write) -> None:
    path = write("""
        apiVersion: resource.k8s.io/v1
        kind: ResourceSlice
        metadata: {name: s}
        spec: {devices: [{name: gpu-0, capacity: {memory: {value: much}}}]}
        """)

    assert faults(path) == [
        "a.yaml, document 1 (ResourceSlice s): spec.devices[0].capacity.memory: 'much' is not a quantity; "
        "write a number such as 2, 250m or 16Gi"
    ]


def claim_of_another_driver(bandwidth: str) -> str:
    return f"""
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {{name: c}}
        spec:
          devices:
            requests:
            - name: nic
              exactly: {{deviceClassName: nic, capacity: {{requests: {{bandwidth: {bandwidth}}}}}}}
        status:
          devices: [{{driver: nic, pool: a, device: nic-0, data: {{limits: {{rate: unlimited}}}}}}]
        """


def test_claims_of_other_drivers_in_a_dump_may_request_capacity_and_have_any_data(write: Write) -> None:
    """As any tenant's may: the rest of the dump must not be refused for them."""
    manifests, _ = read_dump([write(claim_of_another_driver("1Gi"))])

    assert [manifest.title for manifest in manifests] == ["ResourceClaim c"]


def test_capacity_that_a_claim_requests_is_checked_too(write: Write) -> None:
    with pytest.raises(BadManifests) as raised:
        read_dump([write(claim_of_another_driver("much"))])

    assert raised.value.faults == (
        "a.yaml, document 1 (ResourceClaim c): spec.devices.requests[0].exactly.capacity.requests.bandwidth: "
        "'much' is not a quantity; write a number such as 2, 250m or 16Gi",
    )


def test_all_faults_of_all_files_are_told_at_once(write: Write) -> None:
    assert faults(write("kind: Pod"), Path("missing.yaml"), write("apiVersion: v1", "c.yaml")) == [
        "a.yaml, document 1: apiVersion is missing; write for example apiVersion: parley.dev/v1alpha1",
        "missing.yaml: cannot be read: No such file or directory; give the path of a YAML file",
        "c.yaml, document 1: kind is missing; write for example kind: ResourceClaim",
    ]


def test_binary_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.bin").write_bytes(b"\xff\xfe\x00")

    assert faults(Path("a.bin")) == ["a.bin: is not UTF-8 text; give the path of a YAML file"]


def test_two_objects_of_one_name_are_a_fault(write: Write) -> None:
    assert faults(write(CLAIM), write(CLAIM, "b.yaml")) == [
        "b.yaml, document 1 (ResourceClaim scanner): metadata.name 'scanner' is already used by a.yaml, "
        "document 1; rename one of them"
    ]


def test_the_same_name_in_another_namespace_is_fine(write: Write) -> None:
    other = POD.replace("namespace: team", "namespace: other")

    assert [m.namespace for m in read([write(f"{POD}---{other}")])] == ["team", "other"]


def test_a_dump_may_hold_other_kinds_which_are_counted(write: Write) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web:1}\n"

    manifests, left_out = read_dump([write(f"{POD}---\n{service}---\n{service}")])

    assert [manifest.title for manifest in manifests] == ["Pod reader"]
    assert left_out == {"Service": 2}


def test_json_that_is_broken_is_told_in_yamls_terms(write: Write) -> None:
    assert faults(write('{"kind": ')) == [
        "a.yaml, line 1, column 10: is not YAML: expected the node content, but found '<stream end>'"
    ]


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(POD))

    assert [(m.source, m.title) for m in read([Path("-")])] == [("-, document 1", "Pod reader")]
