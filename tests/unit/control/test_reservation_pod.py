"""What reservation pods look like, and how they are found again."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from parley.api.builtin import Pod
from parley.api.selectors import node_selector
from parley.control.caches import kept
from parley.control.objects.reservation_pod import reservation_pods, reserved_on
from parley.negotiation.requests import Amounts, requested

HOME = "parley-system"
SCHEDULERS = ("default-scheduler",)
GI = 1000 * 1024**3


@pytest.mark.parametrize(
    ("left", "amounts"),
    [
        ({"cpu": 1500, "memory": 2 * GI}, [{"cpu": 1500, "memory": 2 * GI}]),
        ({"cpu": 1500, "pods": 2000}, [{"cpu": 1500}, {}]),
        ({"pods": 2000}, [{}, {}]),
        ({"cpu": 1500, "pods": 0}, []),
        ({"cpu": 0}, []),
    ],
)
def test_the_first_one_holds_the_amounts_and_each_a_pod_slot(left: Amounts, amounts: list[Amounts]) -> None:
    made = reservation_pods("node-1", "uid-1", "team/build", left, SCHEDULERS)
    assert [requested(as_kept(one.body(HOME, ""))) for one in made] == amounts
    assert len({one.name for one in made}) == len(made)


def test_there_is_one_for_each_scheduler() -> None:
    made = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, ("default-scheduler", "batch"))
    assert [one.scheduler for one in made] == ["default-scheduler", "batch"]
    assert len({one.name for one in made}) == 2


def test_the_name_says_whether_it_is_what_is_wanted() -> None:
    (one,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS)
    (same,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS)
    (other,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1001}, SCHEDULERS)
    assert one.name == same.name != other.name


def test_it_is_found_by_its_node_from_what_the_cache_keeps_of_it() -> None:
    (one,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS)
    assert reserved_on(as_kept(one.body(HOME, "low")), HOME) == "node-1"


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["metadata"].update(namespace="team"),
        lambda body: body["spec"].update(schedulingGates=[]),
        lambda body: body["spec"].pop("affinity"),
        lambda body: body["spec"]["affinity"].clear(),
        lambda body: body["spec"].update(affinity=naming("node-1", "node-2")),
    ],
    ids=["in another namespace", "without the gate", "without affinity", "without node affinity", "of two nodes"],
)
def test_others_that_look_like_one_are_none(change: Callable[[dict[str, Any]], object]) -> None:
    (one,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS)
    body = one.body(HOME, "low")
    change(body)
    assert reserved_on(msgspec.convert(body, Pod), HOME) is None
    assert as_kept(body).spec.affinity is None


def naming(*nodes: str) -> dict[str, Any]:
    """The affinity of a pod to these nodes."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node_selector(nodes)}}


def as_kept(body: object) -> Pod:
    return kept.pod(msgspec.convert(body, Pod), reservations_in=HOME)
