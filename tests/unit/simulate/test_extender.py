"""The simulated kube-scheduler with an extender: what it sends, and what it makes of the answers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from parley.api.resources import NODES, PODS
from parley.kube.client import Client, Conflict, NotFound
from parley.kube.clock import Clock
from parley.simulate.extender_calls import ExtenderUnavailable
from parley.simulate.kube_scheduler import KubeScheduler

Answers = Mapping[str, Callable[[Any], Any]]


class Recorded:
    """An extender that says what a test tells it to, and binds by itself."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.down = False
        self.answers = answers
        self.client: Client | None = None

    def of(self, verb: str) -> list[Any]:
        return [body for called, body in self.calls if called == verb]

    async def __call__(self, verb: str, body: bytes) -> bytes:
        if self.down:
            raise ExtenderUnavailable
        question = orjson.loads(body)
        self.calls.append((verb, question))
        answer = await self._answer(verb, question)
        return orjson.dumps(answer)

    async def _answer(self, verb: str, question: Any) -> Any:
        if verb in self.answers:
            given = self.answers[verb](question)
            return await given if asyncio.iscoroutine(given) else given
        if verb == "filter":
            return passing(*question["NodeNames"])
        if verb == "prioritize":
            return []
        return await self.bind(question)

    async def bind(self, question: Any) -> Any:
        assert self.client is not None
        meta = {"name": question["PodName"], "namespace": question["PodNamespace"], "uid": question["PodUID"]}
        body = {"metadata": meta, "target": {"name": question["Node"]}}
        try:
            await self.client.create_subresource(PODS, meta["name"], "binding", body, meta["namespace"])
        except Conflict as error:
            return {"Error": str(error)}
        return {"Error": ""}


def passing(*nodes: str, failed: Mapping[str, str] = {}, unresolvable: Mapping[str, str] = {}) -> Any:
    return {
        "NodeNames": list(nodes) or None,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }


def refusing(why: str) -> Callable[[Any], Any]:
    return lambda question: passing(unresolvable=dict.fromkeys(question["NodeNames"], why))


def model(extender: Recorded) -> Callable[[Client, Clock], KubeScheduler]:
    def make(client: Client, clock: Clock) -> KubeScheduler:
        extender.client = client
        return KubeScheduler(client, clock, "parley", extender)

    return make


async def add_pod(world: Any, name: str = "p", **spec: Any) -> Any:
    return await world.pod(name, schedulerName="parley", **spec)


def condition(pod: Any) -> tuple[str, str]:
    return next((c.reason, c.message) for c in pod.status.conditions if c.type == "PodScheduled")


def test_the_extender_is_asked_about_the_nodes_that_the_scheduler_would_take_and_binds(alone: Any) -> None:
    extender = Recorded(
        filter=lambda q: passing("n1", "n3", unresolvable={"n2": "full"}),
        prioritize=lambda q: [{"Host": "n1", "Score": 1}, {"Host": "n3", "Score": 2}],
    )

    async def story(world: Any) -> None:
        for name in ("n1", "n2", "n3"):
            await world.node(name)
        await world.node("n4", cpu="0")
        await add_pod(world)
        await world.settle()
        pod = await world.the_pod("p")
        assert pod.spec.node_name == "n3"
        assert [verb for verb, _ in extender.calls] == ["filter", "prioritize", "bind"]
        (asked,) = extender.of("filter")
        assert (asked["Nodes"], asked["NodeNames"]) == (None, ["n1", "n2", "n3"])
        assert asked["Pod"]["metadata"]["uid"] == pod.metadata.uid
        assert asked["Pod"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
        assert extender.of("prioritize")[0]["NodeNames"] == ["n1", "n3"]
        assert extender.of("bind") == [
            {"PodName": "p", "PodNamespace": "team", "PodUID": pod.metadata.uid, "Node": "n3"}
        ]

    alone(model(extender), story)


def test_nobody_is_asked_where_no_node_is_left_nor_for_scores_where_one_is(alone: Any) -> None:
    extender = Recorded()

    async def story(world: Any) -> None:
        await world.node("n0", cpu="0")
        await add_pod(world)
        await world.settle()
        assert extender.calls == []
        await world.node("n1")
        await world.settle()
        assert [verb for verb, _ in extender.calls] == ["filter", "bind"]

    alone(model(extender), story)


def test_a_claim_that_does_not_exist_keeps_no_pod_from_the_extender(alone: Any) -> None:
    extender = Recorded()

    async def story(world: Any) -> None:
        await world.node("n1")
        await world.pod("p", ["missing"], schedulerName="parley")
        await world.settle()
        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(model(extender), story)


def test_reasons_are_counted_in_the_pods_condition(alone: Any) -> None:
    extender = Recorded(
        filter=lambda q: passing(failed={"n2": "full", "n1": "full"}, unresolvable={"n1": "too far"})
    )

    async def story(world: Any) -> None:
        for name in ("n1", "n2", "n3"):
            await world.node(name)
        await world.node("n4", cpu="0")
        await add_pod(world)
        await world.settle()
        assert condition(await world.the_pod("p")) == (
            "Unschedulable",
            "0/4 nodes are available: 1 full, 1 node(s) too little cpu left, 1 too far.",
        )

    alone(model(extender), story)


def test_a_rejected_pod_is_tried_again_at_every_event_and_once_more_after_its_own_condition(alone: Any) -> None:
    extender = Recorded(filter=refusing("full"))

    async def story(world: Any) -> None:
        await world.node("n1")
        await add_pod(world)
        await world.settle()
        assert len(extender.of("filter")) == 2
        events: list[Callable[[], Any]] = [
            lambda: world.pod("other", nodeName="n1"),
            lambda: world.pod_status("other", {"phase": "Running"}),
            lambda: world.client.patch(NODES, "n1", {"metadata": {"annotations": {"a": "b"}}}),
            lambda: world.client.patch(PODS, "p", {"metadata": {"annotations": {"a": "b"}}}, "team"),
            lambda: world.client.delete(PODS, "other", "team", grace_period_seconds=0),
        ]
        for already, event in enumerate(events, 2):
            assert len(extender.of("filter")) == already
            await event()
            await world.settle()
        for silent in (
            world.claim("c"),
            world.client.patch(NODES, "n1", {"status": {"images": []}}, subresource="status"),
        ):
            await silent
            await world.settle()
        assert len(extender.of("filter")) == 7

    alone(model(extender), story)


def test_a_message_that_changes_makes_a_hot_loop(alone: Any) -> None:
    """As upstream: the condition is the pod's own update. This is what an extender must not do."""
    turn = iter(range(100))
    extender = Recorded(filter=lambda q: refusing(f"number {next(turn, 100)}")(q))

    async def story(world: Any) -> None:
        await world.node("n1")
        await add_pod(world)
        await asyncio.sleep(0.1)
        assert len(extender.of("filter")) > 100

    alone(model(extender), story)


def test_a_pod_waits_while_the_extender_is_down_and_goes_on_when_it_is_back(alone: Any) -> None:
    extender = Recorded()
    extender.down = True

    async def story(world: Any) -> None:
        await world.node("n1")
        await add_pod(world)
        await world.settle()
        assert condition(await world.the_pod("p")) == (
            "SchedulerError",
            "failed filter with extender at URL http://127.0.0.1:8090, code 503",
        )
        extender.down = False
        await asyncio.sleep(1.5)
        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(model(extender), story)


def test_a_failed_bind_costs_a_second_and_wakes_all_that_wait(alone: Any) -> None:
    failures = iter([True])
    extender = Recorded()
    bind = extender.bind

    async def fail_once(question: Any) -> Any:
        return {"Error": "no"} if next(failures, False) else await bind(question)

    extender.answers = {
        "bind": fail_once,
        "filter": lambda q: refusing("full")(q) if q["Pod"]["metadata"]["name"] == "waits" else passing("n1"),
    }

    async def story(world: Any) -> None:
        await world.node("n1")
        await add_pod(world, "waits")
        await world.settle()
        before = len(extender.of("filter"))
        await add_pod(world)
        await asyncio.sleep(0.9)
        assert condition(await world.the_pod("p")) == ("SchedulerError", "no")
        assert len(extender.of("bind")) == 1
        asked = [q["Pod"]["metadata"]["name"] for q in extender.of("filter")[before:]]
        assert asked == ["p", "waits"]
        await asyncio.sleep(0.2)
        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(model(extender), story)


@pytest.mark.parametrize(("seconds", "binds"), [(59, 1), (61, 2)])
def test_a_bind_that_takes_too_long_is_tried_again_beside_the_first(
    alone: Any, seconds: float, binds: int
) -> None:
    extender = Recorded()
    bind = extender.bind

    async def slowly(question: Any) -> Any:
        if len(extender.of("bind")) == 1:
            await asyncio.sleep(seconds)
        return await bind(question)

    extender.answers = {"bind": slowly}

    async def story(world: Any) -> None:
        await world.node("n1")
        await add_pod(world)
        await asyncio.sleep(50)
        assert len(extender.of("bind")) == 1
        await asyncio.sleep(50)
        assert len(extender.of("bind")) == binds
        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(model(extender), story)


def test_a_pod_that_is_being_bound_counts_for_its_node(alone: Any) -> None:
    extender = Recorded()
    bind = extender.bind

    async def slowly(question: Any) -> Any:
        await asyncio.sleep(20)
        return await bind(question)

    extender.answers = {"bind": slowly}

    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await add_pod(world)
        await asyncio.sleep(1)
        await add_pod(world, "q")
        await asyncio.sleep(1)
        assert [q["Pod"]["metadata"]["name"] for q in extender.of("filter")] == ["p"]

    alone(model(extender), story)


async def there(world: Any, name: str) -> bool:
    try:
        await world.the_pod(name)
    except NotFound:
        return False
    return True


async def crowded(world: Any) -> None:
    """Two nodes, each full of a pod of another priority."""
    for name, priority in (("n1", 5), ("n2", 3)):
        await world.node(name, cpu="1")
        pod = await add_pod(world, f"on-{name}", priority=priority, nodeName=name)
        await world.pod_status(pod.metadata.name, {"phase": "Running"})


async def end_deleted(world: Any) -> None:
    for pod in (await world.client.list(PODS)).items:
        if pod.metadata.deletion_timestamp:
            await world.client.delete(PODS, pod.metadata.name, "team", grace_period_seconds=0)


def test_the_least_important_pods_go_for_a_more_important_one(alone: Any) -> None:
    extender = Recorded(preempt=lambda q: {"NodeNameToMetaVictims": q["NodeNameToMetaVictims"]})

    async def story(world: Any) -> None:
        await crowded(world)
        uids = {name: (await world.the_pod(name)).metadata.uid for name in ("on-n1", "on-n2")}
        await add_pod(world, "important", priority=10)
        await asyncio.sleep(1)
        (asked,) = extender.of("preempt")
        assert asked["NodeNameToVictims"] is None
        assert asked["NodeNameToMetaVictims"] == {
            node: {"Pods": [{"UID": uids[f"on-{node}"]}], "NumPDBViolations": 0} for node in ("n1", "n2")
        }
        assert (await world.the_pod("important")).status.nominated_node_name == "n2"
        await end_deleted(world)
        await world.settle()
        assert (await world.the_pod("important")).spec.node_name == "n2"
        assert await there(world, "on-n1")
        assert extender.of("filter")[-1]["NodeNames"] == ["n2"]

    alone(model(extender), story)


def test_an_extender_that_strikes_all_nodes_off_keeps_every_victim(alone: Any) -> None:
    extender = Recorded(preempt=lambda q: {"NodeNameToMetaVictims": {}})

    async def story(world: Any) -> None:
        await crowded(world)
        await add_pod(world, "important", priority=10)
        await world.settle()
        assert len(extender.of("preempt")) >= 1
        pod = await world.the_pod("important")
        assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "")
        deleted = [p for p in (await world.client.list(PODS)).items if p.metadata.deletion_timestamp]
        assert not deleted

    alone(model(extender), story)


def test_nobody_goes_where_that_would_not_help(alone: Any) -> None:
    """Not where the extender refused the node, where the pod fits beside the others, nor where it never fits."""
    extender = Recorded(filter=refusing("full"), preempt=lambda q: pytest.fail("asked"))

    async def story(world: Any) -> None:
        await world.node("n1", cpu="4")
        await world.node("n2", cpu="0")
        await add_pod(world, "weak", nodeName="n1")
        await add_pod(world, "important", priority=10)
        await world.settle()
        assert extender.of("preempt") == []

    alone(model(extender), story)
