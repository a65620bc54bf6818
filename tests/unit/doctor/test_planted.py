"""Faults planted one at a time in a cluster in which all is well: each is named with its remedy, alone."""

import pytest
from tests.unit.doctor.conftest import Sick
from tests.unit.doctor.planted.cluster import CLUSTER_CASES
from tests.unit.doctor.planted.controller import CONTROLLER_CASES
from tests.unit.doctor.planted.drivers import DRIVERS_CASES
from tests.unit.doctor.planted.installed import INSTALLED_CASES
from tests.unit.doctor.planted.nodes import NODES_CASES
from tests.unit.doctor.planted.objects import OBJECTS_CASES
from tests.unit.doctor.planted.plants import Cases

CASES: Cases = CLUSTER_CASES | INSTALLED_CASES | CONTROLLER_CASES | DRIVERS_CASES | NODES_CASES | OBJECTS_CASES


@pytest.mark.parametrize("case", CASES)
async def test_a_planted_fault_is_named_with_its_remedy(cluster: Sick, case: str) -> None:
    plant, check, severity, text, remedy = CASES[case]

    await plant(cluster)

    found = await cluster.found(check)
    assert [(finding.severity, text in finding.text, remedy in finding.remedy) for finding in found] == [
        (severity, True, True)
    ], [(finding.text, finding.remedy) for finding in found]
