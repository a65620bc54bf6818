"""What a standalone driver says when it is asked, and when it says it again."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.faults import FaultClient
from tests.unit.sdk.standalone.world import DRIVER, NAMESPACE, Array, ArrayDriver, ShelfDriver, World

from parley.api.resources import CLASSES, POD_SCHEDULINGS
from parley.kube.client import NotFound
from parley.sdk import Answer

Play = Callable[[Callable[[World], Any]], None]


def test_both_claims_of_a_pod_are_evaluated_together_and_answered_in_one_write(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node, disks in (("a", 1), ("b", 2), ("c", 0)):
            await world.add_node(node, disks)
        await world.add_class()
        await world.add_claim("one")
        await world.add_claim("two")
        client = FaultClient(world.server.client())
        world.start(ShelfDriver(), client)
        await world.ask("pod", "one", "two", nodes=["a", "b", "c"])
        await world.settle()

        for entry in (await world.answers("pod")).values():
            assert (entry.driver_name, entry.round, entry.viable_nodes) == (DRIVER, 1, ("b",))
            assert entry.reason == "a: 1 disks free; c: 0 disks free"
            assert entry.alternatives is None
        assert client.writes == 1

    play(scenario)


def test_where_no_candidate_will_do_the_one_viable_node_of_many_is_found(play: Play) -> None:
    async def scenario(world: World) -> None:
        for number in range(1000):
            await world.add_node(f"n{number}", 1 if number == 777 else 0)
        await world.add_class()
        await world.add_claim("disk")
        world.start(ShelfDriver())
        await world.ask("pod", "disk", nodes=["n1", "n2"])
        await world.settle()

        entry = await world.answer("pod")
        assert entry.viable_nodes == ()
        assert entry.alternatives is not None
        assert entry.alternatives.nodes == ("n777",)

    play(scenario)


def test_alternatives_are_suitable_and_at_most_32_and_differ_from_pod_to_pod(play: Play) -> None:
    async def scenario(world: World) -> None:
        for number in range(200):
            await world.add_node(f"n{number}", 1)
        await world.add_node("empty", 0)
        named = {"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["n3", "n4"]}]}
        await world.add_class(suitableNodes={"nodeSelectorTerms": [named]})
        world.start(ShelfDriver())
        proposed = []
        for pod in ("p", "q"):
            await world.add_claim(pod)
            await world.ask(pod, pod, nodes=["empty"])
            await world.settle()
            alternatives = (await world.answer(pod)).alternatives
            assert alternatives is not None
            proposed.append(alternatives.nodes)

        assert [len(nodes) for nodes in proposed] == [32, 32]
        assert not {"n3", "n4", "empty"} & {*proposed[0], *proposed[1]}
        assert set(proposed[0]) != set(proposed[1])

    play(scenario)


def test_that_no_node_will_do_is_an_answer(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("huge", size=9)
        world.start(ShelfDriver())
        await world.ask("pod", "huge", nodes=["a"])
        await world.settle()

        entry = await world.answer("pod")
        assert (entry.round, entry.viable_nodes) == (1, ())
        assert entry.alternatives is not None
        assert (entry.alternatives.nodes, entry.alternatives.node_selector) == ((), None)

    play(scenario)


def test_parameters_that_cannot_be_understood_are_an_answer_that_names_the_fault(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("odd", size="large")
        await world.add_claim("fine")
        world.start(ShelfDriver())
        await world.ask("pod", "odd", "fine", nodes=["a"])
        await world.settle()

        for entry in (await world.answers("pod")).values():
            assert entry.viable_nodes == ()
            assert entry.alternatives is not None
            assert entry.alternatives.nodes == ()
            assert entry.reason.startswith("parameters of claim default/odd: size='large'")

    play(scenario)


def test_an_answer_is_given_when_claim_and_class_are_there_at_last(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        world.start(ShelfDriver())
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()
        assert await world.answers("pod") == {}
        await world.add_claim("disk")
        await world.settle()
        assert await world.answers("pod") == {}
        await world.add_class()
        await world.settle()

        assert (await world.answer("pod")).viable_nodes == ("a",)

    play(scenario)


def test_a_new_round_is_answered_anew(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 0)
        await world.add_node("b", 1)
        await world.add_class()
        await world.add_claim("disk")
        world.start(ShelfDriver())
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()
        await world.ask("pod", "disk", nodes=["b"], round=2)
        await world.settle()

        entry = await world.answer("pod")
        assert (entry.round, entry.viable_nodes, entry.alternatives) == (2, ("b",), None)

    play(scenario)


def test_what_is_there_already_is_not_written_again_after_a_restart(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.ask("pod", "disk", nodes=["a"])
        await world.kill_after_settling(ShelfDriver())
        client = FaultClient(world.server.client())
        world.start(ShelfDriver(), client)
        await world.settle()

        assert client.writes == 0

    play(scenario)


def test_others_entries_stay_and_others_questions_are_not_answered(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("disk")
        world.start(ShelfDriver())
        await world.ask("pod", "disk", nodes=["a"])
        theirs = {"name": "gpu", "driverName": "gpus.example.com", "round": 1, "viableNodes": ["a"]}
        asked = {"name": "gpu", "driverName": "gpus.example.com", "resourceClaimName": "gpu"}
        ours = (await world.scheduling("pod")).spec.claims[0].wire()
        body = {"spec": {"claims": [ours, asked]}, "status": {"claims": [theirs]}}
        await world.client.patch(POD_SCHEDULINGS, "pod", body, NAMESPACE)
        await world.settle()

        answers = await world.answers("pod")
        assert sorted(answers) == ["disk", "gpu"]
        assert answers["gpu"].wire() == theirs

    play(scenario)


def test_an_answer_never_makes_a_podscheduling_anew(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("disk")
        await world.ask("pod", "disk", nodes=["a"])

        def vanish(call: Any) -> None:
            if call.write == 1:
                world.server.delete(POD_SCHEDULINGS, "pod", NAMESPACE, "", "", None)

        client = FaultClient(world.server.client(), before=vanish)
        world.start(ShelfDriver(), client)
        await world.settle()

        assert client.writes == 1
        try:
            await world.scheduling("pod")
        except NotFound:
            return
        raise AssertionError("the answer made the PodScheduling anew")

    play(scenario)


class Fickle(ShelfDriver):
    """Calls nodes viable that it was not asked about, at first."""

    def viable(self, request: Any, nodes: Any) -> Any:
        answers = super().viable(request, nodes)
        return answers if len(self.evaluated) > 3 else {name: Answer(("elsewhere",)) for name in answers}


def test_a_driver_at_fault_is_asked_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("disk")
        world.start(Fickle())
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()

        assert (await world.answer("pod")).viable_nodes == ("a",)

    play(scenario)


class Choosy(ShelfDriver):
    """Prefers nodes with more disks."""

    def score(self, request: Any, nodes: Any) -> Any:
        return {node: self.free(node) / 4 for node in nodes}


def test_preferences_are_given_from_0_to_100(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node, disks in (("a", 1), ("b", 4), ("c", 0)):
            await world.add_node(node, disks)
        await world.add_class()
        await world.add_claim("disk")
        world.start(Choosy())
        await world.ask("pod", "disk", nodes=["a", "b", "c"])
        await world.settle()

        assert (await world.answer("pod")).scores == {"a": 25, "b": 100}

    play(scenario)


def test_a_replaced_question_ends_what_a_slow_driver_thinks_about_the_old_one(play: Play, array: Array) -> None:
    class Slow(ArrayDriver):
        async def consider(self, request: Any, nodes: Any) -> Any:
            await asyncio.sleep(25)
            return await super().consider(request, nodes)

    async def scenario(world: World) -> None:
        await world.add_class()
        await world.add_claim("disk")
        world.start(Slow(array))
        await world.ask("pod", "disk", nodes=["a"])
        await asyncio.sleep(10)
        await world.ask("pod", "disk", nodes=["b"], round=2)
        await world.settle()

        assert (await world.answer("pod")).viable_nodes == ("b",)
        assert array.calls["consider"] == 1

    play(scenario)


def test_a_slow_driver_keeps_no_other_pod_waiting(play: Play, array: Array) -> None:
    async def scenario(world: World) -> None:
        await world.add_class()
        world.start(ArrayDriver(array))
        for number in range(100):
            await world.add_claim(f"disk-{number}")
            await world.ask(f"pod-{number}", f"disk-{number}", nodes=["a"])
        await asyncio.sleep(3)

        for number in range(100):
            assert (await world.answer(f"pod-{number}")).viable_nodes == ("a",)

    play(scenario)


def test_a_claim_that_is_allocated_already_can_be_used_where_it_is(play: Play) -> None:
    async def scenario(world: World) -> None:
        for node in ("a", "b"):
            await world.add_node(node, 2)
        await world.add_class(shareable=True)
        await world.add_claim("shared")
        await world.add_claim("own")
        world.start(ShelfDriver())
        await world.ask("first", "shared", selected="a")
        await world.settle()
        await world.ask("second", "shared", "own", nodes=["a", "b"])
        await world.settle()

        answers = await world.answers("second")
        assert answers["shared"].viable_nodes == ("a",)
        assert answers["shared"].reason == "b: the claim is allocated elsewhere"
        assert answers["own"].viable_nodes == ("a", "b")

    play(scenario)


def test_changed_parameters_of_a_class_reach_the_pod_that_waits_for_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class(parameters={"sise": 1})
        await world.add_claim("disk")
        world.start(ShelfDriver())
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()
        assert "class disk: sise=1 is not a parameter" in (await world.answer("pod")).reason
        await world.client.patch(CLASSES, "disk", {"parameters": None})
        await world.settle()

        assert (await world.answer("pod")).viable_nodes == ("a",)

    play(scenario)
