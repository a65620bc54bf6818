"""Pods whose parameters are in an object are explained like others, as far as who asks may read it."""

import pytest
from tests.unit.explain.conftest import Play, explained, helps, text_of
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.references import Refusing, put_size

from parley.api import reasons
from parley.api.resources import CLAIMS, TEMPLATES
from parley.explain import references
from parley.explain.snapshot import read

SIZE = {"kind": "ConfigMap", "name": "size"}


async def begun(world: World) -> None:
    world.start_parley()
    await world.add_node("a", 2)
    await world.add_class()
    await world.add_template("small")
    spec = {"resourceClassName": "gpu", "parametersRef": SIZE}
    await world.create(TEMPLATES, {"metadata": {"name": "sized"}, "spec": {"spec": spec}})
    await world.add_pod("holder", "small")
    await world.settle()
    await world.add_pod("wants", "sized")


def test_what_is_missing_is_named_with_the_remedy(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await world.settle()
        told = await explained(world, "wants")
        assert told.code == reasons.PARAMETERS_NOT_FOUND
        assert "ConfigMap default/size does not exist" in text_of(told)
        assert helps(told) == ["create the object that parametersRef names; Parley finds it within a minute"]

    play(scenario)


def test_drivers_are_asked_by_what_the_object_holds(play: Play) -> None:
    async def scenario(world: World) -> None:
        await put_size(world, "count: 2")
        await begun(world)
        await world.settle()
        told = await explained(world, "wants")
        assert told.code == reasons.NOTHING_VIABLE
        assert [pod for remedy in told.remedies[:1] for pod in remedy.pods] == ["default/holder"]

    play(scenario)


def test_who_may_not_read_it_gets_the_rest(play: Play) -> None:
    async def scenario(world: World) -> None:
        await put_size(world, "count: 2")
        await begun(world)
        await world.settle()
        world.client = Refusing(world)
        told = await explained(world, "wants")
        assert told.code == reasons.NOTHING_VIABLE
        assert len(told.nodes) == 1

    play(scenario)


def test_so_many_objects_are_read_and_no_more(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "MOST", 3)

    async def scenario(world: World) -> None:
        await world.add_class()
        for number in range(9):
            spec = {"resourceClassName": "gpu", "parametersRef": {**SIZE, "name": f"none-{number}"}}
            await world.create(CLAIMS, {"metadata": {"name": f"c{number}", "namespace": NAMESPACE}, "spec": spec})
        client = Refusing(world)
        await read(client, world.clock(), NAMESPACE)
        assert len(client.reads) == 3

    play(scenario)


def test_a_namespace_that_names_many_objects_keeps_no_other_from_having_its_read(play: Play) -> None:
    async def scenario(world: World) -> None:
        await put_size(world, "count: 2")
        await begun(world)
        for number in range(references.MOST):
            spec = {"resourceClassName": "gpu", "parametersRef": {**SIZE, "name": f"none-{number}"}}
            body = {"metadata": {"name": f"c{number}"}, "spec": spec}
            await world.client.create(CLAIMS, body, "aggressor")
        await world.settle()

        told = await explained(world, "wants")

        assert [pod for remedy in told.remedies[:1] for pod in remedy.pods] == ["default/holder"]

    play(scenario)
