"""The rules for immediate claims, which both runtimes follow."""

from typing import Any

import pytest

from parley.api.builtin import Node, NodeSpec, ObjectMeta, Taint
from parley.api.models import ResourceClaim, ResourceClass
from parley.api.selectors import node_selector
from parley.sdk import PodReference
from parley.sdk.immediate import FailedNodes, NodeRule, is_pending, no_pod

ALLOCATION = {"driverName": "disks.example.com", "allocation": {}}


def a_class(generation: int = 1, **more: Any) -> ResourceClass:
    metadata = {"name": "disk", "uid": "uid-disk", "generation": generation}
    return ResourceClass.model_validate({"metadata": metadata, "driverName": "disks.example.com", **more})


def a_claim(
    mode: str = "Immediate", status: dict[str, Any] | None = None, uid: str = "uid-1", **meta: Any
) -> ResourceClaim:
    return ResourceClaim.model_validate(
        {
            "metadata": {"name": "c", "namespace": "team", "uid": uid, **meta},
            "spec": {"resourceClassName": "disk", "allocationMode": mode},
            "status": status or {},
        }
    )


@pytest.mark.parametrize(
    ("claim", "pending"),
    [
        (a_claim(), True),
        (a_claim("WaitForFirstConsumer"), False),
        (a_claim(deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (a_claim(status=ALLOCATION), False),
    ],
    ids=["to-be-allocated", "waits-for-a-pod", "being-deleted", "allocated"],
)
def test_which_claims_are_to_be_allocated_without_a_pod(claim: ResourceClaim, pending: bool) -> None:
    assert is_pending(claim) is pending


@pytest.mark.parametrize(
    ("spec", "class_", "misfit"),
    [
        (NodeSpec(), a_class(), ""),
        (NodeSpec(), a_class(suitableNodes=node_selector(["node-1"])), ""),
        (
            NodeSpec(),
            a_class(suitableNodes=node_selector(["other"])),
            "not among the suitableNodes of class disk",
        ),
        (NodeSpec(unschedulable=True), a_class(), "cordoned"),
        (NodeSpec(taints=[Taint("team", "", "NoSchedule")]), a_class(), "taint team:NoSchedule"),
        (NodeSpec(taints=[Taint("team", "", "NoExecute")]), a_class(), "taint team:NoExecute"),
        (NodeSpec(taints=[Taint("slow", "", "PreferNoSchedule")]), a_class(), ""),
        (
            NodeSpec(taints=[Taint("team", "", "NoSchedule")]),
            a_class(suitableNodes=node_selector(["node-1"])),
            "taint team:NoSchedule",
        ),
    ],
    ids=["any", "suitable", "unsuitable", "cordoned", "tainted", "evicting", "rather-not", "suitable-and-tainted"],
)
def test_on_which_nodes_a_claim_may_be_allocated(spec: NodeSpec, class_: ResourceClass, misfit: str) -> None:
    assert NodeRule(class_).misfit(Node(ObjectMeta(name="node-1"), spec)) == misfit


def test_a_node_that_failed_for_good_is_excluded_any_other_is_tried_last() -> None:
    nodes = FailedNodes.none(a_claim(), a_class())
    nodes.add("a", "busy", permanent=False)
    nodes.add("b", "scrapped", permanent=True)
    assert nodes.failed == {"a", "b"}
    assert nodes.excluded == {"b": "scrapped"}


@pytest.mark.parametrize(
    ("claim", "class_", "same"),
    [
        (a_claim(), a_class(), True),
        (a_claim(uid="uid-2"), a_class(), False),
        (a_claim(), a_class(2), False),
        (a_claim(), a_class(status={"total": 4, "free": 3}), True),
        (a_claim(), None, False),
    ],
    ids=["unchanged", "another-claim-of-that-name", "a-changed-class", "a-status-of-its-class", "no-class"],
)
def test_a_new_claim_and_a_changed_class_begin_anew(
    claim: ResourceClaim, class_: ResourceClass | None, same: bool
) -> None:
    assert FailedNodes.none(a_claim(), a_class()).still_apply(claim, class_) is same


def test_who_asks_where_no_pod_does() -> None:
    assert no_pod("team") == PodReference("team", "", "")
