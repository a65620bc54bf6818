"""What `parley doctor` finds: nothing where all is well, and each planted fault with its remedy."""

from tests.unit.doctor.conftest import Sick

from parley.doctor.findings import Severity
from parley.doctor.text import lines


async def test_where_all_is_well_there_is_nothing_to_mend(cluster: Sick) -> None:
    diagnosis = await cluster.diagnosis()

    assert diagnosis.verdict is Severity.OK
    assert [finding.remedy for finding in diagnosis.findings if finding.remedy] == []
    assert list(lines(diagnosis))[-1] == f"All well: {len(diagnosis.findings)} findings, nothing to mend."
