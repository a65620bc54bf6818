"""Whether a pod can't be placed because of where its named claims are, or for another reason."""

from typing import Any

import pytest
from tests.unit.control.builders import World, a_holding, a_pod, played

from parley.control.claims.podclaims import PodClaim
from parley.control.decision.stranded import stranded
from parley.negotiation.stranded import Cause
from parley.scheduler.candidates import CandidateNodes
from parley.sdk import Allocation

CORDONED: dict[str, Any] = {"unschedulable": True}


def claim(name: str, *pods: str, **fields: Any) -> PodClaim:
    return PodClaim(name, name, holding=a_holding(name, *pods, **fields))


def on(*nodes: str) -> Allocation:
    return Allocation(available_on=nodes)


@pytest.mark.parametrize(
    ("claims", "cause"),
    [
        ([claim("c")], Cause.CORDONED),
        ([claim("c"), claim("d")], Cause.CORDONED),
        ([claim("c", named=False)], None),
        ([PodClaim("c", "c")], None),
        ([claim("c", node="node-2")], None),
        ([claim("c"), claim("d", node="node-2")], None),
        ([claim("c", allocation=on("node-1", "node-2"), node="")], None),
    ],
    ids=["one", "both", "a generated one", "nothing allocated", "a good node", "none in common", "one of two"],
)
def test_claims_strand_a_pod_if_each_node_that_they_have_in_common_keeps_it_away(
    claims: list[PodClaim], cause: Cause | None
) -> None:
    async def story(world: World) -> None:
        await world.node("node-1", **CORDONED)
        await world.node("node-2")
        nodes = CandidateNodes(world.state, a_pod(), [], None)

        found = stranded(claims, nodes)

        assert (found.obstacles["node-1"].cause if found is not None else None) is cause

    played(story)


def test_a_node_that_the_pod_does_not_select_strands_nothing() -> None:
    async def story(world: World) -> None:
        await world.node("node-1")
        pod = a_pod(nodeSelector={"kubernetes.io/hostname": "node-2"})

        assert stranded([claim("c")], CandidateNodes(world.state, pod, [], None)) is None

    played(story)


def test_it_is_known_whether_others_use_what_is_stranded() -> None:
    async def story(world: World) -> None:
        nodes = CandidateNodes(world.state, a_pod(), [], None)
        free, used = stranded([claim("c")], nodes), stranded([claim("c", "other")], nodes)

        assert free is not None
        assert used is not None
        assert (free.obstacles["node-1"].cause, free.used, used.used) == (Cause.DELETED, False, True)

    played(story)
