"""Whether somebody holds a Lease is not judged by two machines' clocks alone."""

import pytest
from tests.unit.doctor.conftest import Sick, ago
from tests.unit.doctor.healthy import NOW

from parley.api.resources import LEASES
from parley.doctor.diagnosing import diagnose
from parley.doctor.findings import Severity
from parley.kube.client import Call, Client


class Renewing(Client):
    """A controller whose clock is `behind`. If it is `alive` it renews its Lease between two looks at that."""

    def __init__(self, cluster: Sick, behind: float, *, alive: bool) -> None:
        super().__init__(cluster.client)
        self._cluster = cluster
        self._times = [ago(behind), ago(behind - 2 if alive else behind)]

    async def request(self, call: Call) -> bytes:
        if call.resource == LEASES and self._times:
            time = self._times.pop(0)
            await self._cluster.replace(
                LEASES, "parley-controller", lambda body: body["spec"].update(renewTime=time)
            )
        return await super().request(call)


@pytest.mark.parametrize("behind", [600, -600])
async def test_a_holder_that_renews_its_lease_leads_whatever_its_clock_shows(cluster: Sick, behind: float) -> None:
    diagnosis = await diagnose(Renewing(cluster, behind, alive=True), NOW, "parley-system", "0.1.0")

    (leader,) = [finding for finding in diagnosis.findings if finding.check == "leader"]
    assert (leader.severity, leader.text) == (
        Severity.OK,
        "parley-controller-a_1 leads, and renewed its Lease 0 s ago",
    )


@pytest.mark.parametrize(("behind", "when"), [(600, "10 min ago"), (-600, "10 min ahead of this machine's clock")])
async def test_one_that_does_not_leads_no_more(cluster: Sick, behind: float, when: str) -> None:
    diagnosis = await diagnose(Renewing(cluster, behind, alive=False), NOW, "parley-system", "0.1.0")

    (leader,) = [finding for finding in diagnosis.findings if finding.check == "leader"]
    assert (leader.severity, leader.text) == (
        Severity.ERROR,
        f"held by parley-controller-a_1, who renewed it {when}: no claims are negotiated",
    )
