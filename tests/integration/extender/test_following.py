"""A controller that follows the scheduler's lease leads on that host only, and ends when another host holds it."""

import socket
import uuid
from pathlib import Path

import pytest
from tests.cluster.programs import Program
from tests.integration.extender.conftest import lead_again

from parley.api.resources import LEASES
from parley.kube.client import Client
from parley_devcluster import Cluster, Component
from parley_devcluster.parley import NAMESPACE
from parley_devcluster.second_scheduler import SECOND_SCHEDULER

pytestmark = pytest.mark.cluster


async def test_a_controller_leads_where_the_scheduler_does(
    cluster: Cluster, admin: Client, controller_account: Path, controller: Component
) -> None:
    scheduler = cluster.component(SECOND_SCHEDULER)
    controller.stop()
    lease = f"following-{uuid.uuid4().hex[:6]}"
    options = ("--kubeconfig", str(controller_account), "--lease-name", lease, "--lease-duration", "12")
    program = await Program.start(
        cluster, lease, "controller", *options, "--follow-lease", SECOND_SCHEDULER, "--identity", "a"
    )
    try:
        await program.said("restored")  # with the lease of the scheduler that runs

        scheduler.kill()
        elsewhere = {"spec": {"holderIdentity": "elsewhere_5ab5"}}
        await admin.patch(LEASES, SECOND_SCHEDULER, elsewhere, NAMESPACE)
        assert await program.ended() == 1
        words = f"held by elsewhere_5ab5, not on host {socket.gethostname()}"
        assert words in (await program.said("lease lost"))["error"]
    finally:
        await program.kill()
        await admin.delete(LEASES, lease, NAMESPACE)
        lead_again(cluster)
