"""Why a node does not take the pods of a claim that is there, and what is said about it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.negotiation.test_fit import ROOM, node, pod

from parley.api.builtin import Node, Pod
from parley.negotiation.fit import misfit, needs_of
from parley.negotiation.requests import amounts
from parley.negotiation.stranded import (
    Cause,
    Obstacle,
    StrandedClaims,
    obstacle_for,
    unavailable,
    unavailable_since,
)


def tainted(*keys: str, **spec: Any) -> Node:
    return node(taints=[{"key": key, "effect": "NoSchedule"} for key in keys], **spec)


PREFIX = "node.kubernetes.io"
CASES: dict[str, tuple[Pod, Node | None, Obstacle | None]] = {
    "room for it": (pod(), node(), None),
    "deleted": (pod(), None, Obstacle(Cause.DELETED, "deleted")),
    "cordoned": (
        pod(),
        tainted(f"{PREFIX}/unschedulable", unschedulable=True),
        Obstacle(Cause.CORDONED, "cordoned"),
    ),
    "cordoned and tolerated": (
        pod(tolerations=[{"key": f"{PREFIX}/unschedulable", "operator": "Exists"}]),
        tainted(f"{PREFIX}/unschedulable", unschedulable=True),
        None,
    ),
    "not ready": (pod(), tainted(f"{PREFIX}/not-ready"), Obstacle(Cause.NOT_READY, "not ready")),
    "unreachable, and cordoned": (
        pod(),
        tainted(f"{PREFIX}/unreachable", unschedulable=True),
        Obstacle(Cause.UNREACHABLE, "unreachable"),
    ),
    "out of service": (
        pod(),
        tainted(f"{PREFIX}/unreachable", f"{PREFIX}/out-of-service"),
        Obstacle(Cause.OUT_OF_SERVICE, "out of service"),
    ),
    "tainted": (
        pod(),
        tainted("gpu"),
        Obstacle(Cause.TAINTED, "taint gpu:NoSchedule, which the pod does not tolerate"),
    ),
    "too little cpu": (
        pod(containers=[{"resources": {"requests": {"cpu": "3500m"}}}]),
        node(),
        Obstacle(Cause.FULL, "too little cpu left"),
    ),
    "not selected by the pod": (pod(nodeSelector={"zone": "1"}), node(), None),
}


@pytest.mark.parametrize(("wants", "has", "expected"), CASES.values(), ids=CASES)
def test_an_obstacle_is_the_nodes_not_the_pods(wants: Pod, has: Node | None, expected: Obstacle | None) -> None:
    used = amounts({"cpu": "1"})
    assert obstacle_for(needs_of(wants), has, ROOM, used, pods=1) == expected
    if has is not None and expected is not None:
        assert misfit(needs_of(wants), has, ROOM, used, pods=1), "it keeps the pod away"


def test_pod_slots_are_named_as_such() -> None:
    assert obstacle_for(needs_of(pod()), node(), ROOM, {}, pods=2) == Obstacle(Cause.FULL, "no pod slots left")


def stranded(*claims: str, used: bool = False, **causes: Cause) -> str:
    texts = {Cause.CORDONED: "cordoned", Cause.FULL: "no pod slots left", Cause.DELETED: "deleted"}
    obstacles = {name: Obstacle(cause, texts[cause]) for name, cause in causes.items()}
    return StrandedClaims(claims, obstacles, used).message


def test_the_message_names_claim_node_cause_and_remedy() -> None:
    assert stranded("team/build", a=Cause.CORDONED) == (
        "claim team/build is allocated on node a, where the pod can't go: node a: cordoned. "
        "Remedy: uncordon the node, or delete the claim to start over elsewhere"
    )
    assert stranded("team/build", a=Cause.DELETED) == (
        "claim team/build is allocated on node a, where the pod can't go: node a: deleted. "
        "Remedy: delete the claim to start over elsewhere"
    )
    assert stranded("team/build", used=True, a=Cause.FULL) == (
        "claim team/build is allocated on node a, where the pod can't go: node a: no pod slots left. "
        "Remedy: delete pods on the node, or delete the claim to start over elsewhere once the pods that use it "
        "have ended"
    )
    assert stranded("team/build", "team/cache", a=Cause.FULL, b=Cause.CORDONED) == (
        "claims team/build, team/cache are allocated on nodes a, b, where the pod can't go: "
        "node a: no pod slots left; node b: cordoned. "
        "Remedy: delete pods on the node, or uncordon the node, or delete the claims to start over elsewhere"
    )


@pytest.mark.parametrize(
    ("has", "cause"),
    [
        (node(), None),
        (None, Cause.DELETED),
        (node(unschedulable=True), Cause.CORDONED),
        (tainted(f"{PREFIX}/not-ready"), Cause.NOT_READY),
        (tainted(f"{PREFIX}/unreachable", unschedulable=True), Cause.UNREACHABLE),
        (tainted(f"{PREFIX}/out-of-service", f"{PREFIX}/unreachable"), Cause.OUT_OF_SERVICE),
        (tainted("gpu", f"{PREFIX}/disk-pressure"), None),
        (node(taints=[{"key": f"{PREFIX}/not-ready", "effect": "PreferNoSchedule"}]), None),
    ],
    ids=str,
)
def test_a_node_without_a_pod_is_unavailable_only_by_what_passes(has: Node | None, cause: Cause | None) -> None:
    found = unavailable(has)
    assert (found.cause if found is not None else None) is cause


def test_since_when_is_the_earliest_time_of_its_taints() -> None:
    def added(key: str, time: str | None) -> dict[str, Any]:
        return {"key": key, "effect": "NoSchedule", "timeAdded": time}

    early, late = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
    taints = [
        added(f"{PREFIX}/unreachable", late),
        added(f"{PREFIX}/unschedulable", early),
        added(f"{PREFIX}/out-of-service", None),
        added("gpu", "2025-01-01T00:00:00Z"),
    ]
    assert unavailable_since(node(taints=taints)) == datetime(2026, 1, 1, tzinfo=UTC)
    assert unavailable_since(node(taints=taints[2:])) is None
    assert unavailable_since(node(taints=[added(f"{PREFIX}/unreachable", "soon")])) is None
