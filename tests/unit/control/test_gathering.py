"""All that is known about a pod's claims is gathered; those of other DRA drivers are left out."""

import pytest
from tests.unit.control.allocated import OTHERS, gathered
from tests.unit.control.builders import (
    NAMESPACE,
    World,
    a_holding,
    generated_metadata,
    generated_spec,
    played,
)

from parley.api.builtin import Pod
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS
from parley.control.claims.gathering import gather
from parley.control.objects.class_request import ClassRequest
from parley.control.objects.mirror import template_mirror
from parley.control.objects.pod import reference
from parley.control.objects.standin import stand_in


def test_a_generated_claim_is_found_with_its_class_and_what_it_asks_for() -> None:
    async def given(world: World, pod: Pod) -> None:
        await world.class_()
        await world.generated(pod, count=2)

    async def story(world: World) -> None:
        (claim,) = await gathered(world, given)
        assert (claim.entry, claim.name, claim.problem) == ("licence", "p-licence", None)
        assert claim.class_request == ClassRequest("licence", {"count": 2})
        assert (claim.class_, claim.standalone) == (world.cluster.class_("licence"), False)
        assert claim.mirror is world.cluster.mirror((NAMESPACE, "p-licence"))

    played(story)


def test_a_claim_of_a_driver_that_does_not_run_here_is_for_drivers_outside() -> None:
    async def given(world: World, pod: Pod) -> None:
        await world.class_(driver="outside.example.com")
        await world.generated(pod)
        await world.put(CLAIMS, stand_in(pod, "licence", "p-licence", ClassRequest("licence", {})))

    async def story(world: World) -> None:
        (claim,) = await gathered(world, given)
        assert claim.standalone
        assert claim.written == await world.the_claim("p-licence")

    played(story)


@pytest.mark.parametrize("kind", ["claim", "template"])
def test_claims_of_other_dra_drivers_are_left_out(kind: str) -> None:
    async def given(world: World, pod: Pod) -> None:
        if kind == "template":
            await world.put(BUILTIN_TEMPLATES, {"metadata": {"name": "licence"}, "spec": {"spec": OTHERS}})
        else:
            meta = {"name": "p-licence", **generated_metadata(pod, "licence")}
            await world.put(BUILTIN_CLAIMS, {"metadata": meta, "spec": OTHERS})

    async def story(world: World) -> None:
        assert await gathered(world, given) == ()

    played(story)


def test_what_a_pod_holds_needs_its_class_no_more() -> None:
    async def given(world: World, pod: Pod) -> None:
        await world.generated(pod)
        mine = reference(pod)
        world.ledger.add(a_holding("p-licence", entry="licence", named=False, pods={mine.uid: mine}))

    async def story(world: World) -> None:
        (claim,) = await gathered(world, given)
        assert claim.problem is None
        assert claim.holding is world.ledger.of_claim(NAMESPACE, "p-licence")

    played(story)


def test_the_claims_come_in_the_pods_order() -> None:
    async def story(world: World) -> None:
        await world.class_()
        pod = await world.pod(claims=["z", "a"], templates=["m"])
        await world.mirror(await world.claim("a"))
        await world.put(
            BUILTIN_CLAIMS,
            {"metadata": {"name": "p-m", **generated_metadata(pod, "m")}, "spec": generated_spec()},
        )
        assert [(claim.entry, claim.problem is None) for claim in gather(world.state, pod)] == [
            ("z", False),
            ("a", True),
            ("m", True),
        ]

    played(story)


def test_the_mirror_of_a_template_is_not_taken() -> None:
    async def given(world: World, pod: Pod) -> None:
        await world.class_()
        await world.put(BUILTIN_TEMPLATES, template_mirror(await world.template()))

    async def story(world: World) -> None:
        (claim,) = await gathered(world, given)
        assert claim.problem is not None
        assert claim.problem.transient

    played(story)
