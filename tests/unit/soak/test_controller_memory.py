"""What the soak's rules read of a controller's memory."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.soak.rules.controller_memory import ControllerMemory
from tests.unit.control.builders import a_holding, user


@pytest.mark.parametrize(
    ("fields", "keeps", "is_released"),
    [({}, False, True), ({}, True, False), ({"immediate": True}, False, False), ({"named": False}, True, True)],
    ids=["named", "kept", "immediate", "generated"],
)
def test_claims_that_stay_allocated_without_users_are_not_released_by_evictions(
    fields: dict[str, Any], keeps: bool, is_released: bool
) -> None:
    class_ = SimpleNamespace(when_unused=SimpleNamespace(keep_seconds=60) if keeps else None)
    state = SimpleNamespace(cluster=SimpleNamespace(class_=lambda _: class_))
    holdings = [a_holding("c", "victim", **fields), a_holding("shared", "victim", "other")]
    controller: Any = SimpleNamespace(ledger=holdings, _base=SimpleNamespace(state=state))
    plan: Any = SimpleNamespace(terminating=frozenset({user("victim").uid}))
    found = ControllerMemory(controller, {}).released_by(plan)
    assert found == {user("victim").uid} | ({"uid-c"} if is_released else set())
