"""Parameters with a number of more than 64 bits: the API server stores a float, and writes it in digits."""

from collections.abc import AsyncGenerator, Callable

import pytest
from tests.support.faults import FaultClient
from tests.unit.scheduler.conftest import Scenario, World

from parley.drivers.device import DeviceDriver
from parley.kube.client import Call, RawEvent

Play = Callable[[Scenario], None]


class Digits(FaultClient):
    """Reads claims as an API server in Go writes them."""

    async def request(self, call: Call) -> bytes:
        return _in_digits(await super().request(call))

    async def stream(self, call: Call) -> AsyncGenerator[RawEvent, None]:
        async for event in super().stream(call):
            yield RawEvent(event.type, _in_digits(event.object))


def _in_digits(answer: bytes) -> bytes:
    return answer.replace(b'"count":1e+20', b'"count":100000000000000000000')


@pytest.mark.parametrize("standalone", [False, True])
def test_a_pod_is_told_what_is_wrong_with_its_named_claim(play: Play, standalone: bool) -> None:
    async def scenario(world: World) -> None:
        world.start_parley(Digits(world.server.client()), drivers=[] if standalone else None)
        if standalone:
            world.start_driver(DeviceDriver(), Digits(world.server.client()))
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_claim("huge", count=1e20)
        await world.add_pod("p", claims=["huge"])
        await world.settle()

        assert "count=1e+20: input should be a valid integer" in (await world.scheduling("p")).status.message

    play(scenario)
