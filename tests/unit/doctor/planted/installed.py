"""Planted faults of installed objects: DeviceClass, CRDs, admission policies, accounts, roles, FlowSchema."""

from tests.unit.doctor.planted.plants import ERROR, WARNING, Cases, changed, created, deleted

from parley.api.names import DEVICE_CLASS
from parley.api.resources import DEVICE_CLASSES
from parley.doctor import kinds

INSTALLED_CASES: Cases = {
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
    "a role that is not added to Kubernetes' own": (
        changed(kinds.CLUSTER_ROLES, "parley-view", "metadata", "labels", to={}),
        "permissions",
        WARNING,
        "has no label rbac.authorization.k8s.io/aggregate-to-view=true: who has the role view has no rights",
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
}
