"""Faults planted one at a time in a cluster in which all is well: each is named with its remedy, alone."""

from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from tests.unit.doctor.conftest import Sick, ago
from tests.unit.doctor.healthy import NOW, SYSTEM

from parley.api.names import CONTROLLER_LEASE, DEVICE_CLASS
from parley.api.resources import (
    BUILTIN_CLAIMS,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    DEVICE_CLASSES,
    LEASES,
    NODES,
    POD_SCHEDULINGS,
    PODS,
    RESOURCE_SLICES,
    SERVER_VERSION,
    Resource,
)
from parley.doctor import kinds
from parley.doctor.diagnosing import diagnose
from parley.doctor.findings import Severity

Plant = Callable[[Sick], Awaitable[None]]
ERROR, WARNING = Severity.ERROR, Severity.WARNING


def deleted(resource: Resource[Any], name: str) -> Plant:
    async def plant(cluster: Sick) -> None:
        await cluster.client.delete(
            resource, name, SYSTEM if resource.namespaced else None, grace_period_seconds=0
        )

    return plant


def changed(resource: Resource[Any], name: str, *path: str | int, to: Any) -> Plant:
    """The value at the path is another one; None takes the field away."""

    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        if to is None:
            del body[path[-1]]
        else:
            body[path[-1]] = to

    async def plant(cluster: Sick) -> None:
        await cluster.replace(resource, name, change)

    return plant


def created(resource: Resource[Any], body: Any) -> Plant:
    async def plant(cluster: Sick) -> None:
        namespace = body["metadata"].get("namespace")
        await cluster.client.create(resource.untyped(), body, namespace)

    return plant


def all_of(*plants: Plant) -> Plant:
    async def plant(cluster: Sick) -> None:
        for one in plants:
            await one(cluster)

    return plant


def renewed(seconds: float) -> Plant:
    return changed(LEASES, "parley-controller", "spec", "renewTime", to=ago(seconds))


def standalone(driver: str, seconds: float) -> Plant:
    spec = {"holderIdentity": "disks-0_1", "leaseDurationSeconds": 15, "renewTime": ago(seconds)}
    meta = {"name": f"parley-driver-{driver}", "namespace": SYSTEM}
    return created(LEASES, {"metadata": meta, "spec": spec})


def runs_standalone(load: str) -> dict[str, Any]:
    pod = {"containers": [{"name": "main", "command": ["parley", "driver", "run", load]}]}
    selector = {"matchLabels": {"app": "disks"}}
    return {
        "metadata": {"name": "disks", "namespace": SYSTEM},
        "spec": {"selector": selector, "template": {"metadata": {"labels": {"app": "disks"}}, "spec": pod}},
    }


def waiting(pod: str, reason: str, message: str) -> Plant:
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}],
    }
    return changed(PODS, pod, "status", to=status)


def unscheduled(pod: str, node: str) -> Plant:
    """A DaemonSet's pod that waits for room on the node that it is for."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    message = "0/2 nodes are available: 1 Insufficient memory."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return all_of(
        changed(PODS, pod, "spec", to={"affinity": affinity}),
        changed(PODS, pod, "status", to={"phase": "Pending", "conditions": [condition]}),
    )


def runtime(version: str) -> Plant:
    return changed(NODES, "node-2", "status", "nodeInfo", "containerRuntimeVersion", to=version)


def reservation_pods_on_1_36(spec: Mapping[str, str]) -> Plant:
    labels = {"parley.dev/reserved-claim": "uid-1"}
    pod = {"metadata": {"name": "reservation-1", "namespace": SYSTEM, "labels": labels}, "spec": dict(spec)}
    args = ("spec", "template", "spec", "containers", 0, "args")
    enabled = ["--reservation-pods-for=default-scheduler"]
    return all_of(
        changed(SERVER_VERSION, "version", "gitVersion", to="v1.36.3"),
        changed(NODES, "node-1", "status", "nodeInfo", "kubeletVersion", to="v1.36.3"),
        changed(NODES, "node-2", "status", "nodeInfo", "kubeletVersion", to="v1.36.3"),
        changed(kinds.DEPLOYMENTS, "parley-controller", *args, to=enabled),
        created(PODS, pod),
    )


REFUSED_BY_QUOTA = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedCreate",
    "message": 'pods "parley-controller-7c9-" is forbidden: insufficient quota to match these scopes: '
    "[{PriorityClass In [system-node-critical system-cluster-critical]}]",
}
SCHEDULER = {
    "metadata": {"name": "parley-scheduler", "namespace": SYSTEM},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "scheduler"}},
        "template": {"metadata": {"labels": {"app": "scheduler"}}, "spec": {"containers": []}},
    },
}
DISK_CLASS = created(CLASSES, {"metadata": {"name": "disk"}, "driverName": "disk.example.com"})
CLAIM = {
    "metadata": {"name": "data", "namespace": "team", "finalizers": ["disk.example.com/deletion-protection"]},
    "spec": {"resourceClassName": "gpu"},
}
NEEDED = {
    "type": "Needed",
    "status": "True",
    "reason": "UsedByClaims",
    "message": "claims need what it has: team/view",
    "lastTransitionTime": ago(900),
}
RELEASE_SPEC = {
    "claim": {"namespace": "team", "name": "data", "uid": "u1"},
    "nodeName": "node-2",
    "driverName": "device.parley.dev",
    "holdingUid": "u1",
    "allocation": {"handles": []},
}
RELEASE = {"metadata": {"name": "data-node-2"}, "spec": RELEASE_SPEC, "status": {"allocationCleared": True}}
OLD = changed(CLAIM_RELEASES, "data-node-2", "metadata", "creationTimestamp", to=ago(600))
SILENT = {
    "metadata": {"name": "wants", "namespace": "team"},
    "spec": {
        "round": 2,
        "claims": [{"name": "data", "driverName": "device.parley.dev", "resourceClaimName": "wants-data"}],
    },
    "status": {"waitingFor": "DriverNotAnswering"},
}
CSI = {
    "metadata": {"name": "csi", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"app": "csi"}},
        "template": {
            "spec": {
                "containers": [{"name": "csi", "command": ["csi"]}],
                "volumes": [{"name": "registry", "hostPath": {"path": "/data/kubelet/plugins_registry/"}}],
            }
        },
    },
}

CASES: dict[str, tuple[Plant, str, Severity, str, str]] = {
    "an API server that is too old": (
        all_of(
            changed(SERVER_VERSION, "version", "gitVersion", to="v1.35.2"),
            changed(NODES, "node-1", "status", "nodeInfo", "kubeletVersion", to="v1.35.2"),
            changed(NODES, "node-2", "status", "nodeInfo", "kubeletVersion", to="v1.35.2"),
        ),
        "api-server",
        ERROR,
        "Kubernetes v1.35.2 is older than 1.36",
        "update the control plane to 1.36 or later",
    ),
    "an API server that nobody has tested": (
        changed(SERVER_VERSION, "version", "gitVersion", to="v1.39.0"),
        "api-server",
        WARNING,
        "Kubernetes v1.39.0 is newer than 1.37",
        "check whether there is a newer Parley",
    ),
    "a kubelet that is newer than the API server": (
        changed(NODES, "node-2", "status", "nodeInfo", "kubeletVersion", to="v1.38.0"),
        "kubelets",
        ERROR,
        "node node-2: kubelet v1.38.0 does not fit API server 1.37",
        "update the control plane first",
    ),
    "a kubelet that is too old": (
        changed(NODES, "node-2", "status", "nodeInfo", "kubeletVersion", to="v1.33.1"),
        "kubelets",
        ERROR,
        "node node-2: kubelet v1.33.1 does not fit API server 1.37",
        "update it to 1.34 or later",
    ),
    "a kubelet that its API server may have, and that does not know the plugin's API": (
        all_of(
            changed(SERVER_VERSION, "version", "gitVersion", to="v1.36.3"),
            changed(NODES, "node-1", "status", "nodeInfo", "kubeletVersion", to="v1.36.3"),
            changed(NODES, "node-2", "status", "nodeInfo", "kubeletVersion", to="v1.33.9"),
        ),
        "kubelets",
        ERROR,
        "node node-2: kubelet v1.33.9 does not fit API server 1.36",
        "update it to 1.34 or later",
    ),
    "the DeviceClass that must not exist": (
        created(DEVICE_CLASSES, {"metadata": {"name": DEVICE_CLASS}, "spec": {}}),
        "device-class",
        ERROR,
        "it exists, so schedulers bind pods before Parley has negotiated for them",
        f"kubectl delete deviceclass {DEVICE_CLASS}",
    ),
    "a CRD that is missing": (
        deleted(kinds.CRDS, "claimreleases.parley.dev"),
        "crds",
        ERROR,
        "is missing",
        "kubectl apply --server-side -k crds",
    ),
    "a CRD of another version": (
        changed(
            kinds.CRDS,
            "resourceclasses.parley.dev",
            *("spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "driverName", "maxLength"),
            to=64,
        ),
        "crds",
        ERROR,
        "is not the one of this version: schema.openAPIV3Schema.properties.driverName.maxLength differs",
        "kubectl apply --server-side -k crds",
    ),
    "a CRD that is not served": (
        changed(kinds.CRDS, "podschedulings.parley.dev", "spec", "versions", 0, "served", to=False),
        "crds",
        ERROR,
        "v1alpha1 is not served",
        "kubectl apply --server-side -k crds",
    ),
    "a CRD that is not established": (
        changed(kinds.CRDS, "podschedulings.parley.dev", "status", "conditions", to=[]),
        "crds",
        ERROR,
        "is not established: no condition says so",
        "kubectl describe crd",
    ),
    "objects that are stored in an older version": (
        changed(kinds.CRDS, "podschedulings.parley.dev", "status", "storedVersions", to=["v1alpha0", "v1alpha1"]),
        "crds",
        WARNING,
        "objects may be stored as v1alpha0",
        "rewrite each object once",
    ),
    "a policy that is missing": (
        deleted(kinds.POLICIES, "mirrors.parley.dev"),
        "policies",
        ERROR,
        "is missing: what it forbids is allowed",
        "kubectl apply --server-side -k deploy/base",
    ),
    "a policy that was weakened": (
        changed(kinds.POLICIES, "mirrors.parley.dev", "spec", "failurePolicy", to="Ignore"),
        "policies",
        ERROR,
        "is not the one that was installed: spec.failurePolicy differs",
        "kubectl apply --server-side -k deploy/base",
    ),
    "a policy with an exception": (
        changed(kinds.POLICIES, "device-class.parley.dev", "spec", "matchConditions", to=[{"name": "no"}]),
        "policies",
        ERROR,
        "is not the one that was installed: spec.matchConditions differs",
        "kubectl apply --server-side -k deploy/base",
    ),
    "a policy that nothing binds": (
        deleted(kinds.POLICY_BINDINGS, "claim-marks.parley.dev"),
        "policies",
        ERROR,
        "is missing",
        "kubectl apply --server-side -k deploy/base",
    ),
    "a binding that only warns": (
        changed(kinds.POLICY_BINDINGS, "claim-marks.parley.dev", "spec", "validationActions", to=["Warn"]),
        "policies",
        ERROR,
        "spec.validationActions[0] differs",
        "kubectl apply --server-side -k deploy/base",
    ),
    "an account that is missing": (
        deleted(kinds.ACCOUNTS, "parley-kubelet"),
        "permissions",
        ERROR,
        "is missing",
        "kubectl apply --server-side -k deploy/base",
    ),
    "a role that grants too little": (
        changed(kinds.CLUSTER_ROLES, "parley-controller", "rules", 0, "verbs", to=["get", "list"]),
        "permissions",
        ERROR,
        "does not grant watch pods, watch nodes",
        "kubectl apply --server-side -k deploy/base",
    ),
    "a binding for another account": (
        changed(kinds.CLUSTER_ROLE_BINDINGS, "parley-kubelet", "subjects", 0, "namespace", to="elsewhere"),
        "permissions",
        ERROR,
        "does not name ServiceAccount parley-system/parley-kubelet: it has no rights",
        "kubectl apply --server-side -k deploy/base",
    ),
    "no lane for renewals": (
        deleted(kinds.FLOW_SCHEMAS, "parley-leader-election"),
        "lane",
        WARNING,
        "is missing: under load a leader may lose its Lease",
        "kubectl apply --server-side -k deploy/base",
    ),
    "a controller that crashes": (
        all_of(
            changed(kinds.DEPLOYMENTS, "parley-controller", "status", "readyReplicas", to=0),
            waiting("parley-controller-a", "CrashLoopBackOff", "back-off 40s"),
        ),
        "controller",
        ERROR,
        "0 of 2 pods are ready: pod parley-controller-a: CrashLoopBackOff: back-off 40s",
        "kubectl -n parley-system describe pods -l app.kubernetes.io/name=parley-controller",
    ),
    "a controller whose pods a quota refuses": (
        all_of(
            deleted(PODS, "parley-controller-a"),
            deleted(PODS, "parley-controller-b"),
            changed(kinds.DEPLOYMENTS, "parley-controller", "status", to={"conditions": [REFUSED_BY_QUOTA]}),
        ),
        "controller",
        ERROR,
        'pods "parley-controller-7c9-" is forbidden: insufficient quota to match these scopes',
        "see kubectl -n parley-system describe pods",
    ),
    "a controller that is scaled to 0": (
        changed(kinds.DEPLOYMENTS, "parley-controller", "spec", "replicas", to=0),
        "controller",
        ERROR,
        "is scaled to 0",
        "kubectl -n parley-system scale deployment/parley-controller --replicas=2",
    ),
    "a controller of another version": (
        changed(
            kinds.DEPLOYMENTS, "parley-controller", "metadata", "labels", to={"app.kubernetes.io/version": "9"}
        ),
        "controller",
        WARNING,
        "is Parley 9, and this program is 0.1.0",
        "run the doctor of version 9",
    ),
    "reservation pods that a scheduler which restarts forgets": (
        reservation_pods_on_1_36({}),
        "controller",
        WARNING,
        "a kube-scheduler of Kubernetes 1.36 that restarts drops their nominations",
        "let reservationPods.priorityClassName of the chart be empty",
    ),
    "a leader that is not heard of": (
        renewed(120),
        "leader",
        ERROR,
        "held by parley-controller-a_1, who renewed it 2 min ago: no claims are negotiated",
        "see the controllers' logs",
    ),
    "a Lease that nobody holds": (
        changed(LEASES, "parley-controller", "spec", "holderIdentity", to=""),
        "leader",
        ERROR,
        "nobody holds it",
        "see the controllers' logs",
    ),
    "a second scheduler without its certificate": (
        all_of(
            created(kinds.DEPLOYMENTS, SCHEDULER),
            created(PODS, {"metadata": {"name": "s", "namespace": SYSTEM, "labels": {"app": "scheduler"}}}),
            waiting("s", "ContainerCreating", ""),
        ),
        "scheduler",
        ERROR,
        "0 of 2 pods are ready: pod s: ContainerCreating",
        "see kubectl -n parley-system describe pods -l app=scheduler",
    ),
    "a second scheduler that is scaled to 0": (
        all_of(
            created(kinds.DEPLOYMENTS, SCHEDULER),
            changed(kinds.DEPLOYMENTS, "parley-scheduler", "spec", "replicas", to=0),
        ),
        "scheduler",
        ERROR,
        "is scaled to 0: no pods that name it are placed",
        "kubectl -n parley-system scale deployment/parley-scheduler --replicas=2",
    ),
    "a class whose driver nobody runs": (
        DISK_CLASS,
        "drivers",
        ERROR,
        "driver disk.example.com does not run: pods that request these classes wait",
        "correct driverName of the class",
    ),
    "a standalone driver that has stopped": (
        all_of(DISK_CLASS, standalone("disk.example.com", 600)),
        "drivers",
        ERROR,
        "driver disk.example.com does not run (disks-0_1 holds it, renewed 10 min ago): class disk waits",
        "start driver disk.example.com",
    ),
    "a driver that runs in the controller and standalone": (
        standalone("device.parley.dev", 5),
        "drivers",
        WARNING,
        "driver device.parley.dev runs twice: in the controller, and standalone (disks-0_1 renewed its Lease 5 s "
        "ago). Both allocate claims with allocationMode Immediate, so the same may be handed out twice",
        "stop one of the two: leave it out of the controller's --driver options (drivers.embedded of the chart), "
        "or delete the Deployment that runs it standalone, and kubectl -n parley-system delete lease "
        "parley-driver-device.parley.dev",
    ),
    "a driver in the controller whose Lease of a standalone one is left": (
        standalone("device.parley.dev", 600),
        "drivers",
        WARNING,
        "driver device.parley.dev runs in the controller, and this Lease is left of a standalone one",
        "kubectl -n parley-system delete lease parley-driver-device.parley.dev; or, if it should run standalone, "
        "start it, and leave it out of the controller's --driver options",
    ),
    "a class of one's own that runs in the controller and standalone": (
        all_of(
            changed(
                kinds.DEPLOYMENTS,
                "parley-controller",
                *("spec", "template", "spec", "containers", 0, "args"),
                to=["--driver=device", "--driver", "disks:Disks"],
            ),
            created(kinds.DEPLOYMENTS, runs_standalone("disks:Disks")),
        ),
        "drivers",
        WARNING,
        "driver disks:Disks runs twice: in the controller, and here",
        "stop one of the two",
    ),
    "a pod that waits for an answer": (
        created(POD_SCHEDULINGS, SILENT),
        "answers",
        ERROR,
        "driver device.parley.dev does not answer: pod team/wants waits",
        "parley driver permissions",
    ),
    "a node plugin that can't start": (
        all_of(
            waiting("parley-kubelet-node-2", "ImagePullBackOff", "no such image"),
            deleted(RESOURCE_SLICES, "node-2-devices"),
        ),
        "node-plugin",
        ERROR,
        "the node plugin does not work on node node-2, so no pod gets devices there: pod parley-kubelet-node-2: "
        "ImagePullBackOff: no such image",
        "see kubectl -n parley-system describe pod POD, whose events say why a container does not start, and the "
        "pod's log; run parley-kubelet doctor in it or on the node",
    ),
    "a node plugin whose folder is not on its node": (
        all_of(
            waiting("parley-kubelet-node-2", "ContainerCreating", ""),
            deleted(RESOURCE_SLICES, "node-2-devices"),
        ),
        "node-plugin",
        ERROR,
        "the node plugin does not work on node node-2, so no pod gets devices there: pod parley-kubelet-node-2: "
        "ContainerCreating",
        "see kubectl -n parley-system describe pod POD, whose events say why a container does not start",
    ),
    "a node plugin that finds no room on its node": (
        all_of(unscheduled("parley-kubelet-node-2", "node-2"), deleted(RESOURCE_SLICES, "node-2-devices")),
        "node-plugin",
        ERROR,
        "the node plugin does not work on node node-2, so no pod gets devices there: pod parley-kubelet-node-2: "
        "Unschedulable: 0/2 nodes are available: 1 Insufficient memory.",
        "see kubectl -n parley-system describe pod POD",
    ),
    "a node without a plugin": (
        all_of(deleted(PODS, "parley-kubelet-node-2"), deleted(RESOURCE_SLICES, "node-2-devices")),
        "node-plugin",
        WARNING,
        "no node plugin on node node-2: no pod gets devices there",
        "nodeSelector, affinity and tolerations of the DaemonSet",
    ),
    "a node plugin whose pods the namespace's Pod Security refuses": (
        all_of(
            deleted(PODS, "parley-kubelet-node-1"),
            deleted(PODS, "parley-kubelet-node-2"),
            deleted(RESOURCE_SLICES, "node-1-devices"),
            deleted(RESOURCE_SLICES, "node-2-devices"),
            changed(
                kinds.DAEMON_SETS,
                "parley-kubelet",
                "status",
                to={"desiredNumberScheduled": 2, "currentNumberScheduled": 0},
            ),
        ),
        "node-plugin",
        ERROR,
        "0 of 2 pods exist, so no pod gets devices on the other nodes: the API server refuses them",
        "kubectl label namespace parley-system pod-security.kubernetes.io/enforce=privileged",
    ),
    "no node plugin at all": (
        all_of(
            deleted(kinds.DAEMON_SETS, "parley-kubelet"),
            deleted(RESOURCE_SLICES, "node-1-devices"),
            deleted(RESOURCE_SLICES, "node-2-devices"),
        ),
        "node-plugin",
        ERROR,
        "no node plugin runs: pods of class gpu wait",
        "install it",
    ),
    "a node plugin that publishes nothing": (
        deleted(RESOURCE_SLICES, "node-2-devices"),
        "slices",
        ERROR,
        "the node plugin of node node-2 publishes no ResourceSlice",
        "see the plugin's log",
    ),
    "a pool that is not complete": (
        changed(RESOURCE_SLICES, "node-2-devices", "spec", "pool", "resourceSliceCount", to=2),
        "slices",
        WARNING,
        "pool node-2 of driver device.parley.dev is not complete: 1 of 2 slices",
        "restart the node's plugin",
    ),
    "a node plugin that may not publish for its driver": (
        changed(RESOURCE_SLICES, "node-2-devices", "metadata", "labels", to=None),
        "slices",
        WARNING,
        "slices of driver device.parley.dev on node node-2 have no label parley.dev/published-by, so they do not "
        "show where the driver does not run",
        "grant its account the verb publish on resourceclaims.parley.dev/driver with the resource name "
        "device.parley.dev",
    ),
    "a slice of a node that is gone": (
        all_of(deleted(NODES, "node-2"), deleted(PODS, "parley-kubelet-node-2")),
        "slices",
        WARNING,
        "is left over from node node-2, which does not exist",
        "kubectl delete resourceslice node-2-devices",
    ),
    "a container runtime that has to be told of CDI": (
        runtime("containerd://1.7.20"),
        "cdi",
        WARNING,
        "node node-2: containerd://1.7.20 reads CDI files only if that is enabled",
        "set enable_cdi = true",
    ),
    "a container runtime that does not know CDI": (
        runtime("containerd://1.6.9"),
        "cdi",
        ERROR,
        "node node-2: containerd://1.6.9 does not know CDI",
        "update containerd",
    ),
    "a kubelet that is somewhere else": (
        changed(NODES, "node-1", "metadata", "labels", to={"microk8s.io/cluster": "true"}),
        "kubelet-folder",
        ERROR,
        "mounts /var/lib/kubelet, but the kubelet of node node-1 is in /var/snap/microk8s/common/var/lib/kubelet",
        "mount /var/snap/microk8s/common/var/lib/kubelet/plugins_registry",
    ),
    "other vendors' plugins that look elsewhere": (
        created(kinds.DAEMON_SETS, CSI),
        "kubelet-folder",
        WARNING,
        "looks for the kubelet in /var/lib/kubelet, DaemonSet kube-system/csi in /data/kubelet",
        "if the kubelet's folder is /data/kubelet",
    ),
    "a claim that is deleted and does not go": (
        all_of(created(CLAIMS, CLAIM), changed(CLAIMS, "data", "metadata", "deletionTimestamp", to=ago(900))),
        "deleted-claims",
        ERROR,
        "was deleted 15 min ago, and waits for disk.example.com/deletion-protection",
        "start driver disk.example.com, which has to deallocate what it holds",
    ),
    "a claim that is deleted and that others need": (
        all_of(
            created(CLAIMS, CLAIM),
            changed(CLAIMS, "data", "metadata", "deletionTimestamp", to=ago(900)),
            changed(CLAIMS, "data", "status", to={"conditions": [NEEDED]}),
        ),
        "deleted-claims",
        WARNING,
        "was deleted 15 min ago, and still exists: claims need what it has: team/view",
        "delete the claims that need it, or the pods that use them",
    ),
    "a release that no node answers": (
        all_of(created(CLAIM_RELEASES, RELEASE), OLD),
        "releases",
        ERROR,
        "node node-2 has not confirmed for 10 min that claim team/data is not prepared: its devices stay taken",
        "kubectl delete prrelease data-node-2",
    ),
    "a release of a node that is down": (
        all_of(
            created(CLAIM_RELEASES, RELEASE),
            OLD,
            changed(NODES, "node-2", "status", "conditions", 0, "status", to="Unknown"),
        ),
        "releases",
        ERROR,
        "it is not ready",
        "taint it node.kubernetes.io/out-of-service=:NoExecute",
    ),
    "an object that can't be decoded": (
        changed(CLASSES, "gpu", "shareable", to={"broken": True}),
        "undecodable",
        WARNING,
        "can't be decoded: ",
        "correct the object, or delete it",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_planted_fault_is_named_with_its_remedy(cluster: Sick, case: str) -> None:
    plant, check, severity, text, remedy = CASES[case]

    await plant(cluster)

    found = await cluster.found(check)
    assert [(finding.severity, text in finding.text, remedy in finding.remedy) for finding in found] == [
        (severity, True, True)
    ], [(finding.text, finding.remedy) for finding in found]


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
