"""A claim's entry in a PodScheduling, after a class was given a standalone driver instead of an embedded one."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.control.builders import NAMESPACE, World, played
from tests.unit.control.published import ASKED, WAITING, Published

from parley.api.names import API_VERSION
from parley.api.resources import POD_SCHEDULINGS
from parley.control.publishing.podscheduling import Question, StandaloneClaim

OUTSIDE = "outside.example.com"
ASKS = replace(
    ASKED, drivers={"gpu": OUTSIDE}, question=Question((StandaloneClaim("gpu", OUTSIDE, "p-gpu"),)), selected=""
)


async def answer(world: World, **entry: Any) -> None:
    """The standalone driver's, whatever it is asked at the moment."""
    claims = [{"name": "gpu", "driverName": OUTSIDE, "round": 1, **entry}]
    body = {"apiVersion": API_VERSION, "kind": "PodScheduling", "metadata": {"name": "p", "namespace": NAMESPACE}}
    body["status"] = {"claims": claims}
    await world.admin.apply(POD_SCHEDULINGS, "p", body, NAMESPACE, field_manager=OUTSIDE, force=True)


@pytest.mark.parametrize("late", [False, True], ids=["asked", "answered late"])
def test_the_driver_can_leave_out_what_the_embedded_one_answered(late: bool) -> None:
    """Also if an answer of its own, to a question that was withdrawn, arrives before it is asked again."""

    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(WAITING)
        if late:
            await answer(world, viableNodes=["node-1"])
        await published.publish(ASKS)
        await answer(world, viableNodes=[], alternatives={"nodes": ["node-9"]})
        await answer(world, viableNodes=["node-1"])
        (shown,) = (await published.shown()).status.claims
        assert (shown.driver_name, shown.viable_nodes, shown.alternatives) == (OUTSIDE, ("node-1",), None)

    played(story)
