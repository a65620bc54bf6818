"""Of a pod whose affinity names nodes, as each of a DaemonSet's does, no others are looked at."""

from typing import Any

import pytest
from tests.unit.control.builders import World, a_pod, played

from parley.scheduler.candidates import CandidateNodes

NODES = [f"node-{number}" for number in range(4)]


def named(*values: str, operator: str = "In", **more: Any) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [*values]}], **more}


def labelled(*values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*values]}]}


@pytest.mark.parametrize(
    ("terms", "eligible", "looked_at"),
    [
        ([named("node-1")], ["node-1"], ["node-1"]),
        ([named("node-1"), named("node-3")], ["node-1", "node-3"], ["node-1", "node-3"]),
        ([named("node-1", **labelled("node-2"))], [], ["node-1"]),
        ([named("gone")], [], ["gone"]),
        ([named("node-1"), {}], ["node-1"], ["node-1"]),
        ([named("node-1"), labelled("node-2")], ["node-1", "node-2"], NODES),
        ([named("node-1", operator="NotIn")], ["node-0", "node-2", "node-3"], NODES),
        ([{}], [], NODES),
    ],
    ids=["one", "two", "and a label", "gone", "or nothing", "or a label", "not this one", "nothing"],
)
def test_only_nodes_that_may_match_are_looked_at(
    terms: list[dict[str, Any]], eligible: list[str], looked_at: list[str]
) -> None:
    async def story(world: World) -> None:
        for name in NODES:
            await world.node(name)
        affinity = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
        nodes = CandidateNodes(world.state, a_pod(affinity=affinity), [], None)

        assert sorted(nodes) == eligible
        assert sorted({*eligible, *nodes.misfits}) == looked_at

    played(story)
