"""What is dropped of pods and devices is read by nobody: whatever is decided comes out the same without it."""

import tracemalloc

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from parley.api.builtin import Pod, ResourceSlice
from parley.control import kept
from parley.drivers.device.inventory import Inventory
from parley.negotiation.fit import needs_of, requested

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


def test_what_nobody_reads_is_dropped() -> None:
    left = kept.pod(pod({"containers": [{"name": "main"}]}))
    assert (left.metadata.labels, left.metadata.annotations, left.status.conditions) == ({}, {}, [])


def test_what_pods_have_in_common_is_in_memory_once() -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}], "resourceClaims": [{"name": "device"}]}
    first, second = kept.pod(pod(spec)), kept.pod(pod(spec))
    assert first.spec.containers is second.spec.containers
    assert first.spec.resource_claims is second.spec.resource_claims


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
