"""Which parameters of workspaces are valid, in claims and classes."""

from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.drivers.workspaces import asks, disk, enforcing, stocked

from parley.drivers.workspace import WorkspaceDriver
from parley.drivers.workspace_parameters import WorkspaceClass, WorkspaceParameters
from parley.sdk import Cause, Reserve, Stranded
from parley.sdk.checks import BadParameters


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "WORKSPACE__PATH\n", "WORKSPACE_a_PATH", "WORKSPACE_A"])
def test_no_other_variable_of_a_container_can_be_set(name: str) -> None:
    with pytest.raises(ValidationError, match="variable"):
        WorkspaceParameters.model_validate({"variable": name})


@pytest.mark.parametrize(
    "owner", [{"uid": -1}, {"gid": 2**32 - 1}, {"mode": "rwx"}, {"mode": "77777"}, {"user": "root"}], ids=repr
)
def test_owners_that_are_none_are_refused(owner: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="owner"):
        WorkspaceClass.model_validate({"owner": owner})


@pytest.mark.parametrize(
    "path",
    [
        "",
        "work",
        "/",
        "//x",
        "/work/",
        "/a/../b",
        "/a/./b",
        "/a:b",
        "/a,b",
        "/a\nb",
        "/a\0b",
        "/etc",
        "/proc/1",
        "/dev/x",
        "/usr/bin",
        "/var/run",
        "/run/secrets",
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "/a\x85b",
        "/a\u2028b",
        "/a\u202eb",
    ],
)
def test_paths_that_would_break_a_container_are_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="mountPath"):
        WorkspaceParameters.model_validate({"mountPath": path})


@pytest.mark.parametrize("path", ["/workspace", "/usr/src/app", "/var/lib/build", "/run/secretsauce", "/home/ä b"])
def test_other_paths_are_the_users_affair(path: str) -> None:
    assert WorkspaceParameters.model_validate({"mountPath": path}).mount_path == path


@pytest.mark.parametrize("size", ["", "0", "-1Gi", "2Ei", "1e99999999999", "many", "1" * 33])
def test_sizes_that_are_none_are_refused(size: str) -> None:
    with pytest.raises(ValidationError, match="size"):
        WorkspaceParameters.model_validate({"size": size})


@pytest.mark.parametrize("cpu", [2, 0.5, "2", "500m"])
def test_cpus_are_reserved_as_pods_request_them(cpu: object) -> None:
    asked = WorkspaceParameters.model_validate({"reserve": {"cpu": cpu, "memory": "2Gi", "pods": 3}}).reserve
    assert asked is not None
    assert asked.reserve("Ledger", ("night",)) == Reserve(
        {"cpu": str(cpu), "memory": "2Gi"}, 3, yields_to=("night",)
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("cpu", cpu) for cpu in ("0", "-1", "many", True, 10**12, "1" * 33)),
        *(("memory", memory) for memory in ("0", "2Ei")),
        *(("pods", pods) for pods in (-1, 10_001)),
        ("gpu", "1"),
    ],
)
def test_reservations_that_are_none_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"reserve.{field}"):
        WorkspaceParameters.model_validate({"reserve": {field: value}})


def test_a_claim_without_a_reservation_has_none() -> None:
    assert WorkspaceDriver().reserves(asks("p", {}).claims[0]) is None


def test_limits_are_in_mebibytes() -> None:
    (claim,) = asks("p", {"size": "1500M"}).claims
    assert WorkspaceDriver().units(claim) == 1431


@pytest.mark.parametrize(
    ("says", "stranded"),
    [
        ({}, Stranded("Wait", 300)),
        ({"onNodeUnavailable": "Fail"}, Stranded("Fail", 300)),
        ({"onNodeUnavailable": "Recreate", "unavailableSeconds": 0}, Stranded("Recreate", 0)),
    ],
    ids=["by default", "fail", "recreate at once"],
)
def test_the_class_says_what_becomes_of_claims_on_nodes_that_take_no_pods(
    says: dict[str, Any], stranded: Stranded
) -> None:
    (claim,) = asks("p", {}, **says).claims
    assert stocked().stranded(claim, "a", Cause.CORDONED) == stranded


@pytest.mark.parametrize("says", [{"onNodeUnavailable": "Move"}, {"unavailableSeconds": -1}])
def test_a_class_that_says_something_else_is_refused(says: dict[str, Any]) -> None:
    with pytest.raises(BadParameters):
        asks("p", {}, **says)


def test_what_is_too_small_for_a_file_system_is_refused() -> None:
    driver = WorkspaceDriver()
    driver.observe(None, enforcing(disk("a")))
    answer = driver.viable(asks("p", {"size": "15Mi"}, enforce="Image"), ("a",))["claim-0"]
    assert answer.reasons["a"].startswith("size=15Mi of claim ")
    assert "is too small for a file system: request 16Mi or more" in answer.reasons["a"]
