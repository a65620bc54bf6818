"""Pods whose claims or classes take their parameters from an object that `parametersRef` names."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.scheduler.conftest import NAMESPACE, Scenario, World
from tests.unit.scheduler.references import (
    FORBIDDEN,
    GRANTED,
    Refusing,
    put_claim,
    put_class,
    put_size,
    put_template,
    said,
)

from parley.api import reasons
from parley.api.names import CONDITION_DECLINED
from parley.api.resources import CONFIG_MAPS, Resource
from parley.control.objects.mirror import consumer, is_offer, offer_ended, recorded_units
from parley.control.objects.pod import reference
from parley.drivers.tokens import TokensDriver
from parley.simulate.status_writes import patch_claim, patch_pod

pytestmark = pytest.mark.scheduling_paths("native", "extender")

Play = Callable[[Scenario], None]


async def begun(world: World) -> None:
    world.start_parley(drivers=[TokensDriver()])
    await world.add_node("node-1")


async def begun_with_offers(world: World) -> None:
    """Of two nodes the scheduler chooses one; the template's object asks for 3 of the class."""
    await begun(world)
    await world.add_node("node-2")
    await put_class(world, parameters={"pool": 9}, limits=[{"units": 5}], placement="Exact", nodePart="Required")
    await put_size(world, "count: 3")
    await put_template(world)


def counted(world: World) -> list[int]:
    return sorted(int(holding.allocation.data["count"]) for holding in world.ledger)


def test_a_pod_gets_what_the_config_map_of_its_template_asks_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_class(world)
        await put_size(world, "count: 3\n")
        await put_template(world)
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == "node-1"
        assert counted(world) == [3]

    play(scenario)


def test_a_missing_object_is_reported_and_taken_once_it_is_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_class(world)
        await put_template(world)
        await world.add_pod("p", "one")
        await asyncio.sleep(300)
        message = "parametersRef of template default/one: ConfigMap default/size does not exist: create it"
        assert await said(world, "p") == (reasons.PARAMETERS_NOT_FOUND, message)
        assert (reasons.PARAMETERS_NOT_FOUND, message) in await world.events_on("p")
        await put_size(world, "count: 2")
        await asyncio.sleep(61)
        assert await world.node_of("p") == "node-1"

    play(scenario)


def test_a_refused_object_names_the_rule_that_is_missing_and_is_not_polled(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = Refusing(world)
        world.start_parley(client, drivers=[TokensDriver()])
        await world.add_node("node-1")
        await put_class(world)
        await put_size(world, "count: 2")
        await put_template(world)
        await world.add_pod("p", "one")
        await asyncio.sleep(3600)
        message = f"parametersRef of template default/one: {FORBIDDEN}"
        assert await said(world, "p") == (reasons.PARAMETERS_FORBIDDEN, message)
        assert 50 < len(client.reads) < 80
        client.closed = False
        await asyncio.sleep(61)
        assert await world.node_of("p") == "node-1"

    play(scenario)


def test_what_the_driver_does_not_understand_is_reported_without_values(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_class(world)
        await put_size(world, "count: s3cret")
        await put_template(world)
        await world.add_pod("p", "one")
        await asyncio.sleep(300)
        message = (
            "parameters of template default/one, in ConfigMap default/size: "
            "count: input should be a valid integer (known parameters: count)"
        )
        assert await said(world, "p") == (reasons.PARAMETERS_INVALID, message)
        await world.client.patch(CONFIG_MAPS, "size", {"data": {"parameters": "count: 4"}}, NAMESPACE)
        await asyncio.sleep(61)
        assert counted(world) == [4]

    play(scenario)


def test_an_edit_is_for_later_pods_alone(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_class(world)
        await put_size(world, "count: 1")
        await put_template(world)
        await world.add_pod("p", "one")
        await asyncio.sleep(2)
        await world.client.patch(CONFIG_MAPS, "size", {"data": {"parameters": "count: 3"}}, NAMESPACE)
        await world.add_pod("q", "one")
        await world.settle()
        assert counted(world) == [1, 3]
        assert (await world.node_of("p"), await world.node_of("q")) == ("node-1", "node-1")

    play(scenario)


def test_a_restart_does_without_the_object(play: Play) -> None:
    """What is held stays, and counts as much as before."""

    async def scenario(world: World) -> None:
        await begun(world)
        await put_class(world, parameters={"pool": 9}, limits=[{"units": 5}])
        await put_size(world, "count: 3")
        await put_template(world)
        await put_claim(world)
        await put_claim(world, "at-once", allocationMode="Immediate", parametersRef={**GRANTED, "name": "one"})
        await put_size(world, "{}", name="one")
        await world.add_pod("p", "one")
        await world.settle()
        await world.client.delete(CONFIG_MAPS, "size", NAMESPACE)
        await world.client.delete(CONFIG_MAPS, "one", NAMESPACE)
        await world.crash()
        world.start_parley(drivers=[TokensDriver()])
        await world.settle()
        assert sorted(holding.units for holding in world.ledger) == [1, 3]
        await put_size(world, "count: 2")
        await world.add_pod("q", "one")
        await asyncio.sleep(100)
        assert (await said(world, "q"))[0] == reasons.LIMIT_REACHED
        await world.delete_pod("p")
        await world.settle()
        assert await world.node_of("q") == "node-1"

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_what_was_offered_counts_as_much_after_a_restart_without_the_object(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun_with_offers(world)
        await world.add_pod("p", "one")
        await world.settle()
        (mirror,) = await world.mirrors()
        assert mirror.status.allocation is not None
        assert is_offer(mirror.status.allocation)
        await world.client.delete(CONFIG_MAPS, "size", NAMESPACE)
        await world.crash()
        world.start_parley(drivers=[TokensDriver()])
        await world.settle()
        assert [holding.units for holding in world.ledger] == [3]

    play(scenario)


@pytest.mark.scheduling_paths("native")
def test_an_offer_ends_if_the_object_says_something_else_when_the_scheduler_chooses(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun_with_offers(world)
        await world.add_pod("p", "one", schedulerName="quiet")
        await world.settle(5)
        (mirror,) = await world.mirrors()
        await world.client.patch(CONFIG_MAPS, "size", {"data": {"parameters": "count: 1"}}, NAMESPACE)
        await world.add_pod("q", "one", schedulerName="quiet")
        await world.settle(5)
        pod = await world.pod("p")
        reserved = await patch_claim(world.client, mirror, {"reservedFor": [consumer(reference(pod))]})
        await patch_pod(world.client, pod, {"nominatedNodeName": "node-1"})
        await world.settle(5)
        seen = await world.mirror(reserved.metadata.name)
        assert seen is not None
        assert (recorded_units(mirror), offer_ended(seen)) == (3, CONDITION_DECLINED)
        assert len(world.ledger) == 0

    play(scenario)


def test_a_class_takes_its_parameters_from_any_namespace(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        reference = {"kind": "ConfigMap", "namespace": "admins", "name": "pool"}
        await put_class(world, parametersRef=reference)
        await put_size(world, "{}")
        await put_template(world)
        await world.add_pod("p", "one")
        await asyncio.sleep(100)
        message = "parametersRef of class licence: ConfigMap admins/pool does not exist: create it"
        assert await said(world, "p") == (reasons.PARAMETERS_NOT_FOUND, message)
        await put_size(world, "pool: 1", "pool", "admins")
        await asyncio.sleep(61)
        assert await world.node_of("p") == "node-1"

    play(scenario)


def test_a_named_claim_shows_in_a_condition_what_is_missing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_class(world)
        await put_claim(world)
        await asyncio.sleep(100)
        (accepted,) = [c for c in (await world.claim("mine")).status.conditions if c.type == reasons.ACCEPTED]
        assert (accepted.type, accepted.status) == (reasons.ACCEPTED, "False")
        assert accepted.reason == reasons.PARAMETERS_NOT_FOUND
        assert (
            accepted.message
            == "parametersRef of claim default/mine: ConfigMap default/size does not exist: create it"
        )
        await put_size(world, "count: 1")
        await asyncio.sleep(61)
        (accepted,) = [c for c in (await world.claim("mine")).status.conditions if c.type == reasons.ACCEPTED]
        assert (accepted.status, accepted.reason) == ("True", reasons.ACCEPTED)
        await world.add_pod("p", claims=["mine"])
        await world.settle()
        assert await world.node_of("p") == "node-1"

    play(scenario)


def test_an_immediate_claim_waits_for_its_parameters(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begun(world)
        await put_class(world)
        await put_claim(world, allocationMode="Immediate")
        await asyncio.sleep(100)
        assert {c.reason for c in (await world.claim("mine")).status.conditions} == {reasons.PARAMETERS_NOT_FOUND}
        await put_size(world, "count: 2")
        await asyncio.sleep(61)
        claim = await world.claim("mine")
        assert claim.status.allocation is not None
        assert claim.status.allocation.units == 2
        assert {(c.type, c.status) for c in claim.status.conditions} == {
            ("Accepted", "True"),
            ("Allocated", "True"),
            ("Ready", "True"),
        }

    play(scenario)


def test_a_kind_that_the_driver_does_not_name_is_refused(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = Refusing(world)
        world.start_parley(client, drivers=[TokensDriver()])
        await world.add_node("node-1")
        await put_class(world)
        await put_template(world, reference={"kind": "Secret", "name": "s"})
        await world.add_pod("p", "one")
        await asyncio.sleep(10)
        message = (
            "parametersRef of template default/one: the driver takes no parameters from a Secret: name a ConfigMap"
        )
        assert await said(world, "p") == (reasons.PARAMETERS_INVALID, message)
        assert client.reads == []

    play(scenario)


SIZES = Resource("licences.example.com", "v1", "sizes", "Size", True, dict[str, Any])
POOLS = Resource("licences.example.com", "v1", "pools", "Pool", False, dict[str, Any])


class OfItsKinds(TokensDriver):
    """Takes parameters from kinds of its own."""

    parameter_kinds = (SIZES, POOLS)


def test_a_driver_takes_parameters_from_the_spec_of_kinds_that_it_names(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley(drivers=[OfItsKinds()])
        await world.add_node("node-1")
        await world.create(POOLS, {"metadata": {"name": "big"}, "spec": {"pool": 7}})
        await world.create(SIZES, {"metadata": {"name": "seven"}, "spec": {"count": 7}, "status": {"any": 1}})
        await put_class(world, parametersRef={"apiGroup": POOLS.group, "kind": "Pool", "name": "big"})
        await put_template(world, reference={"apiGroup": SIZES.group, "kind": "Size", "name": "seven"})
        await world.add_pod("p", "one")
        await world.settle()
        assert counted(world) == [7]

    play(scenario)


def test_a_claim_names_nothing_outside_its_namespace(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley(drivers=[OfItsKinds()])
        await world.add_node("node-1")
        await put_class(world)
        await put_size(world, "count: 1", namespace="else")
        await put_template(world)
        await put_template(world, "two", {"apiGroup": POOLS.group, "kind": "Pool", "name": "big"})
        await world.add_pod("p", "one")
        await world.add_pod("q", "two")
        await asyncio.sleep(100)
        assert (await said(world, "p"))[0] == reasons.PARAMETERS_NOT_FOUND
        assert await said(world, "q") == (
            reasons.PARAMETERS_INVALID,
            "parametersRef of template default/two: Pool of licences.example.com is in no namespace: only a "
            "ResourceClass can name one",
        )

    play(scenario)
