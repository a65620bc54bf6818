"""Questions, selections, clearings, deletions and restarts in any order and at any moment.

At the end the driver holds exactly what the claims record, no claim was ever on two nodes, and when everything is
deleted nothing is left.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.faults import NumberedCall
from tests.unit.sdk.standalone.world import Array, ArrayDriver, LaggingClient, ShelfDriver, World

from parley.api.resources import POD_SCHEDULINGS
from parley.kube.client import ApiError, NotFound, OutcomeUnknown
from parley.sdk import Driver

NODES = ("a", "b", "c")
CLAIMS = ("one", "two", "shared")
PODS = {"p": ("one", "shared"), "q": ("two", "shared"), "r": ("shared",)}

number = st.integers(0, 40)
pod = st.sampled_from(sorted(PODS))
claim = st.sampled_from(CLAIMS)
steps = st.one_of(
    st.tuples(st.just("ask"), pod, number),
    st.tuples(st.just("select"), pod, number),
    st.tuples(st.just("select"), pod, number),
    st.tuples(st.just("clear"), pod, number),
    st.tuples(st.just("end"), pod, number),
    st.tuples(st.just("take_back"), claim, number),
    st.tuples(st.just("delete"), claim, number),
    st.tuples(st.just("create"), claim, number),
    st.tuples(st.just("immediate"), claim, number),
    st.tuples(st.just("fail"), st.just(""), number),
    st.tuples(st.just("lose"), st.just(""), number),
    st.tuples(st.just("kill"), st.just(""), number),
    st.tuples(st.just("pass"), st.just(""), number),
    st.tuples(st.just("pass"), st.just(""), number),
)
Step = tuple[str, str, int]


@dataclass
class Life:
    """Plays steps; a step that has nothing to work on does nothing."""

    world: World
    array: Array
    make: Callable[[], Driver[Any, Any]]
    lag: float
    driver: Driver[Any, Any] = field(init=False)
    task: asyncio.Task[None] = field(init=False)
    rounds: int = 0
    lose: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.driver = self.make()
        client = LaggingClient(self.world.server.client(), before=self._before, after=self._after)
        client.lag = self.lag
        self.task = self.world.start(self.driver, client)

    def _before(self, call: NumberedCall) -> None:
        if call.write and self.lose and not self.lose[-1]:
            self.lose.pop()
            raise OutcomeUnknown("nothing was sent")

    def _after(self, call: NumberedCall) -> None:
        if call.write and self.lose and self.lose[-1]:
            self.lose.pop()
            raise OutcomeUnknown("no answer")

    def held(self) -> dict[str, str]:
        there = self.driver.held if isinstance(self.driver, ShelfDriver) else self.array.volumes
        return {uid: node for uid, (node, _) in there.items()}

    async def play(self, step: Step) -> None:
        action, what, how = step
        try:
            await getattr(self, f"_{action}")(what, how)
        except ApiError:
            pass  # there is nothing to do it to

    async def _ask(self, pod: str, how: int) -> None:
        self.rounds += 1
        await self.world.ask(pod, *PODS[pod][: 1 + how % 2], nodes=NODES[: 1 + how % 3], round=self.rounds)

    async def _select(self, pod: str, how: int) -> None:
        await self.world.select(pod, NODES[how % 3])

    async def _clear(self, pod: str, _: int) -> None:
        await self.world.select(pod, "")

    async def _end(self, pod: str, _: int) -> None:
        await self.world.end(pod)

    async def _take_back(self, claim: str, _: int) -> None:
        await self.world.take_back(claim)

    async def _delete(self, claim: str, _: int) -> None:
        await self.world.delete(claim)

    async def _create(self, claim: str, how: int) -> None:
        await self.world.add_claim(claim, size=1 + how % 2)

    async def _immediate(self, claim: str, _: int) -> None:
        await self.world.add_claim(claim, mode="Immediate")

    async def _fail(self, _: str, how: int) -> None:
        node = NODES[how % 3]
        if self.array.broken.pop(node, None) is None:
            self.array.broken[node] = RuntimeError("read-only")

    async def _lose(self, _: str, how: int) -> None:
        self.lose.append(how % 2 == 0)

    async def _kill(self, _: str, how: int) -> None:
        await self.world.kill(self.task)
        await asyncio.sleep(how % 5)
        self.start()

    async def _pass(self, _: str, how: int) -> None:
        await asyncio.sleep(how / 4)


async def finish(life: Life) -> None:
    world = life.world
    life.lose.clear()
    life.array.broken.clear()
    await world.settle(200)
    recorded = await world.recorded()
    assert life.held() == recorded
    assert life.array.faults == []
    await everything_selected_is_allocated(life)
    for scheduling in (await world.client.list(POD_SCHEDULINGS)).items:
        await world.end(scheduling.metadata.name)
    for claim in CLAIMS:
        try:
            await world.delete(claim)
        except NotFound:
            pass  # never made, or gone
    await world.settle(200)
    assert [claim for claim in CLAIMS if await world.exists(claim)] == []
    assert life.held() == {}


async def everything_selected_is_allocated(life: Life) -> None:
    """Whose node is selected has its claims, or an entry says why not, if all of them are there."""
    for scheduling in (await life.world.client.list(POD_SCHEDULINGS)).items:
        names = [claim.resource_claim_name for claim in scheduling.spec.claims]
        if not scheduling.spec.selected_node or not all([await life.world.exists(name) for name in names]):
            continue
        reported = any(entry.failure is not None for entry in scheduling.status.claims)
        assert reported or all([await life.world.node_of(name) for name in names])


async def live(world: World, slow: bool, lag: float, history: list[Step]) -> None:
    array = Array(dict.fromkeys(NODES, 2), seconds=6)
    for node in NODES:
        await world.add_node(node, 2)
    await world.add_class()
    for claim in CLAIMS:
        await world.add_claim(claim)
    life = Life(world, array, lambda: ArrayDriver(array) if slow else ShelfDriver(), lag)
    for step in history:
        await life.play(step)
    await finish(life)


@given(st.booleans(), st.sampled_from([0.0, 3.0]), st.lists(steps, max_size=25))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_lives(play: Callable[[Any], None], slow: bool, lag: float, history: list[Step]) -> None:
    play(lambda world: live(world, slow, lag, history))
