"""A ClaimRelease whose creation the network delivers late, when the claim is free again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.faults import FaultClient, NumberedCall

from parley.api.resources import CLAIM_RELEASES
from parley.drivers.device import DeviceDriver
from parley.kube.client import ServerError

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


def test_it_does_not_stay_if_the_claim_is_allocated_again_before_it_is_deleted(play: Play) -> None:
    async def scenario(world: World) -> None:
        failed: list[NumberedCall] = []

        def fail_once(call: NumberedCall) -> None:
            if call.verb == "delete" and call.resource == CLAIM_RELEASES and not failed:
                failed.append(call)
                raise ServerError(500, "InternalError", "etcdserver: request timed out")

        await world.add_node("a", devices=1)
        await world.add_node("b")
        await world.add_class()
        world.start_parley(FaultClient(world.server.client(), before=fail_once))
        await world.add_claim("mine")
        await world.settle()
        world.kubelets.stop("b")
        uid = (await world.claim("mine")).metadata.uid
        spec = {
            "claim": {"namespace": "default", "name": "mine", "uid": "of-an-earlier-mirror"},
            "holdingUid": uid,
            "nodeName": "b",
            "driverName": DeviceDriver.name,
            "resourceClassName": "gpu",
            "allocation": {"handles": [{"driverName": DeviceDriver.name, "data": {}}]},
        }
        await world.create(CLAIM_RELEASES, {"metadata": {"name": "late"}, "spec": spec})
        await world.add_pod("p", claims=["mine"])
        await world.settle()
        assert failed
        assert await world.node_of("p") == "a"
        assert not (await world.client.list(CLAIM_RELEASES)).items

    play(scenario)
