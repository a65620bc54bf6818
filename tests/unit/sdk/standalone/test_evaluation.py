"""Which nodes a driver is asked about, and what its answers come to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.unit.sdk.standalone.world import DRIVER, NAMESPACE, Array, ArrayDriver, ShelfDriver, World, informed

from parley.api.builtin import (
    DeviceAttribute,
    DeviceCapacity,
    NodeSelector,
    ObjectMeta,
    Pool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceDevice,
)
from parley.api.resources import CLAIMS
from parley.drivers.device import DeviceDriver
from parley.negotiation.answers import Answer, Answers
from parley.sdk import Driver, Request
from parley.sdk.checks import DriverFault
from parley.sdk.embedded import EmbeddedDriver
from parley.sdk.standalone.evaluation import (
    CAPACITY_PODS,
    CAPACITY_SECONDS,
    Evaluator,
    chunks,
    in_own_order,
    outlook,
)
from parley.sdk.standalone.questions import PodQuestion, question
from parley.sdk.standalone.waiting import Outlook
from parley.simulate.virtual_time import VirtualTimeLoop, run


class Shelf(ShelfDriver):
    """Notes which nodes it was asked about."""

    node_local = True

    def __init__(self, **stock: int) -> None:
        super().__init__()
        self.stock = stock
        self.asked: list[Sequence[str]] = []

    def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
        self.asked.append(tuple(nodes))
        return super().viable(request, nodes)


def evaluated(
    driver: Driver[Any, Any],
    scenario: Callable[[World, Evaluator, PodQuestion], Awaitable[None]],
    nodes: Sequence[str] = ("a", "b", "c", "d"),
    claims: Sequence[str] = ("disk",),
    **class_: Any,
) -> None:
    """Plays it with a question about nodes a and b. Claim `held` is allocated on node a, `disk` is pending."""

    async def main() -> None:
        world = World()
        for node in nodes:
            await world.add_node(node)
        await world.add_class(**class_)
        for name in ("disk", "held"):
            await world.add_claim(name)
        on_a = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
        held = {"driverName": DRIVER, "allocation": {"availableOnNodes": {"nodeSelectorTerms": [on_a]}}}
        await world.client.patch(CLAIMS, "held", {"status": held}, NAMESPACE, subresource="status")
        await world.ask("pod", *claims, nodes=["a", "b"])
        async with informed(world.server.client()) as informers:
            (scheduling,) = informers.schedulings()
            found = question(informers, scheduling)
            assert found is not None
            await scenario(world, Evaluator(EmbeddedDriver(driver), informers, holds=lambda _uid: False), found)

    run(main())


def test_where_a_candidate_is_viable_no_other_node_is_asked_about() -> None:
    driver = Shelf(b=1, c=1)

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        answers = await evaluator.answers(asked)
        assert answers == {"disk": Answer(("b",), None, {"a": "0 disks free"})}
        assert driver.asked == [("a", "b")]

    evaluated(driver, scenario)


def test_a_claim_that_is_allocated_is_viable_where_it_is_and_the_driver_is_not_asked() -> None:
    driver = Shelf(b=1)

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        answers = await evaluator.answers(asked)
        assert answers == {"held": Answer(("a",), None, {"b": "the claim is allocated elsewhere"})}
        assert driver.asked == []

    evaluated(driver, scenario, claims=("held",))


def test_where_none_is_the_others_are_asked_about_and_proposed() -> None:
    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        answers = await evaluator.answers(asked)
        assert answers["disk"].viable == ()
        assert answers["disk"].alternatives == ("d",)

    evaluated(Shelf(d=1), scenario)


def test_nodes_that_the_class_leaves_out_are_not_proposed() -> None:
    driver = Shelf(d=1)

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        assert (await evaluator.answers(asked))["disk"].alternatives == ()
        assert driver.asked == [("a", "b"), ("c",)]

    named = {"matchExpressions": [{"key": "name", "operator": "NotIn", "values": ["d"]}]}
    evaluated(driver, scenario, suitableNodes={"nodeSelectorTerms": [named]})


def test_at_most_32_nodes_are_proposed() -> None:
    nodes = ["a", "b", *(f"n{number}" for number in range(50))]

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        alternatives = (await evaluator.answers(asked))["disk"].alternatives
        assert isinstance(alternatives, tuple)
        assert len(set(alternatives)) == 32

    evaluated(Shelf(**dict.fromkeys(nodes[2:], 1)), scenario, nodes)


def devices_of(node: str, *mebibytes: int) -> ResourceSlice:
    devices = [
        SliceDevice(
            name=f"gpu-{number}",
            attributes={"model": DeviceAttribute(string="xyz"[number % 3])},
            capacity={"memory": DeviceCapacity(value=f"{size}Mi")},
        )
        for number, size in enumerate(mebibytes)
    ]
    spec = ResourceSliceSpec(driver=DRIVER, node_name=node, pool=Pool(name=node), devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name=node), spec=spec)


def test_a_node_is_found_among_many_that_take_long_to_search() -> None:
    """Twelve claims and twenty-five devices, nearly all different, take about 600 steps for each node."""

    class Devices(DeviceDriver):
        name = DRIVER

    async def main() -> None:
        world, driver, claims = World(), Devices(), [f"c{number}" for number in range(12)]
        for number in range(300):
            await world.add_node(f"n{number}")
        await world.add_class()
        await world.add_claim("c0", memory="800Gi")
        for number, claim in enumerate(claims[1:], 1):
            model = {"model": "xyz"[number % 3]} if number % 2 else {}
            await world.add_claim(claim, memory=f"{1 + number % 8}Gi", **model)
        await world.ask("pod", *claims, nodes=["n0"])
        async with informed(world.server.client()) as informers:
            (scheduling,) = informers.schedulings()
            asked = question(informers, scheduling)
            assert asked is not None
            nodes = in_own_order(asked, informers)
            large = nodes[250]
            for number, node in enumerate(nodes):
                sizes = [100 + number, *(1024 * (1 + 7 * i % 16) for i in range(24))]
                driver.observe(None, devices_of(node, *sizes, *([800 * 1024] * (node == large))))
            evaluator = Evaluator(EmbeddedDriver(driver), informers, holds=lambda _uid: False)
            assert (await evaluator.answers(asked))["c0"].alternatives == (large,)

    run(main())


def test_what_the_driver_proposes_itself_is_kept() -> None:
    class Proposing(Shelf):
        def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
            return {name: Answer((), ("c",)) for name in super().viable(request, nodes)}

    driver = Proposing(d=1)

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        assert (await evaluator.answers(asked))["disk"].alternatives == ("c",)
        assert len(driver.asked) == 1

    evaluated(driver, scenario)


def test_an_asynchronous_driver_that_takes_too_long_is_at_fault(array: Array) -> None:
    class Slow(ArrayDriver):
        async def consider(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
            await asyncio.sleep(31)
            return {}

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        with pytest.raises(DriverFault, match=f"driver {DRIVER} did not answer within 30 s"):
            await evaluator.answers(asked)

    evaluated(Slow(array), scenario)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(("b",), ()), Outlook.VIABLE),
        (Answer((), ()), Outlook.NOWHERE),
        (Answer((), None), Outlook.ELSEWHERE),
        (Answer((), ("d",)), Outlook.ELSEWHERE),
        (Answer((), NodeSelector()), Outlook.ELSEWHERE),
    ],
    ids=["viable", "nowhere", "unknown", "elsewhere", "selected"],
)
def test_what_an_answer_comes_to(answer: Answer, expected: Outlook) -> None:
    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        answers: Answers = {"disk": answer}
        assert outlook(asked, answers) is expected

    evaluated(Shelf(), scenario)


def test_no_question_has_more_nodes_than_the_api_allows() -> None:
    nodes = [f"n{number}" for number in range(300)]
    assert [len(chunk) for chunk in chunks(nodes)] == [128, 128, 44]
    assert [node for chunk in chunks(nodes) for node in chunk] == nodes


def test_it_is_counted_for_how_many_pods_with_the_same_claims_there_is_enough() -> None:
    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        answers = await evaluator.answers(asked)
        assert evaluator.capacity(asked, answers, {}) == {"a": 4, "b": 1}

    evaluated(Shelf(a=7, b=1, c=3), scenario)


def test_no_more_pods_are_counted_than_a_burst_brings_in_a_moment() -> None:
    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        assert evaluator.capacity(asked, await evaluator.answers(asked), {}) == {"a": CAPACITY_PODS}

    evaluated(Shelf(a=1000), scenario)


@pytest.mark.parametrize(("prefer", "capacity"), [("Pack", {"a": 4, "b": 2}), ("Spread", {"a": 1, "b": 1})])
def test_pods_that_are_to_be_spread_are_counted_one_a_node(prefer: str, capacity: Mapping[str, int]) -> None:
    class Shown(Shelf):
        def room_left(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
            return {node: self.free(node) for node in nodes}

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        answers = await evaluator.answers(asked)
        assert evaluator.capacity(asked, answers, evaluator.scores(asked, answers)) == capacity

    evaluated(Shown(a=4, b=2), scenario, prefer=prefer)


def test_pods_that_are_to_be_spread_over_nodes_that_share_something_are_no_more_than_it_is_enough_for() -> None:
    class Shared(Shelf):
        node_local = False

        def room_left(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, float]:
            return {node: self.free(node) for node in nodes}

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        assert evaluator.capacity(asked, await evaluator.answers(asked), {"b": 1.0}) == {"b": 1}

    evaluated(Shared(a=9, b=1), scenario, prefer="Spread")


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [(9, 9, {"a": 4, "b": 4}), (9, 1, {"a": 4, "b": 1}), (3, 9, {"a": 1, "b": 1}), (1, 9, {"a": 1})],
)
def test_nodes_that_may_share_something_have_no_more_together_than_the_best(
    a: int, b: int, found: Mapping[str, int]
) -> None:
    class Shared(Shelf):
        node_local = False

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        assert evaluator.capacity(asked, await evaluator.answers(asked), {"a": 1.0}) == found

    evaluated(Shared(a=a, b=b), scenario)


def test_nothing_is_counted_for_a_pod_that_has_a_claim_already_nor_where_nothing_is_viable() -> None:
    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        assert evaluator.capacity(asked, await evaluator.answers(asked), {}) == {}

    evaluated(Shelf(a=4), scenario, claims=("disk", "held"))
    evaluated(Shelf(c=4), scenario)


def test_counting_ends_where_the_driver_takes_long() -> None:
    class Slow(Shelf):
        def viable(self, request: Request[Any, Any], nodes: Sequence[str]) -> Mapping[str, Answer]:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.advance(CAPACITY_SECONDS)
            return super().viable(request, nodes)

    async def scenario(world: World, evaluator: Evaluator, asked: PodQuestion) -> None:
        assert evaluator.capacity(asked, await evaluator.answers(asked), {}) == {"a": 2, "b": 1}

    evaluated(Slow(a=50, b=50), scenario)
