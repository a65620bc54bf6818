"""What a mirror's status is to show of a holding, and when schedulers are to learn that it is in use."""

from typing import Any

import pytest
from tests.unit.control.builders import NOW, TOKENS, a_claim, a_holding, mirror_of, user

from parley.api.builtin import BuiltinClaim
from parley.control.mirror_status import other_users, status_body
from parley.control.objects import in_use
from parley.control.objects.mirror import allocated, consumer, is_offer, offer_stands
from parley.sdk import Allocation, Device

CLAIM = a_claim()
HOLDING = a_holding(
    "c", "p", named=True, driver=TOKENS, allocation=Allocation((Device("a", "b"), Device("a", "c")))
)


def shown(status: dict[str, Any]) -> BuiltinClaim:
    return mirror_of(CLAIM, status=status)


def conditions(mirror: BuiltinClaim) -> dict[tuple[str, str], dict[str, str]]:
    """Those of each device, by pool and name."""
    return {(d.pool, d.device): {c.type: c.status for c in d.conditions} for d in mirror.status.devices}


def test_a_guarded_allocation_is_free_at_first() -> None:
    status = status_body(HOLDING, mirror_of(CLAIM), NOW, guarded=True)
    mirror = shown(status)
    assert status["reservedFor"] == [consumer(user("p"))]
    assert conditions(mirror) == {("a", "b"): {"parley.dev/recorded": "True"}}
    assert in_use.can_show_in_use(mirror)
    assert not is_offer(mirror.status.allocation)  # type: ignore[arg-type]
    assert not offer_stands(mirror)
    assert allocated(mirror, TOKENS) is not None


def test_a_claim_in_use_says_so_once() -> None:
    status = status_body(HOLDING, mirror_of(CLAIM), NOW, guarded=True)
    devices = in_use.in_use_devices(shown(status), user("p"), NOW)
    mirror = shown({**status, "devices": devices})
    assert conditions(mirror) == {("a", "b"): {"parley.dev/recorded": "True", "parley.dev/in-use": "True"}}
    assert not in_use.can_show_in_use(mirror)


@pytest.mark.parametrize("node_part", [True, False])
def test_an_allocation_that_is_not_guarded_or_has_no_device_says_nothing(node_part: bool) -> None:
    holding = a_holding("c", "p", named=True, driver=TOKENS, node_part=node_part)
    status = status_body(holding, mirror_of(CLAIM), NOW, guarded=not node_part)
    assert not status.get("devices")
    assert not in_use.can_show_in_use(shown(status))


def test_others_are_those_that_a_scheduler_let_in() -> None:
    mirror = shown({"reservedFor": [consumer(user("p")), consumer(user("q"))]})
    assert other_users(HOLDING, mirror) == [consumer(user("q"))]
