"""When a standalone driver answers pods whose claims have their parameters in objects (`parametersRef`)."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pydantic import field_validator
from tests.support.faults import FaultClient
from tests.unit.sdk.standalone.world import NAMESPACE, Disks, ShelfDriver, World

from parley.api.resources import CLAIMS, CONFIG_MAPS
from parley.kube.client import Call, NotFound
from parley.kube.transport import Transport

Play = Callable[[Callable[[World], Any]], None]

FOUND = b'{"metadata": {"resourceVersion": "1"}, "data": {"parameters": "size: 2"}}'


class Prompt(FaultClient):
    """Reads ConfigMaps in no time: so many times there is none, then there is."""

    missing = 0

    async def request(self, call: Call) -> bytes:
        if call.resource != CONFIG_MAPS:
            return await super().request(call)
        self.missing -= 1
        if self.missing >= 0:
            raise NotFound(404, "NotFound", "configmaps size not found")
        return FOUND


async def put_claim(world: World) -> None:
    spec = {"resourceClassName": "disk", "parametersRef": {"kind": "ConfigMap", "name": "size"}}
    await world.create(CLAIMS, {"metadata": {"name": "disk", "namespace": NAMESPACE}, "spec": spec})


@pytest.mark.parametrize("missing", [0, 1])
def test_what_is_read_while_the_question_is_put_aside_is_not_missed(play: Play, missing: int) -> None:
    async def scenario(world: World) -> None:
        client = Prompt(world.server.client())
        client.missing = missing
        await world.add_node("a", 2)
        await world.add_class()
        world.start(ShelfDriver(), client)
        await put_claim(world)
        await world.ask("pod", "disk", nodes=["a"])
        await world.settle()

        assert (await world.answer("pod")).viable_nodes == ("a",)

    play(scenario)


class Sold(Disks):
    """`judged` is set when parameters that can't be are seen."""

    judged: ClassVar[asyncio.Event] = asyncio.Event()

    @field_validator("size")
    @classmethod
    def _few(cls, size: int) -> int:
        if size > 5:
            Sold.judged.set()
            raise ValueError("at most 5 are sold")
        return size


class Shop(ShelfDriver):
    parameters = Sold


class Edited(FaultClient):
    """A ConfigMap that is too large when it is first read, and then fine. The second answer takes its time."""

    def __init__(self, server: Transport) -> None:
        super().__init__(server)
        self.answers = 0
        self.second = asyncio.Event()

    async def request(self, call: Call) -> bytes:
        if call.resource != CONFIG_MAPS:
            return await super().request(call)
        self.answers += 1
        if self.answers == 1:
            return FOUND.replace(b'"1"', b'"0"').replace(b"size: 2", b"size: 9")
        await self.second.wait()
        return FOUND


def test_what_is_read_while_a_pod_is_refused_for_what_was_read_before_is_not_missed(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        client = Edited(world.server.client())
        await world.add_node("a", 2)
        await world.add_class()
        world.start(Shop(), client)
        await put_claim(world)
        await world.ask("pod", "disk", nodes=["a"])
        await asyncio.sleep(5)
        assert (await world.answer("pod")).viable_nodes == ()
        assert client.answers == 2
        monkeypatch.setattr(Sold, "judged", client.second)
        await world.ask("pod", "disk", nodes=["a"], round=2)
        await world.settle()

        assert (await world.answer("pod")).viable_nodes == ("a",)

    play(scenario)
