"""What may happen while a bind waits: the node goes, a claim is another's, the API server does not answer."""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class, slow

from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, NODES, TEMPLATES
from parley.kube.client import Call, Client, OutcomeUnknown
from parley.simulate.claim_controller import ClaimController

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any


def test_no_pod_is_bound_to_a_node_that_was_deleted_while_its_claims_were_allocated(play: Any) -> None:
    """The API server takes a binding to any name, and the pod garbage collector then deletes the pod."""

    async def scenario(world: World) -> None:
        await world.add_node("n0")
        await add_shelf_class(world)
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=1, trouble=slow(20)))])
        await world.add_pod("p", "shelf")
        await asyncio.sleep(5)
        await world.client.delete(NODES, "n0")
        await world.settle()
        assert await world.node_of("p") == ""
        assert world.calls.failed_binds[0] == ("p", "node n0 does not exist: the scheduler tries again")
        assert len(world.ledger) == 0
        await world.add_node("n1")
        await world.settle()
        assert await world.node_of("p") == "n1"

    play(scenario)


def test_no_pod_is_bound_whose_claim_turns_out_to_be_another_drivers(play: Any) -> None:
    """Its scheduler runs without the plugin that would allocate it."""

    async def scenario(world: World) -> None:
        await world.add_node("n0")
        await add_shelf_class(world)
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=1))])
        await world.settle()
        await world.stop_claim_controller()
        await world.add_pod("p", "shelf")
        await asyncio.sleep(2)
        assert world.calls.count["bind"] == 1
        await world.client.delete(TEMPLATES, "shelf", "default")
        await asyncio.sleep(0.1)
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        await world.create(
            BUILTIN_TEMPLATES, {"metadata": {"name": "shelf", "namespace": "default"}, "spec": spec}
        )
        world.start_claim_controller()
        await world.settle()
        assert await world.node_of("p") == ""
        ((_, why),) = world.calls.failed_binds
        assert why.startswith("claims gpu-0 are not Parley's and this scheduler allocates no others: leave")

    play(scenario)


class SilentServer(Client):
    """Records an allocation after 40 s, and never answers a binding, which ends in a time-out of the client."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.posted: list[float] = []

    async def request(self, call: Call) -> bytes:
        if call.resource == BUILTIN_CLAIMS and call.subresource == "status" and not self.posted:
            await asyncio.sleep(40)
        if call.subresource == "binding":
            self.posted.append(asyncio.get_running_loop().time())
            await asyncio.sleep(10)
            raise OutcomeUnknown("timed out")
        return await super().request(call)


class SlowClaimNames(Client):
    """An API server that takes three seconds to note the claims of a pod in its status."""

    async def request(self, call: Call) -> bytes:
        if "resourceClaimStatuses" in ((call.body or {}).get("status") or {}):
            await asyncio.sleep(3)
        return await super().request(call)


def test_a_bind_waits_until_the_pods_status_names_the_claim_that_was_made_anew(play: Any) -> None:
    """The kubelet looks for the claim that the status names."""

    async def scenario(world: World) -> None:
        await world.add_node("n0")
        await add_shelf_class(world)
        await world.stop_claim_controller()
        controller = asyncio.create_task(ClaimController(SlowClaimNames(world.server.client())).run())
        world.start_parley(drivers=[ShelfDriver(Behaviour(other=1))])
        await world.add_pod("p", "shelf", nodeSelector={"kubernetes.io/hostname": "n1"})
        await world.settle()
        (former,) = await world.mirrors()
        await world.client.delete(BUILTIN_CLAIMS, former.metadata.name, "default")
        await world.add_node("n1")
        await asyncio.sleep(2)
        assert await world.node_of("p") == ""
        await world.settle()
        assert await world.node_of("p") == "n1"
        controller.cancel()

    play(scenario)


def test_no_binding_is_posted_again_once_its_scheduler_gives_up(play: Any) -> None:
    """The scheduler has given the node's room to other pods by then."""

    async def scenario(world: World) -> None:
        await world.add_node("n0")
        await add_shelf_class(world)
        client = SilentServer(world.server.client())
        world.start_parley(client, drivers=[ShelfDriver(Behaviour(other=1))])
        await world.settle()
        await world.add_pod("p", "shelf")
        await asyncio.sleep(50.5)
        assert len(client.posted) == 1
        why = "the API server answered no binding of the pod in time: the scheduler tries again"
        assert world.calls.failed_binds[0] == ("p", why)

    play(scenario)
