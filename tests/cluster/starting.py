"""A cluster for a whole test run: whether this machine can have one, and Parley's objects in it."""

import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.raw import raw

from parley_devcluster import Cluster, ClusterError, clean
from parley_devcluster.control_plane import CONTROLLER_MANAGER
from parley_devcluster.parley import install
from parley_devcluster.requirements import unmet

DEPLOY = Path(__file__).parents[2] / "deploy"

_GUARD_LIMIT = 60.0
_TEST_LEASES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: test-leases, namespace: parley-system}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: test-leases, namespace: parley-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: test-leases}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: "system:serviceaccounts:parley-system"}]
"""
_FORBIDDEN = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: being-negotiated.parley.dev}
spec: {}
"""


def require_machine(*, real_nodes: bool) -> None:
    """Skip with the reasons where no cluster can run; under CI that is a failure."""
    reasons = unmet(real_nodes=real_nodes)
    if reasons and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the real cluster, but {'; '.join(reasons)}")
    if reasons:
        pytest.skip("; ".join(reasons))


@contextmanager
def directory(prefix: str = "pt-") -> Generator[Path, None, None]:
    """A short directory, since unix sockets lie in it; whatever a failed test left there is taken down."""
    place = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield place / "c"
    finally:
        clean(place / "c")
        shutil.rmtree(place)


@contextmanager
def workplace() -> Generator[Cluster, None, None]:
    """A control plane with Parley's kinds, accounts and guards, and no node; Parley's programs are the tests' own.

    Every test's programs elect by a Lease of their own name, which their accounts may have here.

    Skips with the reasons where no cluster can run; under CI that is a failure.
    """
    require_machine(real_nodes=False)
    with directory() as place, Cluster.start(place, node_lifecycle=False) as cluster:
        install(cluster, DEPLOY)
        cluster.kubectl("apply", "-f", "-", stdin=_TEST_LEASES)
        settle(cluster)
        yield cluster


@contextmanager
def fake_nodes(cluster: Cluster, count: int, *, prefix: str = "fake-") -> Generator[tuple[str, ...], None, None]:
    """Nodes without kubelets, numbered from 0, as long as the block runs."""
    names = tuple(cluster.add_fake_nodes(count, prefix=prefix))
    assert names[0] == f"{prefix}0", "the nodes of an earlier block are still there"
    try:
        yield names
    finally:
        for name in names:
            raw(cluster).request("DELETE", f"/api/v1/nodes/{name}")


def settle(cluster: Cluster) -> None:
    """Return when all of Kubernetes knows what was just installed.

    The garbage collector looks for new kinds every 30 s and at its start; admission policies are in force a
    moment after they were created.
    """
    cluster.component(CONTROLLER_MANAGER).stop()
    cluster.component(CONTROLLER_MANAGER).start()
    deadline = time.monotonic() + _GUARD_LIMIT
    while not _guarded(cluster):
        assert time.monotonic() < deadline, "Parley's admission policies did not come into force"


def _guarded(cluster: Cluster) -> bool:
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=_FORBIDDEN)
    except ClusterError as error:
        return "must not exist" in str(error)
    return False
