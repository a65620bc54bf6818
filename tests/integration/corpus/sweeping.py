"""Takes a hostile user's namespace away, whatever finalizers and owners it left on its objects.

By kubectl, which reads what was stored there; Python's own JSON decoder does not take all of it.
"""

import time

from parley.devcluster import Cluster, ClusterError

_LIMIT = 120.0
_FOREIGN = "example.com/mine"
_KINDS = (
    "pods,resourceclaims.resource.k8s.io,resourceclaimtemplates.resource.k8s.io,"
    "resourceclaims.parley.dev,resourceclaimtemplates.parley.dev"
)
_FINALIZERS = r'jsonpath={range .items[*]}{.apiVersion} {.kind} {.metadata.name} {.metadata.finalizers}{"\n"}{end}'


def sweep(cluster: Cluster, namespace: str) -> None:
    """Delete the namespace and wait until it is gone: finalizers are lifted that are the user's own, no others.

    Raises AssertionError if something stays, with what it is.
    """
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    deadline = time.monotonic() + _LIMIT
    while (left := _left(cluster, namespace)) and time.monotonic() < deadline:
        _kubectl(cluster, "delete", "pods", "--all", "-n", namespace, "--grace-period=0", "--force")
        for kind, name in (line.split()[1:3] for line in left if _FOREIGN in line):
            _lift(cluster, namespace, kind, name, next(line for line in left if f" {kind} {name} " in line))
        time.sleep(0.5)
    assert not left, f"left behind: {left}"


def _left(cluster: Cluster, namespace: str) -> list[str]:
    """What is still there: API version, kind, name and finalizers of each object."""
    return cluster.kubectl("get", _KINDS, "-n", namespace, "-o", _FINALIZERS).splitlines()


def _lift(cluster: Cluster, namespace: str, kind: str, name: str, line: str) -> None:
    """Take the user's finalizer off."""
    version = line.split()[0]
    group = version.partition("/")[0] if "/" in version else ""
    kept = [finalizer for finalizer in line.partition("[")[2].rstrip("]").split(",") if _FOREIGN not in finalizer]
    patch = f'{{"metadata": {{"finalizers": [{",".join(kept)}]}}}}'
    resource = f"{kind.lower()}s.{group}".rstrip(".")
    _kubectl(cluster, "patch", resource, name, "-n", namespace, "--type=merge", "-p", patch, "-o", "name")


def _kubectl(cluster: Cluster, *arguments: str) -> None:
    """What is gone or changing meanwhile comes round again."""
    try:
        cluster.kubectl(*arguments)
    except ClusterError as error:
        if not any(word in str(error) for word in ("NotFound", "Conflict", "not found")):
            raise
