"""Planted faults of the controller, its Lease, and the second scheduler."""

from tests.unit.doctor.conftest import ago
from tests.unit.doctor.healthy import SYSTEM
from tests.unit.doctor.planted.plants import (
    ERROR,
    WARNING,
    Cases,
    Plant,
    all_of,
    changed,
    created,
    deleted,
    reservation_pods_on_1_36,
    waiting,
)

from parley.api.resources import LEASES, PODS
from parley.doctor import kinds


def renewed(seconds: float) -> Plant:
    return changed(LEASES, "parley-controller", "spec", "renewTime", to=ago(seconds))


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

CONTROLLER_CASES: Cases = {
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
}
