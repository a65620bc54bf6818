"""Objects that the controller can't decode, and opaque parameters that nobody can read: only their users mind."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from parley.api import reasons
from parley.api.names import DEVICE_CLASS, GROUP
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, EVENTS, NODES
from parley.kube.client import OutcomeUnknown

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

NAMESPACE = "default"
HOSTILE = {
    "deep": b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    "half a surrogate pair": b'{"a":"\\ud800"}',
    "no UTF-8": b'{"a":"\xff"}',
    "infinite": b'{"a":1e400}',
}
hostile = pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE)


async def two_devices(world: World) -> None:
    await world.add_node("a", devices=1)
    await world.add_node("b", devices=1)
    await world.add_class()
    await world.add_template()
    world.start_parley()


def figure(world: World, resource: str) -> float | None:
    assert world.controller is not None
    labels = {"resource": resource}
    return world.controller.metrics.registry.get_sample_value("parley_undecodable_objects", labels)


def asking(*configs: tuple[str, bytes]) -> dict[str, Any]:
    request = {"name": "exclusive", "exactly": {"deviceClassName": DEVICE_CLASS}}
    opaque = [{"opaque": {"driver": d, "parameters": orjson.Fragment(p)}} for d, p in configs]
    return {"devices": {"requests": [request], "config": opaque}}


async def of_the_future(world: World, name: str) -> None:
    """A node that says something which this version does not know."""
    with suppress(OutcomeUnknown):
        await world.create(NODES, {"metadata": {"name": name}, "spec": {"unschedulable": "on Sundays"}})


def test_an_object_that_cannot_be_decoded_is_told_of_and_all_goes_on(play: Any) -> None:
    async def scenario(world: World) -> None:
        await of_the_future(world, "before")
        await two_devices(world)
        await world.settle()
        await of_the_future(world, "meanwhile")
        await world.add_pod("p", "one")
        await world.settle()

        assert await world.node_of("p") in ("a", "b")
        assert figure(world, "nodes") == 2
        events = (await world.client.list(EVENTS, NAMESPACE)).items
        told = {e.regarding["name"]: e for e in events if e.reason == reasons.UNREADABLE}
        assert told.keys() == {"before", "meanwhile"}
        assert told["before"].type == "Warning"
        assert told["before"].note == (
            "Parley can't read this Node and leaves it alone: "
            "ValidationError: Expected `bool`, got `str` - at `$.spec.unschedulable`"
        )

        await world.crash()
        world.start_parley()
        await world.add_pod("q", "one")
        await world.settle()
        assert await world.node_of("q") in ("a", "b")

    play(scenario)


def test_many_of_them_are_told_of_one_after_the_other(play: Any) -> None:
    async def scenario(world: World) -> None:
        for number in range(40):
            await of_the_future(world, f"n{number}")
        world.start_parley()
        await world.settle(0.5)
        counts = []
        for _ in range(3):
            events = (await world.client.list(EVENTS, NAMESPACE)).items
            counts.append(sum(event.reason == reasons.UNREADABLE for event in events))
            await world.settle(20)
        assert counts[0] <= 5
        assert counts[-1] == 40

    play(scenario)


def test_of_one_that_changes_all_the_time_little_is_told(play: Any) -> None:
    async def scenario(world: World) -> None:
        await of_the_future(world, "n")
        world.start_parley()
        for number in range(100):
            with suppress(OutcomeUnknown):
                await world.client.patch(NODES, "n", {"spec": {"unschedulable": f"on day {number}"}})
            await world.settle(1)
        assert len(await world.events_on("n")) == 1
        assert figure(world, "nodes") == 1

    play(scenario)


@hostile
def test_who_asks_for_what_nobody_can_read_is_told(play: Any, parameters: bytes) -> None:
    async def scenario(world: World) -> None:
        await two_devices(world)
        spec = {"spec": asking((GROUP, parameters))}
        await world.create(BUILTIN_TEMPLATES, {"metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": spec})
        await world.add_pod("bad", "bad")
        await world.add_pod("good", "one")
        await world.settle()

        assert await world.node_of("good")
        ((code, note),) = await world.events_on("bad")
        assert code == reasons.PARAMETERS_INVALID
        assert note.startswith("parameters of template default/bad ")
        assert "can't be read: they " in note

    play(scenario)


@pytest.mark.parametrize(
    "parameters", [HOSTILE["deep"], b'{"a":' * 65 + b"1" + b"}" * 65], ids=["deep", "65 deep"]
)
def test_a_named_claim_is_told_too(play: Any, parameters: bytes) -> None:
    async def scenario(world: World) -> None:
        await two_devices(world)
        spec = {"resourceClassName": "gpu", "parameters": orjson.Fragment(parameters)}
        await world.create(CLAIMS, {"metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": spec})
        await world.add_pod("p", claims=["bad"])
        await world.settle()

        ((code, note),) = await world.events_on("p")
        assert code == reasons.PARAMETERS_INVALID
        assert note.startswith("parameters of claim default/bad can't be read: they ")
        (accepted,) = [c for c in (await world.claim("bad")).status.conditions if c.type == reasons.ACCEPTED]
        assert (accepted.reason, accepted.message) == (code, note)

    play(scenario)


@hostile
def test_what_is_held_stays_held_beside_what_nobody_can_read(play: Any, watcher: Any, parameters: bytes) -> None:
    async def scenario(world: World) -> None:
        looking = watcher(world)
        await two_devices(world)
        spec = asking((GROUP, b'{"resourceClassName":"gpu"}'), ("example.com", parameters))
        body = {"metadata": {"name": "odd", "namespace": NAMESPACE}, "spec": {"spec": spec}}
        await world.create(BUILTIN_TEMPLATES, body)
        await world.add_pod("first", "odd")
        await world.settle()
        assert await world.node_of("first")

        await world.crash()
        world.start_parley()
        for name in ("second", "third"):
            await world.add_pod(name, "one")
        await world.settle()

        assert sum([bool(await world.node_of(name)) for name in ("second", "third")]) == 1
        assert looking.faults == []
        looking.stop()

    play(scenario)


@hostile
def test_the_devices_of_a_foreign_claim_count_whatever_else_it_says(play: Any, parameters: bytes) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", devices=1)
        await world.add_class()
        await world.add_template()
        spec = {
            "devices": {
                "requests": [{"name": "it", "exactly": {"deviceClassName": "example"}}],
                "config": [{"opaque": {"driver": "example.com", "parameters": orjson.Fragment(parameters)}}],
            }
        }
        await world.create(BUILTIN_CLAIMS, {"metadata": {"name": "c", "namespace": NAMESPACE}, "spec": spec})
        result = {"request": "it", "driver": "device.parley.dev", "pool": "a", "device": "gpu-0"}
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await world.client.patch(BUILTIN_CLAIMS, "c", status, NAMESPACE, subresource="status")
        world.start_parley()
        await world.add_pod("p", "one")
        await world.settle()
        assert await world.node_of("p") == ""

        await world.client.delete(BUILTIN_CLAIMS, "c", NAMESPACE)
        await world.settle()
        assert await world.node_of("p") == "a"

    play(scenario)
