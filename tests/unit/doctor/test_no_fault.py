"""What the doctor takes into account before it reports a fault: other vendors' objects, other ways to install."""

from copy import deepcopy
from typing import Any

from tests.unit.doctor.conftest import Sick, ago
from tests.unit.doctor.healthy import NOW, SYSTEM
from tests.unit.doctor.planted.plants import (
    DISK_CLASS,
    changed,
    created,
    deleted,
    reservation_pods_on_1_36,
    runs_standalone,
    standalone,
)

from parley.api.names import CONTROLLER_LEASE
from parley.api.resources import BUILTIN_CLAIMS, CLASSES, LEASES, NODES, PODS, RESOURCE_SLICES
from parley.doctor import kinds
from parley.doctor.diagnosing import diagnose
from parley.doctor.findings import Severity


async def test_ordinary_claims_that_are_being_deleted_are_others(cluster: Sick) -> None:
    body = {"metadata": {"name": "theirs", "namespace": "team", "finalizers": ["example.com/x"]}, "spec": {}}
    await created(BUILTIN_CLAIMS, body)(cluster)
    await changed(BUILTIN_CLAIMS, "theirs", "metadata", "deletionTimestamp", to=ago(900))(cluster)

    assert await cluster.found("deleted-claims") == []


async def test_a_driver_that_works_standalone_is_well(cluster: Sick) -> None:
    await DISK_CLASS(cluster)
    await standalone("disk.example.com", 5)(cluster)

    assert await cluster.found("drivers") == []


async def test_a_driver_that_the_controller_leaves_out_runs_once(cluster: Sick) -> None:
    args = ("spec", "template", "spec", "containers", 0, "args")
    await changed(kinds.DEPLOYMENTS, "parley-controller", *args, to=["--driver=device"])(cluster)
    await standalone("tokens.parley.dev", 5)(cluster)
    await created(kinds.DEPLOYMENTS, runs_standalone("disks:Disks"))(cluster)

    assert await cluster.found("drivers") == []


async def test_of_a_controller_outside_of_the_cluster_it_is_not_known_which_drivers_it_runs(cluster: Sick) -> None:
    await deleted(kinds.DEPLOYMENTS, "parley-controller")(cluster)
    await standalone("device.parley.dev", 5)(cluster)

    assert await cluster.found("drivers") == []


async def test_a_controller_outside_of_the_cluster_says_in_a_class_that_it_runs_the_driver(cluster: Sick) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "InController", "message": ""}
    status = {"conditions": [{**ready, "lastTransitionTime": ago(9)}]}
    await deleted(kinds.DEPLOYMENTS, "parley-controller")(cluster)
    await changed(CLASSES, "gpu", "status", to=status)(cluster)
    await standalone("device.parley.dev", 600)(cluster)

    (found,) = [one for one in (await cluster.diagnosis()).findings if one.check == "drivers" and one.remedy]

    left = "driver device.parley.dev runs in the controller, and this Lease is left of a standalone one"
    assert found.text == left


async def test_reservation_pods_that_do_not_preempt_are_well(cluster: Sick) -> None:
    await reservation_pods_on_1_36({"preemptionPolicy": "Never"})(cluster)

    assert await cluster.found("controller") == []


async def test_a_role_that_grants_more_is_well(cluster: Sick) -> None:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    await changed(kinds.CLUSTER_ROLES, "parley-controller", "rules", to=everything)(cluster)

    assert await cluster.found("permissions") == []


async def pool(cluster: Sick, name: str, node: str) -> None:
    """Another DaemonSet of the node plugin, for that node alone."""
    labels = {"app.kubernetes.io/name": "parley-kubelet", "parley.dev/pool": name}

    def change(body: Any) -> None:
        body["spec"]["selector"]["matchLabels"] = body["spec"]["template"]["metadata"]["labels"] = labels

    (body,) = [b.body for b in cluster.server.store.collection(kinds.DAEMON_SETS).objects.values()][:1]
    made = deepcopy(body)
    made["metadata"] = {"name": f"parley-kubelet-{name}", "namespace": SYSTEM}
    change(made)
    await created(kinds.DAEMON_SETS, made)(cluster)
    await changed(PODS, f"parley-kubelet-{node}", "metadata", "labels", to=labels)(cluster)


async def test_pools_share_the_nodes(cluster: Sick) -> None:
    await pool(cluster, "gpus", "node-1")
    await pool(cluster, "disks", "node-2")
    await deleted(kinds.DAEMON_SETS, "parley-kubelet")(cluster)

    assert await cluster.found("node-plugin") == []

    await deleted(PODS, "parley-kubelet-node-2")(cluster)
    await deleted(RESOURCE_SLICES, "node-2-devices")(cluster)

    (found,) = await cluster.found("node-plugin")
    assert (found.about, found.text) == (
        "DaemonSets parley-system/parley-kubelet-disks, parley-system/parley-kubelet-gpus",
        "no node plugin on node node-2: no pod gets devices there",
    )


async def test_policies_name_the_namespace_that_parley_is_in(cluster: Sick) -> None:
    name, condition = "pod-status.parley.dev", ("spec", "matchConditions", 0, "expression")
    account = "request.userInfo.username == 'system:serviceaccount:{}:parley-controller'"
    await changed(kinds.POLICIES, name, *condition, to=account.format("allocation"))(cluster)

    async def found(namespace: str) -> list[str]:
        findings = (await diagnose(cluster.client, NOW, namespace, "0.1.0")).findings
        return [one.about for one in findings if one.check == "policies" and one.severity is not Severity.OK]

    assert await found("allocation") == []
    assert await found(SYSTEM) == [f"ValidatingAdmissionPolicy {name}"]


async def test_parley_is_looked_for_where_the_lease_is_that_was_renewed_last(cluster: Sick) -> None:
    async def looked_in() -> str:
        return (await diagnose(cluster.client, NOW, "", "0.1.0")).namespace

    assert await looked_in() == SYSTEM
    for namespace, seconds in (("removed-long-ago", 3_600), ("allocation", -1)):
        spec = {"holderIdentity": "c", "leaseDurationSeconds": 15, "renewTime": ago(seconds)}
        await cluster.client.create(LEASES, {"metadata": {"name": CONTROLLER_LEASE}, "spec": spec}, namespace)
    assert await looked_in() == "allocation"

    for namespace in (SYSTEM, "removed-long-ago", "allocation"):
        await cluster.client.delete(LEASES, CONTROLLER_LEASE, namespace)
    assert await looked_in() == SYSTEM


async def test_a_release_candidate_is_the_version_that_the_chart_names_in_its_own_way(cluster: Sick) -> None:
    label = {"app.kubernetes.io/version": "0.2.0-rc.1"}
    await changed(kinds.DEPLOYMENTS, "parley-controller", "metadata", "labels", to=label)(cluster)

    findings = (await diagnose(cluster.client, NOW, SYSTEM, "0.2.0rc1")).findings

    assert [one.text for one in findings if one.check == "controller" and one.severity is not Severity.OK] == []


async def test_the_folder_for_cdi_files_is_the_one_that_the_plugin_is_told(cluster: Sick) -> None:
    folder = "/run/containers/specs"
    pod = ("spec", "template", "spec")
    mounts = (*pod, "containers", 0, "volumeMounts", 2, "mountPath")
    await changed(kinds.DAEMON_SETS, "parley-kubelet", *pod, "volumes", 2, "hostPath", "path", to=folder)(cluster)
    await changed(kinds.DAEMON_SETS, "parley-kubelet", *mounts, to=folder)(cluster)

    (found,) = await cluster.found("kubelet-folder")
    assert found.text == "does not mount the CDI folder"

    args = ["--config=/etc/parley/devices.yaml", f"--cdi-dir={folder}"]
    await changed(kinds.DAEMON_SETS, "parley-kubelet", *pod, "containers", 0, "args", to=args)(cluster)

    assert await cluster.found("kubelet-folder") == []


async def test_a_slice_of_another_vendors_plugin_is_not_left_where_only_that_runs(cluster: Sick) -> None:
    """Its driver runs standalone, and its node part in a DaemonSet of the vendor's own."""
    await DISK_CLASS(cluster)
    await standalone("disk.example.com", 5)(cluster)
    await created(NODES, {"metadata": {"name": "node-3"}})(cluster)
    info = {"kubeletVersion": "v1.37.0", "containerRuntimeVersion": "containerd://2.1.4"}
    await changed(NODES, "node-3", "status", to={"nodeInfo": info})(cluster)
    spec = {
        "driver": "disk.example.com",
        "nodeName": "node-3",
        "pool": {"name": "node-3", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "disk-0"}],
    }
    await created(RESOURCE_SLICES, {"metadata": {"name": "node-3-disks"}, "spec": spec})(cluster)

    findings = (await cluster.diagnosis()).findings

    assert [one.text for one in findings if one.check == "slices"] == ["3 slices with 3 devices"]


async def test_a_plugin_with_hooks_alone_publishes_before_there_is_a_class_of_its_driver(cluster: Sick) -> None:
    folder = "/var/lib/kubelet/plugins/scratch.example.com"
    pod = ("spec", "template", "spec")
    await changed(kinds.DAEMON_SETS, "parley-kubelet", *pod, "volumes", 0, "hostPath", "path", to=folder)(cluster)
    for node in ("node-1", "node-2"):
        await changed(RESOURCE_SLICES, f"{node}-devices", "spec", "driver", to="scratch.example.com")(cluster)

    assert await cluster.found("slices") == []
