"""What is dropped of pods and devices is read by nobody: whatever is decided comes out the same without it."""

import sys
import tracemalloc

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.api.builtin import BuiltinClaim, BuiltinClaimSpec, BuiltinTemplate, Pod, ResourceSlice
from parley.api.models import ClaimSpec
from parley.api.names import DEVICE_CLASS, POD_CLAIM_NAME_ANNOTATION
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES
from parley.api.selectors import node_selector
from parley.control.caches import kept
from parley.control.objects.class_request import ClassRequest, claim_spec, class_request
from parley.control.objects.mirror import allocated, is_mirror, is_shareable
from parley.drivers.device.inventory import Inventory
from parley.negotiation.fit import needs_of
from parley.negotiation.requests import requested

quantities = st.sampled_from(["1", "250m", "2Gi", 1, 0.5])
resources = st.fixed_dictionaries(
    {},
    optional={
        side: st.dictionaries(st.sampled_from(["cpu", "memory"]), quantities) for side in ("requests", "limits")
    },
)
containers = st.lists(st.fixed_dictionaries({"name": st.just("main"), "resources": resources}), max_size=3)
sidecars = st.lists(
    st.fixed_dictionaries({"resources": resources, "restartPolicy": st.sampled_from(["", "Always"])}), max_size=3
)
tolerations = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["a", "b"]), "operator": st.just("Exists")}), max_size=2
)
specs = st.fixed_dictionaries(
    {"containers": containers, "initContainers": sidecars, "tolerations": tolerations},
    optional={
        "nodeName": st.just("node-1"),
        "nodeSelector": st.just({"zone": "a"}),
        "overhead": st.just({"cpu": "10m"}),
        "resources": resources,
        "resourceClaims": st.just([{"name": "device", "resourceClaimTemplateName": "one-device"}]),
        "schedulingGates": st.just([{"name": "later"}]),
    },
)


def pod(spec: object) -> Pod:
    metadata = {
        "name": "a",
        "namespace": "team",
        "uid": "uid-a",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "labels": {"app": "a"},
        "annotations": {"about": "something long"},
    }
    status = {
        "phase": "Running",
        "nominatedNodeName": "node-2",
        "resourceClaimStatuses": [{"name": "device", "resourceClaimName": "a-device"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


@given(specs)
def test_a_pod_takes_as_much_of_its_node_as_before(spec: object) -> None:
    whole = pod(spec)
    assert requested(kept.pod(whole)) == requested(whole)


@given(specs)
def test_a_pod_with_claims_needs_the_same_of_a_node_as_before(spec: object) -> None:
    whole = pod(spec)
    if whole.spec.resource_claims:
        assert needs_of(kept.pod(whole)) == needs_of(whole)


@given(specs)
def test_what_else_is_decided_by_is_kept(spec: object) -> None:
    whole = pod(spec)
    left = kept.pod(whole)
    for name in ("name", "namespace", "uid", "resource_version", "creation_timestamp", "deletion_timestamp"):
        assert getattr(left.metadata, name) == getattr(whole.metadata, name)
    for name in ("node_name", "scheduler_name", "resource_claims", "scheduling_gates"):
        assert getattr(left.spec, name) == getattr(whole.spec, name)
    for name in ("phase", "nominated_node_name", "resource_claim_statuses"):
        assert getattr(left.status, name) == getattr(whole.status, name)


def test_which_claims_containers_use_is_kept() -> None:
    uses = {"resources": {"claims": [{"name": "device", "request": "first"}, {"name": "disk"}]}}
    left = kept.pod(pod({"containers": [uses, {"name": "idle"}], "resourceClaims": [{"name": "device"}]}))
    assert [[claim.name for claim in one.resources.claims] for one in left.spec.containers] == [
        ["device", "disk"],
        [],
    ]


def test_what_nobody_reads_is_dropped() -> None:
    left = kept.pod(pod({"containers": [{"name": "main"}]}))
    assert (left.metadata.labels, left.metadata.annotations, left.status.conditions) == ({}, {}, [])


def test_what_pods_have_in_common_is_in_memory_once() -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "resourceClaims": [{"name": "device"}]}
    first, second = kept.pod(pod(spec)), kept.pod(pod(spec))
    assert first.spec.containers is second.spec.containers
    assert first.spec.resource_claims is second.spec.resource_claims


NAMED = [{"name": "work", "resourceClaimName": "src-7"}]


@pytest.mark.parametrize(
    ("claims", "phase", "labels"),
    [
        (NAMED, "Pending", {"app": "a"}),
        (NAMED, "", {"app": "a"}),
        (NAMED, "Running", {}),
        ([{"name": "work", "resourceClaimTemplateName": "one"}], "Pending", {}),
        ([], "Pending", {}),
    ],
)
def test_labels_are_kept_of_pods_for_which_a_named_claim_may_have_to_be_made(
    claims: object, phase: str, labels: dict[str, str]
) -> None:
    whole = pod({"containers": [], "resourceClaims": claims})
    whole = msgspec.structs.replace(whole, status=msgspec.structs.replace(whole.status, phase=phase))
    assert kept.pod(whole).metadata.labels == labels


def device(name: str, memory: str) -> dict[str, object]:
    return {
        "name": name,
        "attributes": {"model": {"string": "a100"}},
        "capacity": {"memory": {"value": memory}, "slices": {"value": "2"}},
        "taints": [{"key": "negotiated", "effect": "NoSchedule"}],
    }


def test_devices_are_what_they_were_and_share_what_is_alike() -> None:
    devices = [device("device-0", "40Gi"), device("device-1", "40Gi"), device("device-2", "80Gi")]
    spec = {"driver": "device.parley.dev", "nodeName": "node-1", "pool": {"name": "node-1"}, "devices": devices}
    whole = msgspec.convert({"metadata": {"name": "node-1-devices"}, "spec": spec}, ResourceSlice)
    left = kept.resource_slice(whole)
    assert left == whole
    assert left.spec.devices[0].attributes is left.spec.devices[1].attributes
    inventories = [Inventory("device.parley.dev") for _ in range(2)]
    for inventory, slice_ in zip(inventories, (whole, left), strict=True):
        inventory.publish(None, slice_)
    assert inventories[0].stock("node-1") == inventories[1].stock("node-1")


def test_what_is_large_is_not_remembered_when_its_pod_is_gone() -> None:
    def large(number: int) -> Pod:
        requests = {f"x.dev/{number}": "9" * 50_000}
        return pod(
            {
                "containers": [{"resources": {"requests": requests}}],
                "tolerations": [{"key": f"{number}-{n}"} for n in range(500)],
                "resourceClaims": [{"name": f"{number}-{n}"} for n in range(500)],
            }
        )

    tracemalloc.start()
    try:
        for number in range(100):
            kept.pod(large(number))
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 1_000_000, "of about 20 MB"


def claim(device_class: str, *configs: tuple[str, object]) -> BuiltinClaim:
    body = {
        "metadata": {
            "name": "c",
            "namespace": "team",
            "uid": "uid-c",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"app": "a"},
            "annotations": {"about": "something long", POD_CLAIM_NAME_ANNOTATION: "gpu"},
            "finalizers": ["parley.dev/in-use"],
            "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}],
        },
        "spec": {
            "devices": {
                "requests": [{"name": "exclusive", "exactly": {"deviceClassName": device_class}}],
                "config": [{"opaque": {"driver": d, "parameters": p}} for d, p in configs],
            }
        },
        "status": {
            "allocation": {
                "devices": {
                    "results": [{"driver": "device.parley.dev", "pool": "n1", "device": "gpu-0"}],
                    "config": [{"opaque": {"driver": "device.parley.dev", "parameters": {"shared": True}}}],
                },
                "nodeSelector": node_selector(["n1"]),
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
            "devices": [{"driver": "device.parley.dev", "data": {"found": "later"}}],
        },
    }
    return BUILTIN_CLAIMS.decode(orjson.dumps(body))


ASKED = {"resourceClassName": "gpu", "parameters": {"count": 2}}


def test_of_a_mirror_everything_is_kept_that_says_what_was_asked_for_and_what_is_held() -> None:
    whole = claim(DEVICE_CLASS, ("example.com", {"of": "others"}), ("parley.dev", ASKED))
    left = kept.mirror(whole)
    assert left.metadata == msgspec.structs.replace(
        whole.metadata, labels={}, annotations={POD_CLAIM_NAME_ANNOTATION: "gpu"}
    )
    assert left.status == whole.status
    assert (is_mirror(left), is_shareable(left)) == (True, False)
    assert class_request(left) == class_request(whole) == ClassRequest("gpu", {"count": 2})
    assert allocated(left, "device.parley.dev") == allocated(whole, "device.parley.dev")
    assert len(left.spec.devices.config) == 1


def test_of_another_claim_only_its_devices_are_kept() -> None:
    left = kept.mirror(claim("gpu.example.com", ("example.com", {"of": "others"})))
    assert not is_mirror(left)
    assert left.spec == BuiltinClaimSpec()
    assert left.metadata.owner_references[0].uid == "uid-p"
    assert left.status.allocation is not None
    assert [result.device for result in left.status.allocation.devices.results] == ["gpu-0"]
    assert (left.status.allocation.devices.config, left.status.devices) == ([], [])


def test_what_is_kept_of_a_claim_does_not_keep_the_answer_that_it_came_in() -> None:
    answer = orjson.dumps(msgspec.to_builtins(claim(DEVICE_CLASS, ("parley.dev", ASKED)).metadata))
    body = b'{"metadata": %s, "spec": %s, "status": {"devices": [{"driver": "d", "data": {"a": 1}}]}}' % (
        answer,
        orjson.dumps(claim_spec(ClaimSpec(resource_class_name="gpu"), shareable=False)),
    )
    before = sys.getrefcount(body)
    left = kept.mirror(BUILTIN_CLAIMS.decode(body))
    assert sys.getrefcount(body) == before
    assert class_request(left) == ClassRequest("gpu", None)


def test_what_was_asked_for_alike_is_in_memory_once() -> None:
    first, second = (kept.mirror(claim(DEVICE_CLASS, ("parley.dev", ASKED))) for _ in range(2))
    assert first.spec is second.spec


def test_a_template_is_read_for_the_claims_that_will_be_made_from_it() -> None:
    def template(device_class: str) -> BuiltinTemplate:
        spec = {
            "devices": {
                "requests": [{"name": "exclusive", "exactly": {"deviceClassName": device_class}}],
                "config": [{"opaque": {"driver": "parley.dev", "parameters": ASKED}}],
            }
        }
        return kept.template_mirror(
            BUILTIN_TEMPLATES.decode(orjson.dumps({"metadata": {"name": "t"}, "spec": {"spec": spec}}))
        )

    assert class_request(BuiltinClaim(spec=template(DEVICE_CLASS).spec.spec)) == ClassRequest("gpu", {"count": 2})
    assert template("gpu.example.com").spec.spec == BuiltinClaimSpec()
