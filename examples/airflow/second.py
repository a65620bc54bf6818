"""Airflow DAGs with a second directory: two tasks side by side begin one each, a third needs both.

The first two may run on different nodes, and then no node has both directories: `two_claims` and `two_volumes`
show what one sees then. The claims of `two_grouped_claims` are in one group, and so on one node.
"""

from collections.abc import Callable

from airflow.providers.cncf.kubernetes.operators.resource import (
    KubernetesCreateResourceOperator,
    KubernetesDeleteResourceOperator,
)
from airflow.sdk import DAG
from pipelines import CPU, NAMESPACE, RUN, VOLUME, short, task

CACHE = f"{RUN}-cache"
"""The name of the run's second claim, and of its second volume."""

CLAIMS = """
apiVersion: parley.dev/v1alpha1
kind: ResourceClaim
metadata: {name: "%s"}
spec:
  resourceClassName: workspace
  parameters: {size: 100Mi, mountPath: "%s"}
"""
GROUPED = CLAIMS.replace("size:", f'group: "{RUN}", size:')
MOUNTS = {RUN: "/workspace", CACHE: "/cache"}


def with_claims(*names: str) -> dict:
    """A pod that names these claims."""
    entries = {f"work-{number}": name for number, name in enumerate(names)}
    uses = [{"name": entry} for entry in entries]
    return {
        "spec": {
            "resourceClaims": [{"name": entry, "resourceClaimName": name} for entry, name in entries.items()],
            "containers": [{"name": "base", "resources": {"requests": CPU, "claims": uses}}],
        }
    }


def with_volumes(*names: str) -> dict:
    """A pod that names these volumes."""
    entries = {f"work-{number}": name for number, name in enumerate(names)}
    mounts = [{"name": entry, "mountPath": MOUNTS[name]} for entry, name in entries.items()]
    return {
        "spec": {
            "volumes": [
                {"name": entry, "persistentVolumeClaim": {"claimName": name}} for entry, name in entries.items()
            ],
            "containers": [{"name": "base", "resources": {"requests": CPU}, "volumeMounts": mounts}],
        }
    }


def pair(name: str, manifests: str, own: bool, template: Callable[..., dict]) -> DAG:
    """A DAG whose two first tasks use a directory each, and whose third uses both."""
    params = {"repository": "git://git.example.com/source", "image": "alpine/git"}
    with DAG(name, schedule=None, params=params, user_defined_filters={"short": short}) as dag:
        shared = {"yaml_conf": manifests, "namespace": NAMESPACE, "custom_resource_definition": own}
        make = KubernetesCreateResourceOperator(task_id="make", **shared)
        drop = KubernetesDeleteResourceOperator(task_id="drop", **shared)
        clone = task("clone", template(RUN), "git clone -q {{ params.repository }} /workspace/source; sleep 5")
        fetch = task("fetch", template(CACHE), "echo fetched > /cache/libraries; sleep 5")
        both = task("both", template(RUN, CACHE), "ls /workspace/source /cache/libraries")
        make >> [clone, fetch] >> both >> drop.as_teardown(setups=make)
    return dag


two_claims = pair("two_claims", "---".join(CLAIMS % entry for entry in MOUNTS.items()), True, with_claims)
two_grouped_claims = pair(
    "two_grouped_claims", "---".join(GROUPED % entry for entry in MOUNTS.items()), True, with_claims
)
two_volumes = pair("two_volumes", "---".join(VOLUME % name for name in MOUNTS), False, with_volumes)
