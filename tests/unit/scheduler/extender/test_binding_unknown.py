"""Bindings of unknown outcome: they are read back or voided before anything is given to others."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.extender.bindings import KilledError, begin, writes_of
from tests.unit.scheduler.shelf import ShelfDriver

from parley.control.objects.pod import reference
from parley.kube.client import Call, Client, OutcomeUnknown, TooManyRequests
from parley.scheduler.extender.posting import Posting

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


class LostBindings(Client):
    """The first `times` bindings get no answer: they never happen, happened, or happen `late` seconds later."""

    def __init__(self, client: Any, way: str, times: int = 1, late: float = 3.0) -> None:
        super().__init__(client)
        self._way = way
        self._left = times
        self._late = late
        self._tasks: list[asyncio.Task[Any]] = []

    async def request(self, call: Call) -> bytes:
        if call.subresource != "binding" or not self._left:
            return await super().request(call)
        self._left -= 1
        if self._way == "happened":
            await super().request(call)
        elif self._way == "late":
            self._tasks.append(asyncio.create_task(self._later(call)))
        raise OutcomeUnknown(f"{call}: connection lost")

    async def _later(self, call: Call) -> None:
        await asyncio.sleep(self._late)
        try:
            await super().request(call)
        except Exception:
            pass  # nobody hears the answer


@pytest.mark.parametrize("way", ["never", "happened", "late"])
@pytest.mark.parametrize("times", [1, 7])
def test_a_binding_of_unknown_outcome_is_read_back_before_anything_is_given_to_others(
    play: Any, watcher: Any, way: str, times: int
) -> None:
    async def scenario(world: World) -> None:
        watching = watcher(world)
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(LostBindings(world.server.client(), way, times))
        for name in ("p", "q"):
            await world.add_pod(name, "one")
        await world.settle()
        bound = [name for name in ("p", "q") if await world.node_of(name)]
        assert len(bound) == 1
        assert await world.devices() == {("a", "gpu-0"): 1}
        assert (await world.pod(bound[0])).status.phase == "Running"
        await world.delete_pod(bound[0])
        await world.settle()
        (other,) = {"p", "q"} - set(bound)
        assert (await world.pod(other)).status.phase == "Running"
        watching.stop()
        assert watching.faults == []

    play(scenario)


class RefusedAfterwards(LostBindings):
    """After its first binding, which lands late, the API server refuses the next one, and takes its time."""

    async def request(self, call: Call) -> bytes:
        if call.subresource == "binding" and not self._left:
            await asyncio.sleep(2 * self._late)
            raise TooManyRequests(429, "TooManyRequests", "busy", 1)
        return await super().request(call)


def test_a_binding_that_lands_and_is_seen_while_the_next_one_is_refused_is_respected(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(RefusedAfterwards(world.server.client(), "late", late=1.0))
        await world.add_pod("p", "one")
        await world.settle()
        assert (await world.pod("p")).status.phase == "Running"
        (mirror,) = await world.mirrors()
        assert [user.name for user in mirror.status.reserved_for] == ["p"]
        assert await world.devices() == {("a", "gpu-0"): 1}

    play(scenario)


def test_a_binding_that_lands_while_the_controller_is_being_replaced_is_respected(play: Any, watcher: Any) -> None:
    async def scenario(world: World) -> None:
        watching = watcher(world)
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        world.start_parley(LostBindings(world.server.client(), "late", late=2.0))
        await world.add_pod("p", "one")
        await asyncio.sleep(0.5)
        await world.crash()
        world.start_parley()
        await world.add_pod("q", "one")
        await world.settle()
        assert sorted([await world.node_of("p"), await world.node_of("q")]) == ["", "a"]
        assert await world.devices() == {("a", "gpu-0"): 1}
        watching.stop()
        assert watching.faults == []

    play(scenario)


class SilentBindings(Client):
    """Bindings happen, and are never answered."""

    async def request(self, call: Call) -> bytes:
        answer = await super().request(call)
        if call.subresource == "binding":
            await asyncio.Event().wait()
        return answer


def test_a_binding_that_was_not_waited_for_may_have_happened(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await world.add_pod("p", schedulerName="parley-away")
        client = FaultClient(SilentBindings(world.server.client()))
        posting = Posting(client, world.clock)
        binding = asyncio.create_task(posting.bind(await world.pod("p"), "a", exactly=True))
        await asyncio.sleep(1)
        binding.cancel()
        await asyncio.gather(binding, return_exceptions=True)
        client.calls.clear()
        await posting.void_bindings(reference(await world.pod("p")))
        assert writes_of(client) == ["patch pods"]

    play(scenario)


def test_what_an_earlier_process_may_have_posted_is_voided_once(play: Any) -> None:
    """Each change of the pod makes its scheduler ask again: what is tried again and again must not be one."""

    async def scenario(world: World) -> None:
        client = FaultClient(world.server.client())
        posting = Posting(client, world.clock)
        await world.add_pod("p", schedulerName="parley-away")
        pod = reference(await world.pod("p"))
        for _ in range(3):
            await posting.void_bindings(pod, doubtful=True)
        assert client.writes == 1

    play(scenario)


def test_a_controller_that_starts_anew_between_allocation_and_binding_goes_on(play: Any) -> None:
    async def scenario(world: World) -> None:
        def die(call: Call) -> None:
            if call.subresource == "binding":
                raise KilledError

        shelf = await begin(world, nodes=1, client=FaultClient(world.server.client(), before=die))
        await asyncio.sleep(2)
        await world.add_pod("p", "shelf")
        await asyncio.sleep(0.2)
        assert shelf.calls["allocate"] == 1
        assert await world.node_of("p") == ""
        await world.crash()
        world.start_parley(drivers=[ShelfDriver(shelf)])
        await world.settle()
        assert await world.node_of("p") == "n0"
        (mirror,) = await world.mirrors()
        assert [user.name for user in mirror.status.reserved_for] == ["p"]

    play(scenario)
