"""Planted faults of objects: claims and ClaimReleases that stay, and what can't be decoded."""

from tests.unit.doctor.conftest import ago
from tests.unit.doctor.planted.plants import ERROR, WARNING, Cases, all_of, changed, created

from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES, NODES

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

OBJECTS_CASES: Cases = {
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
