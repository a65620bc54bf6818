"""What is told of a pod's past, in which order, and by whom."""

from typing import Any

import orjson
from tests.unit.scheduler.conftest import World
from tests.unit.web.conftest import Play, one_runs_and_one_waits

from parley.api.resources import POD_SCHEDULINGS
from parley.explain.explaining import PodObjects, explain, read_pod
from parley.explain.findings import EventSource, TimedEvent
from parley.explain.model import ClaimDetails, Explanation
from parley.kube.client import Call, Client
from parley.web.timeline import timeline


def explained(*claims: ClaimDetails) -> Explanation:
    return Explanation(
        *("default", "p", "bound", "Running", "a", "", "", "", 1, 1, 1, True),
        claims,
        (),
        (),
        (),
        (),
        (),
        "2026-01-01T01:00:00Z",
    )


def time(second: int, fraction: str = "") -> str:
    return f"2026-01-01T00:00:{second:02}{fraction}Z"


RAW: dict[str, Any] = {
    "metadata": {"uid": "u", "creationTimestamp": time(1), "deletionTimestamp": time(59)},
    "spec": {"nodeName": "a"},
    "status": {
        "conditions": [
            {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": time(12)},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": time(10)},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": time(11)},
        ],
        "containerStatuses": [
            {"name": "main", "state": {"running": {"startedAt": time(14)}}},
            {
                "name": "side",
                "state": {
                    "terminated": {"startedAt": time(15), "finishedAt": time(16), "exitCode": 3, "reason": "Error"}
                },
            },
        ],
    },
}
SCHEDULING: dict[str, Any] = {
    "metadata": {
        "creationTimestamp": time(2),
        "managedFields": [
            {"manager": "parley-controller", "time": time(9)},
            {"manager": "disk.example.com", "time": time(5)},
        ],
    },
    "spec": {"round": 2},
}
EVENTS = (
    TimedEvent(
        regarding={"uid": "u"}, reason="Pulled", note="image is there", event_time=time(13, ".5"), type="Normal"
    ),
    TimedEvent(regarding={"uid": "other"}, reason="Pulled", note="of another pod", event_time=time(13)),
    TimedEvent(
        regarding={"uid": "u"},
        reason="NothingViable",
        note="no node",
        deprecated_last_timestamp=time(3),
        deprecated_source=EventSource(component="parley.dev/controller"),
    ),
)
CLAIM = ClaimDetails(
    "gpu", "template one", "p-gpu", "gpu", "device.parley.dev", "allocated", holds=("a/0",), since=time(8)
)


def test_a_whole_life_in_order() -> None:
    told = timeline(PodObjects(RAW, SCHEDULING, EVENTS), explained(CLAIM))

    assert [(moment.at, moment.by, moment.code, moment.text) for moment in told] == [
        (time(1), "API server", "", "the pod was created"),
        (time(2), "controller", "", "recorded the negotiation for the first time"),
        (time(3), "controller", "NothingViable", "no node"),
        (time(5), "driver (disk.example.com)", "", "last wrote an answer or allocation"),
        (time(8), "driver device.parley.dev", "", "claim gpu was allocated: a/0"),
        (time(9), "controller", "", "last updated the negotiation (round 2)"),
        (time(10), "scheduler", "", "bound the pod to node a"),
        (time(12), "kubelet", "", "claims are prepared, and the pod's sandbox is ready"),
        (time(13, ".5"), "unknown", "Pulled", "image is there"),
        (time(14), "kubelet", "", "container main runs"),
        (time(15), "kubelet", "", "container side runs"),
        (time(16), "kubelet", "Error", "container side ended with exit code 3"),
        (time(59), "API server", "", "the pod's graceful deletion ends"),
    ]


def test_a_pod_that_the_scheduler_refused() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes",
        "lastTransitionTime": time(4),
    }
    raw = {"metadata": {"uid": "u"}, "spec": {}, "status": {"conditions": [condition]}}

    (moment,) = timeline(PodObjects(raw, None, ()), explained())

    assert (moment.by, moment.code, moment.text) == ("scheduler", "Unschedulable", "0/3 nodes")


def test_an_event_of_the_year_0_is_left_out() -> None:
    event = TimedEvent(regarding={"uid": "u"}, reason="Old", note="from", event_time="0000-01-01T00:00:00.000000Z")
    raw = {"metadata": {"uid": "u", "creationTimestamp": time(1)}, "spec": {}, "status": {}}

    assert [one.text for one in timeline(PodObjects(raw, None, (event,)), explained())] == ["the pod was created"]


def test_what_an_earlier_pod_of_the_name_left_behind_is_not_of_its_past(play: Play) -> None:
    """As for a moment of each pod of a StatefulSet that is made again."""

    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        left = orjson.dumps(await world.client.get(POD_SCHEDULINGS.untyped(), "wants", "default"))
        await world.delete_pod("wants")
        await world.settle()
        await world.add_pod("wants", "one")

        class NotCollected(Client):
            async def request(self, call: Call) -> bytes:
                return left if call.resource.plural == POD_SCHEDULINGS.plural else await super().request(call)

        objects = await read_pod(NotCollected(world.client), "default", "wants")

        assert objects.scheduling is None

    play(scenario)


def test_an_offer_is_the_controllers_and_no_allocation(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_node("b", 1)
        await world.add_class(placement="Exact")
        await world.add_template("one")
        await world.add_pod("p", "one", schedulerName="asleep")
        await world.settle(5)
        told = await explain(world.client, world.clock(), "default", "p")

        entries = timeline(await read_pod(world.client, "default", "p"), told)

        assert [(one.by, one.text) for one in entries if "gpu-0" in one.text] == [
            ("controller", "offered claim gpu-0 to the scheduler, for 2 nodes")
        ]

    play(scenario)
