"""Takes a hostile user's namespace away, whatever finalizers and owners it left on its objects.

By kubectl, which reads what was stored there; Python's own JSON decoder does not take all of it.
"""

import time
from typing import NamedTuple

from parley.api.names import DEVICE_CLASS, FINALIZER, GROUP
from parley_devcluster import Cluster, ClusterError

_LIMIT = 300.0
_CLAIMS = (
    "resourceclaims.resource.k8s.io,resourceclaimtemplates.resource.k8s.io,"
    f"resourceclaims.{GROUP},resourceclaimtemplates.{GROUP}"
)
_CLASS = "{.spec.devices.requests[*].exactly.deviceClassName}"
_META = "{.apiVersion}|{.kind}|{.metadata.name}|{.metadata.finalizers}"
_SHOWN = f'jsonpath={{range .items[*]}}{_META}|{_CLASS}{{"\\n"}}{{end}}'
_MEANWHILE = ("NotFound", "Conflict", "not found", "no new finalizers can be added")
"""What the API server says of an object that went, or that Parley let go, since it was listed."""


class Left(NamedTuple):
    """An object that is still there."""

    version: str
    kind: str
    name: str
    finalizers: tuple[str, ...]
    device_classes: str

    @property
    def resource(self) -> str:
        """As kubectl names it."""
        group = self.version.partition("/")[0] if "/" in self.version else ""
        return f"{self.kind.lower()}s.{group}".rstrip(".")

    @property
    def parleys(self) -> tuple[str, ...]:
        """The finalizers that Parley itself has to lift, and nobody else."""
        ours = self.kind == "ResourceClaim" and (
            self.version.startswith(GROUP) or DEVICE_CLASS in self.device_classes
        )
        return tuple(finalizer for finalizer in self.finalizers if ours and finalizer == FINALIZER)


def sweep(cluster: Cluster, namespace: str) -> None:
    """Delete the namespace and wait until all in it is gone. Finalizers that the user put there are lifted.

    The namespace controller looks at a namespace again after half of its pods' longest grace, which a hostile user
    chooses, or at its resync after five minutes. So what it has not deleted is deleted here.

    Raises AssertionError if something stays, with what it is.
    """
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    deadline = time.monotonic() + _LIMIT
    while (left := _left(cluster, namespace)) and time.monotonic() < deadline:
        options = ("--all", "-n", namespace, "--wait=false")
        _kubectl(cluster, "delete", "pods", *options, "--grace-period=0", "--force")
        _kubectl(cluster, "delete", _CLAIMS, *options)
        for one in left:
            if list(one.finalizers) != list(one.parleys):
                _lift(cluster, namespace, one)
        time.sleep(0.5)
    assert not left, f"left behind: {left}"


def _left(cluster: Cluster, namespace: str) -> set[Left]:
    shown = cluster.kubectl("get", f"pods,{_CLAIMS}", "-n", namespace, "-o", _SHOWN)
    found = set()
    for line in shown.splitlines():
        version, kind, name, finalizers, classes = line.split("|", 4)
        listed = tuple(finalizer.strip('"') for finalizer in finalizers.strip("[]").split(",") if finalizer)
        found.add(Left(version, kind, name, listed, classes))
    return found


def _lift(cluster: Cluster, namespace: str, one: Left) -> bool:
    """Take the user's finalizers off; returns whether the object can be changed at all."""
    kept = ",".join(f'"{finalizer}"' for finalizer in one.parleys)
    patch = f'{{"metadata": {{"finalizers": [{kept}]}}}}'
    options = ("-n", namespace, "--type=merge", "-p", patch, "-o", "name")
    try:
        _kubectl(cluster, "patch", one.resource, one.name, *options)
    except ClusterError as error:
        if "field is immutable" not in str(error):
            raise
        return False
    return True


def _kubectl(cluster: Cluster, *arguments: str) -> None:
    """What is gone or changing meanwhile comes round again."""
    try:
        cluster.kubectl(*arguments)
    except ClusterError as error:
        if not any(word in str(error) for word in _MEANWHILE):
            raise
