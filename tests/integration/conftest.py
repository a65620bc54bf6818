"""One real control plane for all integration tests of a run that need no nodes of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.starting import directory, require_machine

from parley.devcluster import Cluster

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """API server, scheduler and controller-manager with Parley's CRDs, and no node.

    Skips with the reasons where no cluster can run; under CI that is a failure.
    """
    require_machine(real_nodes=False)
    with directory() as place, Cluster.start(place, node_lifecycle=False) as cluster:
        cluster.kubectl("apply", "-k", str(CRDS))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        # Established is not yet served: kubectl waits while the server says 429.
        cluster.kubectl("get", "--all-namespaces", "podschedulings,prclaims,prtemplates,prclasses")
        yield cluster
