"""When objects that hold parameters are read, how often, and who waits for whom."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.faults import FaultClient, NumberedCall

from parley.api import reasons
from parley.api.resources import CONFIG_MAPS, Resource
from parley.kube.client import Call, Client, NotFound, OutcomeUnknown, ServerError
from parley.kube.memory import MemoryServer
from parley.negotiation.waiting import Topic
from parley.sdk.reference_reader import KEEP_SECONDS, MAX_AGE_SECONDS, MAX_OBJECTS, ReferenceReader
from parley.sdk.referenced import ParametersObject, ParametersUnavailable, room_topic
from parley.simulate.virtual_time import run

SIZES = Resource("disks.example.com", "v1", "sizes", "Size", True, dict[str, Any])


def config(name: str = "size", namespace: str = "team", payer: str | None = None) -> ParametersObject:
    return ParametersObject(CONFIG_MAPS, namespace, name, namespace if payer is None else payer)


class World:
    """A reader over an API server, with what it read and woke."""

    def __init__(self) -> None:
        self.admin = MemoryServer().client()
        self.client = FaultClient(self.admin, before=self._look)
        self.reads: list[tuple[float, str]] = []
        self.woken: list[Topic] = []
        self.broken: Exception | None = None
        self.reader = ReferenceReader(self.client)
        self.reader.subscribe(self.woken.append)

    def _look(self, call: NumberedCall) -> None:
        self.reads.append((self.now, f"{call.namespace}/{call.name}"))
        if self.broken is not None:
            raise self.broken

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def put(self, text: str, wanted: ParametersObject) -> None:
        body = {"metadata": {"name": wanted.name}, "data": {"parameters": text}}
        await self.admin.apply(CONFIG_MAPS, wanted.name, body, wanted.namespace, field_manager="test")

    def ask(self, wanted: ParametersObject, since: float = 0.0) -> Any:
        """The content, or the code that stands for it."""
        try:
            return self.reader.get(wanted, since)
        except ParametersUnavailable as error:
            return "transient" if error.transient else error.code


def played(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        running = asyncio.create_task(world.reader.run())
        try:
            await scenario(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_nothing_is_read_before_somebody_asks_and_then_once() -> None:
    async def scenario(world: World) -> None:
        await world.put("count: 2", config())
        await asyncio.sleep(100)
        assert world.reads == []
        assert world.ask(config()) == "transient"
        await asyncio.sleep(1)
        assert world.woken == [config().topic]
        assert [world.ask(config(), world.now - 2) for _ in range(100)] == [{"count": 2}] * 100
        await asyncio.sleep(MAX_AGE_SECONDS - 2)
        assert world.ask(config()) == {"count": 2}
        assert len(world.reads) == 1

    played(scenario)


def test_who_asks_later_gets_what_is_there_then() -> None:
    async def scenario(world: World) -> None:
        await world.put("count: 2", config())
        world.ask(config(), world.now)
        await asyncio.sleep(1)
        await world.put("count: 3", config())
        later = world.now
        assert world.ask(config(), later) == "transient"
        await asyncio.sleep(1)
        assert world.ask(config(), later) == {"count": 3}
        assert len(world.reads) == 2

    played(scenario)


def test_a_thousand_who_ask_at_once_share_a_read() -> None:
    async def scenario(world: World) -> None:
        await world.put("count: 2", config())
        for _ in range(10):
            for _ in range(100):
                world.ask(config(), world.now)
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert world.ask(config(), world.now - 1) == {"count": 2}
        assert len(world.reads) <= 2

    played(scenario)


def test_what_is_old_is_read_again_before_it_is_used() -> None:
    async def scenario(world: World) -> None:
        await world.put("count: 2", config())
        world.ask(config())
        await asyncio.sleep(MAX_AGE_SECONDS + 1)
        await world.put("count: 3", config())
        assert world.ask(config()) == "transient"
        await asyncio.sleep(1)
        assert world.ask(config()) == {"count": 3}

    played(scenario)


def test_a_missing_object_is_read_again_after_growing_pauses_while_somebody_asks() -> None:
    async def scenario(world: World) -> None:
        def ask_again(_: Topic) -> None:
            asyncio.get_running_loop().call_soon(world.ask, config())

        world.reader.subscribe(ask_again)
        world.ask(config())
        await asyncio.sleep(600)
        assert world.ask(config()) == reasons.PARAMETERS_NOT_FOUND
        pauses = [round(b - a) for (a, _), (b, _) in zip(world.reads, world.reads[1:], strict=False)]
        assert pauses == [1, 2, 4, 8, 16, 32, *[60] * (len(pauses) - 6)]
        await world.put("count: 1", config())
        await asyncio.sleep(61)
        assert world.ask(config()) == {"count": 1}

    played(scenario)


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    async def scenario(world: World) -> None:
        await world.put("count: 2", config())
        world.ask(config())
        world.ask(config("missing"))
        await asyncio.sleep(2 * KEEP_SECONDS)
        assert len(world.reader) == 0
        reads = len(world.reads)
        await asyncio.sleep(10_000)
        assert len(world.reads) == reads < 12

    played(scenario)


class SlowClient(Client):
    """Each answer takes ten seconds."""

    async def request(self, call: Call) -> bytes:
        await asyncio.sleep(10)
        return await super().request(call)


def test_what_somebody_waits_for_is_read_in_the_end_however_long_that_takes() -> None:
    """Whoever was told that it is being read asks again only afterwards."""

    async def scenario(world: World) -> None:
        world.reader = ReferenceReader(SlowClient(world.admin))
        world.reader.subscribe(world.woken.append)
        wanted = [config(f"size-{number}") for number in range(30)]
        for one in wanted:
            await world.put("count: 2", one)
            assert world.ask(one, world.now) == "transient"
        reading = asyncio.create_task(world.reader.run())
        await asyncio.sleep(20 * len(wanted) + 2 * KEEP_SECONDS)
        reading.cancel()
        assert set(world.woken) == {one.topic for one in wanted}
        assert len(world.reader) == 0

    played(scenario)


def test_what_a_driver_does_not_understand_is_read_again() -> None:
    async def scenario(world: World) -> None:
        await world.put("count: two", config())
        world.ask(config())
        await asyncio.sleep(1)
        assert world.ask(config()) == {"count": "two"}
        world.reader.reread_later(config())
        world.reader.reread_later(config())
        await asyncio.sleep(1.5)
        assert len(world.reads) == 2
        assert world.woken == [config().topic] * 2

    played(scenario)


def test_a_server_that_does_not_answer_is_asked_again() -> None:
    async def scenario(world: World) -> None:
        await world.put("count: 2", config())
        for broken in (OutcomeUnknown("no answer: reset"), ServerError(500, "InternalError", "etcd is away")):
            world.broken = broken
            world.ask(config(), world.now)
            await asyncio.sleep(1)
            assert world.ask(config(), world.now - 2) == reasons.PARAMETERS_NOT_READ
        world.broken = None
        await asyncio.sleep(61)
        assert world.ask(config()) == {"count": 2}

    played(scenario)


def test_a_kind_that_is_not_installed_is_said_to_be() -> None:
    async def scenario(world: World) -> None:
        world.broken = NotFound(404, "NotFound", "the server could not find the requested resource")
        size = ParametersObject(SIZES, "team", "large", "team")
        world.ask(size)
        await asyncio.sleep(1)
        with pytest.raises(ParametersUnavailable) as refused:
            world.reader.get(size, 0.0)
        assert refused.value.code == reasons.PARAMETERS_NOT_FOUND
        assert str(refused.value) == "the API server knows no sizes of disks.example.com/v1: install its CRD"

    played(scenario)


def test_who_names_many_objects_waits_for_them_alone() -> None:
    """One namespace costs ten requests a second at most and MAX_OBJECTS entries; the others are served at once."""

    async def scenario(world: World) -> None:
        for number in range(2000):
            world.ask(config(f"none-{number}", "greedy"))
        assert len(world.reader) == MAX_OBJECTS
        assert world.ask(config("one-more", "greedy")) == reasons.PARAMETERS_NOT_READ
        await world.put("count: 1", config())
        await world.put("pool: 1", config("pool", "admins"))
        world.ask(config())
        world.ask(config("pool", "admins", ""))
        await asyncio.sleep(0.05)
        assert world.ask(config()) == {"count": 1}
        assert world.ask(config("pool", "admins", "")) == {"pool": 1}
        await asyncio.sleep(10)
        assert len(world.reads) <= 2 + 10 * 10 + 2

    played(scenario)


def test_new_askers_do_not_cost_more_requests_than_their_namespace_has() -> None:
    async def scenario(world: World) -> None:
        for _ in range(1000):
            world.ask(config(), world.now)
            await asyncio.sleep(0.01)
        assert len(world.reads) <= 102

    played(scenario)


def test_room_for_others_is_made_and_told() -> None:
    async def scenario(world: World) -> None:
        for number in range(MAX_OBJECTS):
            world.ask(config(f"none-{number}"))
        assert world.ask(config("late")) == reasons.PARAMETERS_NOT_READ
        await asyncio.sleep(2 * KEEP_SECONDS)
        assert room_topic("team") in world.woken
        assert world.ask(config("late")) == "transient"

    played(scenario)
