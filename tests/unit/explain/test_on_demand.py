"""Pods that name claims which templates make: what is explained about them."""

from typing import Any

from tests.unit.explain.conftest import Play, explained, helps
from tests.unit.scheduler.conftest import NAMESPACE, World

from parley.api.resources import PODS, TEMPLATES

SHARED = {"spec": {"resourceClassName": "gpu"}, "sharedBy": {"podLabel": "run"}}


async def waiting(world: World, labels: dict[str, str], **spec: Any) -> None:
    """A pod that names src-7 and has the labels."""
    await world.add_node("a", 1)
    await world.add_class()
    await world.create(TEMPLATES, {"metadata": {"name": "src", "namespace": NAMESPACE}, "spec": SHARED})
    entries = [{"name": "work", "resourceClaimName": "src-7"}]
    body = {"resourceClaims": entries, "containers": [{"name": "main", "image": "none"}], **spec}
    await world.create(PODS, {"metadata": {"name": "p", "namespace": NAMESPACE, "labels": labels}, "spec": body})
    await world.settle(10)


def test_a_pod_whose_label_does_not_fit(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await waiting(world, {"run": "8"})

        told = await explained(world, "p")

        (claim,) = told.claims
        assert (claim.state, claim.message) == (
            "ClaimNotMade",
            "claim default/src-7 does not exist, and template default/src creates 'src-8' for pod default/p, "
            "whose label 'run' has the value '8': name that claim, or create this one",
        )
        assert helps(told) == ["set the label that the message names, or create the claim"]

    play(scenario)


def test_a_pod_whose_claim_is_about_to_be_made(play: Play) -> None:
    async def scenario(world: World) -> None:
        await waiting(world, {"run": "7"})

        (claim,) = (await explained(world, "p")).claims

        assert claim.message == "claim default/src-7 is being created from template default/src"

    play(scenario)
