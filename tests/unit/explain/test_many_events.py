"""Events that users wrote about a pod: how many, and how long they are, is up to them."""

import orjson
from tests.unit.explain.conftest import Play
from tests.unit.explain.waiting_pods import event, one_runs
from tests.unit.scheduler.conftest import World

from parley.explain.explaining import explain_waiting, read_pod
from parley.explain.findings import EVENTS
from parley.explain.snapshot import read
from parley.kube.client import Call, Client


class Flooded(Client):
    """A server with thousands of long events about each pod, not in the order of time."""

    async def request(self, call: Call) -> bytes:
        if (call.verb, call.resource.plural) != ("list", EVENTS.plural):
            return await super().request(call)
        about = {"uid": call.query["fieldSelector"].removeprefix("regarding.uid="), "fieldPath": "x" * 9_000}
        events = [
            {
                "metadata": {"name": f"e{n}", "uid": f"{n}", "resourceVersion": "1", "labels": {"x": "x" * 9_000}},
                "eventTime": f"2026-01-01T00:{n * 7 % 60:02}:{n * 7 // 60 % 60:02}Z",
                "reportingController": "x" * 9_000,
                "reason": "Tired",
                "note": f"{n * 7 % 60:02} " + "x" * 9_000,
                "type": "Warning",
                "regarding": about,
            }
            for n in range(2_000)
        ]
        return orjson.dumps({"metadata": {"resourceVersion": "9"}, "items": events})


def test_the_latest_events_are_read_and_of_long_ones_the_beginning(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        client = Flooded(world.client)

        events = (await read_pod(client, "default", "runs")).events

        assert len(events) == 200
        assert {event.note[:3] for event in events} <= {f"{minute:02} " for minute in range(54, 60)}
        assert sum(len(repr(event)) for event in events) < 500_000

    play(scenario)


def test_of_all_pods_that_wait_each_has_its_own_latest(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs(world)
        await world.add_pod("flooded", "one")
        await world.add_pod("quiet", "one")
        await world.settle()
        for number in range(300):
            at = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
            await event(world, "flooded", "Tired", f"{number}", eventTime=at)
        await event(world, "quiet", "Tired", "too")
        snapshot = await read(world.client, world.clock(), "default")

        flooded, quiet = await explain_waiting(world.client, snapshot, "default")

        tired = [finding.text for finding in flooded.findings if finding.code == "Tired"]
        assert tired == [f"{number}" for number in range(299, 99, -1)]
        assert [finding.text for finding in quiet.findings if finding.code == "Tired"] == ["too"]

    play(scenario)
