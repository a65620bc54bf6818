"""Stand-ins are created once, and deleted where nobody else does that."""

import pytest
from tests.unit.control.builders import NAMESPACE, World, played

from parley.api.resources import CLAIMS, PODS
from parley.control.claims.podclaims import PodClaim
from parley.control.objects.class_request import ClassRequest


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
