"""What the soak reads of Parley's allocations in built-in claims, without any of Parley's own code."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.kinds.names import NAMESPACE, STANDALONE_DRIVER
from tests.soak.rules.mirrors import (
    Record,
    identity_of_claim,
    is_parleys,
    is_standalone,
    listed,
    read,
)

from parley.api.resources import BUILTIN_CLAIMS

Play = Callable[[Any], None]
P = "p-gpu-0"


def record(world: Any, claim: str = P) -> Record:
    return read(world.body(BUILTIN_CLAIMS, claim))


def test_a_claim_without_allocation_has_nothing(play: Play) -> None:
    async def story(world: Any) -> None:
        uid = world.pod("p", "one")["metadata"]["uid"]
        found = record(world)

        assert (found.name, found.identity) == ((NAMESPACE, P), (uid, "gpu-0"))
        assert not any((found.allocated, found.definite, found.offer))
        assert (found.nodes, found.devices, found.users) == ((), (), ())

    play(story)


def test_what_parley_allocates_is_definite(play: Play) -> None:
    async def story(world: Any) -> None:
        pod = world.pod("p", "one")
        world.allocate(P, "a", pod)
        found = record(world)

        assert found.allocated
        assert found.definite
        assert not found.offer
        assert (found.nodes, found.devices) == (("a",), (("a", "gpu-0"),))
        assert found.users == (pod["metadata"]["uid"],)

    play(story)


def test_an_offer_is_definite_once_a_device_was_found(play: Play) -> None:
    async def story(world: Any) -> None:
        world.pod("p", "one")
        world.offer(P, ["a", "b"])
        offered = record(world)
        world.fulfil(P, "b")
        found = record(world)

        assert offered.allocated
        assert offered.offer
        assert not offered.definite
        assert offered.nodes == ("a", "b")
        assert found.offer
        assert found.definite
        assert found.devices == (("b", "gpu-0"),)

    play(story)


def test_it_can_be_used_on_the_node_of_its_devices_only(play: Play) -> None:
    async def story(world: Any) -> None:
        world.pod("p", "one")
        world.offer(P, ["a", "b"])
        world.fulfil(P, "b")

        assert [node for node in "abc" if record(world).is_usable_on(node)] == ["b"]

    play(story)


@pytest.mark.parametrize(("zone", "nodes"), [("", "abcd"), ("east", "ab")])
def test_tokens_can_be_used_everywhere_or_in_one_zone(zone: str, nodes: str) -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}] if zone else []
    config = [{"opaque": {"driver": "tokens.parley.dev", "parameters": {"pool": "x", "count": 2}}}]
    allocation = {"devices": {"config": config}, "nodeSelector": {"nodeSelectorTerms": terms}}
    meta = {"namespace": NAMESPACE, "name": "seat", "uid": "m"}
    found = read(
        {
            "metadata": meta,
            "spec": {"devices": {"requests": [{"name": "shareable"}]}},
            "status": {"allocation": allocation},
        }
    )

    assert (found.tokens, found.zone) == (2, zone)
    assert "".join(node for node in "abcd" if found.is_usable_on(node)) == nodes
    assert not found.exclusive


def _owned(**owner: Any) -> dict[str, Any]:
    owners = [{"kind": "Pod", "name": "p", "uid": "pod-uid", **owner}]
    return {"namespace": NAMESPACE, "name": "c", "uid": "own-uid", "ownerReferences": owners}


def test_a_stand_in_is_the_generated_claim_and_a_named_claim_is_itself() -> None:
    stand_in = {**_owned(controller=True), "labels": {"parley.dev/generated-for": "gpu"}}

    assert identity_of_claim(stand_in) == ("pod-uid", "gpu")
    assert identity_of_claim(_owned(controller=True)) == ("own-uid", "")


@pytest.mark.parametrize(
    ("device_classes", "is_ours"),
    [(["being-negotiated.parley.dev"], True), (["gpu.example.com"], False), ([], False)],
)
def test_claims_of_other_drivers_are_not_parleys(device_classes: list[str], is_ours: bool) -> None:
    requests = [{"exactly": {"deviceClassName": name}} for name in device_classes]

    assert is_parleys({"spec": {"devices": {"requests": requests}}}) is is_ours


def test_a_standalone_driver_s_claim_has_its_allocation() -> None:
    assert is_standalone({"status": {"driverName": STANDALONE_DRIVER, "allocation": {"handles": []}}})
    assert not is_standalone({"status": {"driverName": STANDALONE_DRIVER}})
    assert not is_standalone({"status": {"driverName": "device.parley.dev", "allocation": {"handles": [{}]}}})


def test_devices_are_told_by_pool_and_name() -> None:
    assert listed([("a", "gpu-0"), ("b", "gpu-1")]) == "a/gpu-0 b/gpu-1"
