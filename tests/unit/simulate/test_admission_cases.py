"""The model of the admission policies, on the cases that a real API server is asked, too (integration/api)."""

from typing import Any

import pytest
from tests.admission_cases import ALLOCATED, CASES, DISKS, Case

from parley.simulate.admission import Rights, refused

RIGHTS = {
    "tenant": Rights("tenant"),
    "claim controller": Rights("claim controller", binds=True),
    "collector": Rights("collector", binds=True, deletes=True),
    "namespace controller": Rights("namespace controller", deletes=True),
    "parley": Rights("parley", allocates=True),
    "driver": Rights("driver", drivers=frozenset({DISKS})),
}


def completed(body: dict[str, Any] | None, *, reserved: bool) -> dict[str, Any] | None:
    """The object as the API server stores it."""
    if body is None:
        return None
    meta = {}
    for name, value in body["metadata"].items():
        if isinstance(value, dict):
            value = {key: inner for key, inner in value.items() if inner is not None}
        if value:
            meta[name] = value
    users = {"reservedFor": [{"resource": "pods", "name": "a", "uid": "UID"}]}
    status = (ALLOCATED if "resourceClassName" in body["spec"] else users) if reserved else {}
    return {**body, "metadata": {**meta, "name": "x", "namespace": "team"}, "status": status}


@pytest.mark.parametrize("case", [c for c in CASES if c.version == "v1"], ids=lambda case: case.name)
def test_the_model_decides_as_the_policies_do(case: Case) -> None:
    before = completed(case.before, reserved=case.reserved)
    after = completed(case.after, reserved=case.reserved)
    assert bool(refused(case.resource, before, after, RIGHTS[case.account])) == case.refused
