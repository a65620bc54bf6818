"""Until when claims without users stay: by their class, from when a pod leaves that was bound."""

from typing import Any

import pytest
from tests.unit.control.builders import World, a_holding, played

from parley.control.release.unused_claims import UnusedClaimDeadlines

HOUR: dict[str, Any] = {"whenUnused": {"keepSeconds": 3600}}


@pytest.mark.parametrize(
    ("class_", "fields", "bound", "seconds"),
    [
        (HOUR, {}, True, 3600),
        (HOUR, {}, False, 0),
        ({}, {}, True, 0),
        (HOUR, {"named": False}, True, 0),
        (HOUR, {"immediate": True}, True, 0),
        (HOUR, {"standalone": True}, True, 0),
        (HOUR, {"class_name": "gone"}, True, 0),
    ],
    ids=["kept", "never bound", "class without", "generated", "immediate", "standalone", "no such class"],
)
def test_who_keeps_what_for_how_long(
    class_: dict[str, Any], fields: dict[str, Any], bound: bool, seconds: float
) -> None:
    async def story(world: World) -> None:
        await world.class_(**class_)
        deadlines = UnusedClaimDeadlines(world.cluster, world.clock)
        holding = a_holding(**{"class_name": "licence", **fields})
        deadlines.pod_left(holding, bound=bound)
        assert deadlines.seconds_left(holding) == seconds
        assert holding.used is bound

    played(story)


def test_the_time_runs_from_the_last_pod_that_was_bound() -> None:
    async def story(world: World) -> None:
        await world.class_(**HOUR)
        deadlines, holding = UnusedClaimDeadlines(world.cluster, world.clock), a_holding(class_name="licence")
        deadlines.pod_left(holding, bound=True)
        await world.seen()
        deadlines.pod_left(holding, bound=False)
        assert deadlines.seconds_left(holding) == 3599
        deadlines.pod_left(holding, bound=True)
        assert deadlines.seconds_left(holding) == 3600

    played(story)


def test_it_begins_again_when_nobody_can_be_let_in_any_more_unless_the_claim_ends() -> None:
    async def story(world: World) -> None:
        await world.class_(**HOUR)
        deadlines, holding = UnusedClaimDeadlines(world.cluster, world.clock), a_holding(class_name="licence")
        deadlines.renew(holding)
        assert holding.kept_until is None
        deadlines.pod_left(holding, bound=True)
        await world.seen()
        assert deadlines.seconds_left(holding) == 3599
        deadlines.renew(holding)
        assert deadlines.seconds_left(holding) == 3600
        await world.seen()
        holding.removing = True
        deadlines.renew(holding)
        assert deadlines.seconds_left(holding) == 3599

    played(story)
