"""The longest names that the API takes: negotiated, told and recorded like any other."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.conditions import ready
from tests.support.containers import using
from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, add_shelf_class

from parley.api.resources import CLAIMS, EVENTS, NODES, POD_SCHEDULINGS, PODS, TEMPLATES

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

pytestmark = pytest.mark.scheduling_paths("native", "extender")

NAMESPACE = "n" * 63
LABEL = "e" * 63


def longest(letter: str) -> str:
    """253 characters, the most for a DNS subdomain."""
    return ".".join([letter * 63] * 3 + [letter * 61])


CLASS, TEMPLATE, CLAIM, POD, NODE = (longest(letter) for letter in "ctdpo")


async def create(world: World, resource: Any, name: str, body: dict[str, Any]) -> None:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    meta = {"metadata": {"name": name, "namespace": NAMESPACE}}
    await world.client.create(resource, {**kind, **meta, **body}, NAMESPACE)


async def begin(world: World, places: int, **class_: Any) -> None:
    await world.create(NODES, {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": "o"}}})
    status = {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}}
    await world.client.patch(NODES, NODE, {"status": status}, subresource="status")
    await add_shelf_class(world, "short")
    await world.add_class(CLASS, driverName=ShelfDriver.name, **class_)
    claim = {"resourceClassName": CLASS, "parameters": {"count": 1}}
    await create(world, TEMPLATES, TEMPLATE, {"spec": {"spec": claim}})
    await create(world, CLAIMS, CLAIM, {"spec": claim})
    world.start_parley(drivers=[ShelfDriver(Behaviour(other=places))])


async def add_pod(world: World) -> None:
    entries = [
        {"name": LABEL, "resourceClaimTemplateName": TEMPLATE},
        {"name": "d" * 63, "resourceClaimName": CLAIM},
    ]
    spec = {"resourceClaims": entries, "containers": using([{"name": "main", "image": "none"}], entries)}
    await create(world, PODS, POD, {"spec": spec})


@pytest.mark.parametrize("class_", [{}, {"placement": "Exact"}, {"nodePart": "None"}], ids=str)
def test_a_pod_with_the_longest_names_runs(play: Any, class_: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        await begin(world, places=2, **class_)
        await add_pod(world)
        await world.settle()
        pod = await world.client.get(PODS, POD, NAMESPACE)
        assert (pod.spec.node_name, pod.status.phase) == (NODE, "Running")
        scheduling = await world.client.get(POD_SCHEDULINGS, POD, NAMESPACE)
        assert scheduling.spec.selected_node == NODE
        assert {claim.name for claim in scheduling.status.claims} == {LABEL, "d" * 63}
        await world.client.delete(PODS, POD, NAMESPACE)
        await world.settle()
        claim = await world.client.get(CLAIMS, CLAIM, NAMESPACE)
        assert (ready(claim), claim.status.allocation) == ("WaitForFirstConsumer", None)

    play(scenario)


@pytest.mark.parametrize(
    ("places", "class_", "code"),
    [(1, {}, "NothingViable"), (9, {"limits": [{"claims": 1}]}, "LimitReached")],
    ids=["nothing-viable", "limit"],
)
def test_a_pod_with_the_longest_names_is_told_why_it_waits(
    play: Any, places: int, class_: dict[str, Any], code: str
) -> None:
    async def scenario(world: World) -> None:
        await begin(world, places=places, **class_)
        await add_pod(world)
        await world.settle()
        status = (await world.client.get(POD_SCHEDULINGS, POD, NAMESPACE)).status
        assert status.waiting_for == code
        ((reason, note),) = [(e.reason, e.note) for e in (await world.client.list(EVENTS, NAMESPACE)).items]
        assert reason == code
        assert note == status.message
        assert (NODE if code == "NothingViable" else CLASS) in note

    play(scenario)


def test_a_note_is_cut_to_what_the_api_server_takes_in_bytes(play: Any) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        await add_shelf_class(world)
        unknown = {f"{number}{'ü' * 90}": "ü" * 90 for number in range(8)}
        await world.add_template("odd", "shelf", **unknown)
        world.start_parley(drivers=[ShelfDriver(Behaviour())])
        await world.add_pod("p", "odd")
        await world.settle()
        ((reason, note),) = await world.events_on("p")
        assert reason == "ParametersInvalid"
        assert 1000 < len(note.encode()) <= 1024

    play(scenario)
