"""Admission in the simulated cluster: who may reserve a mirror, in the words of the real policy."""

import orjson
import pytest
from msgspec.structs import replace

from parley.api.builtin import AllocatedDeviceStatus, BuiltinClaim, Condition
from parley.api.resources import BUILTIN_CLAIMS
from parley.simulate.admission import refusal


def claim(
    request: str, *pods: str, owner: str = "", class_name: str = "being-negotiated.parley.dev"
) -> BuiltinClaim:
    requests = [{"name": request, "exactly": {"deviceClassName": class_name}}]
    body = {
        "metadata": {"name": "gate", "namespace": "team", "ownerReferences": owned_by(owner) if owner else []},
        "spec": {"devices": {"requests": requests}},
        "status": {"reservedFor": reserved(*pods)},
    }
    return BUILTIN_CLAIMS.decode(orjson.dumps(body))


def owned_by(pod: str) -> list[dict[str, object]]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}]


def reserved(*pods: str) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (claim("exclusive", owner="a"), reserved("a")),
        (claim("exclusive", "a"), reserved("a")),
        (claim("exclusive", "a"), []),
        (claim("shareable", "a"), reserved("a", "b")),
        (claim("exclusive", "a", class_name="gpu"), reserved("a", "b")),
    ],
    ids=["its owner", "same pod", "nobody", "shareable", "not a mirror"],
)
def test_what_is_allowed(before: BuiltinClaim, after: list[dict[str, str]]) -> None:
    assert refusal(before, after) == ""


def test_a_second_pod_is_refused() -> None:
    assert refusal(claim("exclusive", "a"), reserved("a", "b")) == (
        "ResourceClaim team/gate is exclusive, and status.reservedFor would hold 2 pods (a, b): wait until the "
        "first pod is gone, or use a ResourceClass that has shareable: true."
    )


def test_a_reservation_does_not_pass_to_another_pod() -> None:
    assert refusal(claim("exclusive", "a"), reserved("b")) == (
        "ResourceClaim team/gate is exclusive and reserved for pod a (UID uid-a); status.reservedFor cannot pass "
        "to pod b (UID uid-b) in one step: clear it first, when the first pod is gone."
    )


@pytest.mark.parametrize("says_so", [True, False])
def test_only_who_allocates_clears_what_is_said_to_be_in_use(says_so: bool) -> None:
    mirror = in_use(claim("exclusive", "a")) if says_so else claim("exclusive", "a")
    expected = (
        "ResourceClaim team/gate is in use, as condition parley.dev/in-use in status.devices says, and Parley "
        "clears status.allocation when that has ended: wait, or grant the verb allocate on "
        "resourceclaims.parley.dev."
    )
    assert refusal(mirror, [], clears=True) == (expected if says_so else "")
    assert refusal(mirror, [], clears=False) == ""
    assert refusal(mirror, [], clears=True, allocates=True) == ""


def in_use(mirror: BuiltinClaim) -> BuiltinClaim:
    """As its controller says."""
    said = Condition("parley.dev/in-use", "True")
    devices = [AllocatedDeviceStatus(driver="device.parley.dev", pool="n1", device="gpu-0", conditions=[said])]
    return replace(mirror, status=replace(mirror.status, devices=devices))


@pytest.mark.parametrize("owner", ["", "a"], ids=["named", "generated for another pod"])
def test_only_who_allocates_says_which_pod_is_next(owner: str) -> None:
    mirror = claim("exclusive", owner=owner)
    assert refusal(mirror, reserved("b")) == (
        "ResourceClaim team/gate is exclusive, and Parley decides which pod may use it: wait until it adds pod "
        "b to status.reservedFor, which takes the verb allocate on resourceclaims.parley.dev."
    )
    assert refusal(mirror, reserved("b"), allocates=True) == ""
