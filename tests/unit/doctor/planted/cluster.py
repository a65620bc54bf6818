"""Planted faults of the cluster: versions of the API server and of kubelets."""

from tests.unit.doctor.planted.plants import ERROR, WARNING, Cases, all_of, changed

from parley.api.resources import NODES, SERVER_VERSION

CLUSTER_CASES: Cases = {
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
}
