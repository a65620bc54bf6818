"""What reservation pods look like, and how they are found again."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from parley.api.builtin import Node, Pod
from parley.api.selectors import matches, node_selector
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
    assert [requested(as_kept(one.body(HOME))) for one in made] == amounts
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


@pytest.mark.parametrize("gated", [True, False])
def test_it_is_found_by_its_node_from_what_the_cache_keeps_of_it(gated: bool) -> None:
    (one,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS, gated=gated)
    kept_of_it = as_kept(one.body(HOME))
    assert reserved_on(kept_of_it, HOME) == "node-1"
    assert bool(kept_of_it.spec.scheduling_gates) is gated


def test_one_without_a_gate_fits_on_no_node_whatever_labels_that_has() -> None:
    (gated,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS)
    (one,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS, gated=False)
    assert one.name != gated.name
    affinity = msgspec.convert(one.body(HOME), Pod).spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    selector = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert selector is not None
    for labels in ({}, {"parley.dev/reservation": ""}):
        node = msgspec.convert({"metadata": {"name": "node-1", "labels": labels}}, Node)
        assert not matches(selector, node)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["metadata"].update(namespace="team"),
        lambda body: body["spec"].update(schedulingGates=[], affinity=naming("node-1")),
        lambda body: body["spec"].pop("affinity"),
        lambda body: body["spec"]["affinity"].clear(),
        lambda body: body["spec"].update(affinity=naming("node-1", "node-2")),
    ],
    ids=["in another namespace", "without the gate", "without affinity", "without node affinity", "of two nodes"],
)
def test_others_that_look_like_one_are_none(change: Callable[[dict[str, Any]], object], gated: bool) -> None:
    (one,) = reservation_pods("node-1", "uid-1", "team/build", {"cpu": 1000}, SCHEDULERS, gated=gated)
    body = one.body(HOME)
    change(body)
    assert reserved_on(msgspec.convert(body, Pod), HOME) is None
    assert as_kept(body).spec.affinity is None


def naming(*nodes: str) -> dict[str, Any]:
    """The affinity of a pod to these nodes."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node_selector(nodes)}}


def as_kept(body: object) -> Pod:
    return kept.pod(msgspec.convert(body, Pod), reservations_in=HOME)
