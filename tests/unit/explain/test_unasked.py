"""Pods of a second scheduler that finds no node by itself: what the controller recorded before is old."""

from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.scheduler.conftest import SECOND_SCHEDULER, World

from parley.api import reasons


def test_what_was_recorded_when_the_scheduler_last_asked_is_old_when_it_does_not_ask_any_more(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("runs", "one")
        await world.settle()
        await world.add_pod("wants", "one", schedulerName=SECOND_SCHEDULER)
        await world.settle()
        assert (await explained(world, "wants")).code == reasons.NOTHING_VIABLE

        await world.taint("a", "maintenance", "NoSchedule")
        await world.delete_pod("runs")
        await world.settle()

        assert (await world.scheduling("wants")).status.waiting_for == reasons.NOTHING_VIABLE
        told = await explained(world, "wants")
        assert told.code == ""
        assert told.message == "scheduler parley found no node by its own filters, before it asked Parley"
        taint = "taint maintenance:NoSchedule, which the pod does not tolerate"
        assert helps(told) == [
            f"node a has what the claims request, but is not eligible: {taint}",
            f"no node would be viable even if all other pods ended: node a: {taint}. Change what rules a node "
            "out, request something else, or add a node that has it",
        ]

    play(scenario)
