"""One real control plane for all integration tests of a run that need no nodes of their own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.devcluster import Cluster, clean
from parley.devcluster.requirements import unmet

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """API server, scheduler and controller-manager with Parley's CRDs, and no node.

    Skips with the reasons where no cluster can run; under CI that is a failure.
    """
    reasons = unmet(real_nodes=False)
    if reasons and os.environ.get("CI") == "true":
        pytest.fail(f"CI has to run the real control plane, but {'; '.join(reasons)}")
    if reasons:
        pytest.skip("; ".join(reasons))
    # Short, since unix sockets lie in it.
    place = Path(tempfile.mkdtemp(prefix="pcp-", dir="/tmp"))
    try:
        with Cluster.start(place / "c", node_lifecycle=False) as cluster:
            cluster.kubectl("apply", "-k", str(CRDS))
            cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
            # Established is not yet served: kubectl waits while the server says 429.
            cluster.kubectl("get", "--all-namespaces", "podschedulings,prclaims,prtemplates,prclasses")
            yield cluster
    finally:
        clean(place / "c")
        shutil.rmtree(place)
