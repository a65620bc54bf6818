"""Airflow DAGs whose tasks, each a pod, share one directory: a clone, four builds side by side, a report.

`with_claim` keeps the directory in a workspace of Parley: one ResourceClaim a run. `with_volume` is the same
pipeline on a ReadWriteOnce volume of the node's disk: one PersistentVolumeClaim a run. They differ in two values,
what a run makes and how its pods name it.
"""

import hashlib
import os

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.operators.resource import (
    KubernetesCreateResourceOperator,
    KubernetesDeleteResourceOperator,
)
from airflow.sdk import DAG

NAMESPACE = os.environ.get("PIPELINE_NAMESPACE", "default")
PATIENCE = int(os.environ.get("PIPELINE_PATIENCE", "120"))
"""Seconds that a task's pod may wait for its node, the operator's own default."""

RUN = "run-{{ run_id | short }}"
"""The name of the run's claim, and of its volume: the operators replace it in each run."""

CLAIM = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: "%s"}
spec:
  resourceClassName: workspace
  parameters: {size: 100Mi}
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: "%s"}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: local-path
  resources: {requests: {storage: 100Mi}}
"""

CPU = {"cpu": "50m"}
WITH_CLAIM = {
    "spec": {
        "resourceClaims": [{"name": "work", "resourceClaimName": RUN}],
        "containers": [{"name": "base", "resources": {"requests": CPU, "claims": [{"name": "work"}]}}],
    }
}
WITH_VOLUME = {
    "spec": {
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": RUN}}],
        "containers": [
            {
                "name": "base",
                "resources": {"requests": CPU},
                "volumeMounts": [{"name": "work", "mountPath": "/workspace"}],
            }
        ],
    }
}

TARGETS = ("amd64", "arm64", "docs", "lint")
CLONE = """
echo "{{ run_id }}" > /workspace/run
git clone -q {{ params.repository }} /workspace/source
"""
OWN = """
grep -qx "{{ run_id }}" /workspace/run  # no other run's
"""
BUILD = """
test "{{ params.fail }}" != %(target)s
cd /workspace/source
git archive --prefix=%(target)s/ HEAD > /workspace/%(target)s.tar
"""
REPORT = """
cd /workspace
git -C source log -1 --format='%h %s'
wc -c *.tar
"""


def short(run_id: str) -> str:
    """Eight letters and digits that tell one run from all others, as names in Kubernetes may have them."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]


def task(name: str, template: dict, script: str, **options: str) -> KubernetesPodOperator:
    """A pod of the pipeline, made from the template."""
    return KubernetesPodOperator(
        task_id=name,
        name=name,
        namespace=NAMESPACE,
        image="{{ params.image }}",
        cmds=["sh", "-ec"],
        arguments=[script],
        pod_template_dict=template,
        startup_timeout_seconds=PATIENCE,
        **options,
    )


def pipeline(name: str, manifest: str, template: dict) -> DAG:
    """A DAG whose runs begin by making what the manifest says, and end with its deletion, whatever failed."""
    params = {"repository": "git://git.example.com/source", "image": "alpine/git", "fail": "none"}
    with DAG(name, schedule=None, params=params, user_defined_filters={"short": short}) as dag:
        shared = {
            "yaml_conf": manifest % RUN,
            "namespace": NAMESPACE,
            "custom_resource_definition": manifest == CLAIM,
        }
        make = KubernetesCreateResourceOperator(task_id="make", **shared)
        drop = KubernetesDeleteResourceOperator(task_id="drop", **shared)
        clone = task("clone", template, CLONE)
        builds = [task(f"build-{target}", template, OWN + BUILD % {"target": target}) for target in TARGETS]
        report = task("report", template, OWN + REPORT, trigger_rule="all_done")
        make >> clone >> builds >> report >> drop.as_teardown(setups=make)
    return dag


with_claim = pipeline("with_claim", CLAIM, WITH_CLAIM)
with_volume = pipeline("with_volume", VOLUME, WITH_VOLUME)
