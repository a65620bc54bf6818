"""Planted faults of nodes: the node plugin, its ResourceSlices, CDI, and the kubelet's folder."""

from tests.unit.doctor.planted.plants import (
    ERROR,
    WARNING,
    Cases,
    Plant,
    all_of,
    changed,
    created,
    deleted,
    waiting,
)

from parley.api.resources import NODES, PODS, RESOURCE_SLICES
from parley.doctor import kinds


def unscheduled(pod: str, node: str) -> Plant:
    """A DaemonSet's pod is unschedulable on its node for want of room."""
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

NODES_CASES: Cases = {
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
}
