"""Every Parley template has a built-in template of its name, from which Kubernetes makes the claims."""

from typing import Any

import pytest
from tests.support.faults import NumberedCall
from tests.unit.control.builders import NAMESPACE, World, played

from parley.api import reasons
from parley.api.builtin import BuiltinTemplate
from parley.api.names import API_VERSION
from parley.api.resources import BUILTIN_TEMPLATES
from parley.control.claims.templates import TemplateReconciler
from parley.control.objects.mirror import owned_by
from parley.kube.client import Forbidden

KEY = (NAMESPACE, "licence")
OTHERS: dict[str, Any] = {"spec": {"devices": {"requests": []}}}


async def sync(world: World) -> None:
    await TemplateReconciler(world.client, world.cluster, world.recorder).sync(KEY)
    await world.seen()


async def mirror(world: World) -> BuiltinTemplate:
    return await world.admin.get(BUILTIN_TEMPLATES, "licence", NAMESPACE)


def test_the_mirror_is_made_and_made_anew_if_somebody_deletes_it() -> None:
    async def story(world: World) -> None:
        template = await world.template()
        await sync(world)
        assert owned_by(await mirror(world), template.metadata.uid)
        await sync(world)
        assert len(world.writes) == 1
        await world.delete(BUILTIN_TEMPLATES, "licence")
        await sync(world)
        assert owned_by(await mirror(world), template.metadata.uid)

    played(story)


def test_what_somebody_else_made_stays_and_the_user_is_told() -> None:
    async def story(world: World) -> None:
        theirs = await world.put(BUILTIN_TEMPLATES, {"metadata": {"name": "licence"}, "spec": OTHERS})
        await world.template()
        await sync(world)
        assert (await mirror(world)).metadata.uid == theirs.metadata.uid
        ((reason, note),) = await world.events()
        assert reason == reasons.NAME_TAKEN
        assert note.startswith(
            "a resource.k8s.io ResourceClaimTemplate team/licence exists that Parley did not create"
        )

    played(story)


def test_the_mirror_of_an_earlier_template_of_that_name_makes_room() -> None:
    async def story(world: World) -> None:
        owner = {
            "apiVersion": API_VERSION,
            "kind": "ResourceClaimTemplate",
            "name": "licence",
            "uid": "uid-earlier",
        }
        meta = {"name": "licence", "ownerReferences": [{**owner, "controller": True}]}
        template = await world.template()
        await world.put(BUILTIN_TEMPLATES, {"metadata": meta, "spec": OTHERS})
        for _ in range(2):
            await sync(world)
        assert owned_by(await mirror(world), template.metadata.uid)

    played(story)


def test_parameters_that_do_not_fit_are_not_mirrored() -> None:
    async def story(world: World) -> None:
        await world.template(notes="x" * 10_000)
        await sync(world)
        assert world.writes == []

    played(story)


def test_a_refusal_is_told_to_whoever_waits_and_tried_again_until_it_is_taken() -> None:
    async def story(world: World) -> None:
        def refuse(call: NumberedCall) -> None:
            if call.writes and call.resource == BUILTIN_TEMPLATES:
                raise Forbidden(403, "Forbidden", "exceeded quota")

        await world.template()
        world.before = refuse
        with pytest.raises(Forbidden):
            await sync(world)
        assert world.cluster.refusals.of("ResourceClaimTemplate", KEY) == "exceeded quota"
        ((reason, note),) = await world.events()
        assert reason == reasons.WRITE_REFUSED
        assert "stands for team/licence: exceeded quota: change what it names; Parley tries again" in note
        world.before = lambda call: None
        for _ in range(2):
            await sync(world)
        assert world.cluster.refusals.of("ResourceClaimTemplate", KEY) == ""

    played(story)


def test_a_template_that_is_not_there_has_no_mirror() -> None:
    async def story(world: World) -> None:
        await sync(world)
        assert world.writes == []

    played(story)
