"""Which pods the soak's rules take for alive, and which claims for a pod's."""

from typing import Any

import pytest
from tests.soak.kinds.names import NAMESPACE
from tests.soak.rules.pod_state import pod_state

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def pod(meta: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    about = {"namespace": NAMESPACE, "name": "p", "uid": "u", **(meta or {})}
    return {"metadata": about, "spec": spec, "status": status or {}}


@pytest.mark.parametrize(
    ("body", "is_alive"),
    [
        (pod(), True),
        (pod(status={"phase": "Running"}, nodeName="a"), True),
        (pod(status={"phase": "Succeeded"}, nodeName="a"), False),
        (pod(status={"phase": "Failed"}), False),
        (pod(DELETED), False),
        (pod(DELETED, nodeName="a"), True),
        (pod(DELETED, {"phase": "Failed"}, nodeName="a"), False),
    ],
    ids=["waits", "runs", "succeeded", "failed", "deleted unbound", "terminates", "deleted and failed"],
)
def test_a_pod_lives_until_it_has_ended_or_can_never_run(body: dict[str, Any], is_alive: bool) -> None:
    assert pod_state(body).alive is is_alive


def test_a_pod_that_is_bound_is_not_running_yet() -> None:
    assert not pod_state(pod(status={"phase": "Pending"}, nodeName="a")).running
    assert pod_state(pod(status={"phase": "Running"}, nodeName="a")).running


def test_claims_are_those_that_it_names_and_those_that_were_generated() -> None:
    entries = [
        {"name": "gpu", "resourceClaimTemplateName": "one"},
        {"name": "later", "resourceClaimTemplateName": "one"},
        {"name": "data", "resourceClaimName": "disk"},
    ]
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}

    found = pod_state(pod(status=status, resourceClaims=entries))

    assert found.name == (NAMESPACE, "p")
    assert found.claims == (("gpu", "p-gpu-x", False), ("later", "", False), ("data", "disk", True))
    assert (found.uses, found.prepared) == ({}, {})
