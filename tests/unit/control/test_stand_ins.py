"""Stand-ins are created once, and deleted where nobody else does that."""

import asyncio

import pytest
from tests.unit.control.builders import NAMESPACE, World, played

from parley.api.resources import CLAIMS, PODS
from parley.control.claims.podclaims import PodClaim
from parley.control.objects.class_request import ClassRequest
from parley.control.stand_ins import StandIns
from parley.kube.client import Call, Client, ServerError


class Failing(Client):
    """The first call fails after a while."""

    calls = 0

    async def request(self, call: Call) -> bytes:
        self.calls += 1
        await asyncio.sleep(1)
        if self.calls == 1:
            raise ServerError(500, "InternalError", "etcdserver: request timed out")
        return await super().request(call)


def test_a_stand_in_is_made_once() -> None:
    async def story(world: World) -> None:
        pod = await world.pod()
        claim = PodClaim("licence", "p-licence", class_request=ClassRequest("licence", {"count": 2}))
        await world.records.stand_ins.create(pod, claim)
        made = await world.the_claim("p-licence")
        await world.records.stand_ins.create(pod, claim)
        assert await world.the_claim("p-licence") == made
        assert made.spec.parameters == {"count": 2}

    played(story)


def test_a_stand_in_that_is_gone_needs_no_deletion_and_what_has_its_name_gets_none() -> None:
    async def story(world: World) -> None:
        former = await world.claim("former")
        for _ in range(2):
            await world.records.stand_ins.delete(former)
        another = await world.claim("former")
        await world.records.stand_ins.delete(former)
        assert await world.the_claim("former") == another

    played(story)


def test_who_deletes_a_stand_in_while_another_does_repeats_it_if_that_fails() -> None:
    async def story(world: World) -> None:
        stand_in = await world.claim("licence")

        client = Failing(world.server.client())
        stand_ins = StandIns(client, world.cluster)
        failed, *others = await asyncio.gather(*map(stand_ins.delete, [stand_in] * 3), return_exceptions=True)
        assert (type(failed), others) == (ServerError, [None, None])
        assert not (await world.admin.list(CLAIMS, NAMESPACE)).items
        assert client.calls == 2

    played(story)


@pytest.mark.parametrize(("now", "left"), [("there", True), ("gone", False), ("made anew", False)])
def test_one_is_left_behind_whose_pod_is_gone(now: str, left: bool) -> None:
    async def story(world: World) -> None:
        world.server.gc_forbidden = lambda _resource, _body: True
        pod = await world.pod()
        claim = PodClaim("licence", "p-licence", class_request=ClassRequest("licence", None))
        await world.records.stand_ins.create(pod, claim)
        stand_in = await world.the_claim("p-licence")
        if now != "there":
            await world.delete(PODS, "p")
        if now == "made anew":
            await world.pod()
        await world.records.stand_ins.delete_left_behind(stand_in)
        assert bool((await world.admin.list(CLAIMS, NAMESPACE)).items) == left

    played(story)
