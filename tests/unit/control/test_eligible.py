"""The nodes that are eligible before a driver is asked, in an order of the claim's own, and why others are not."""

from typing import Any

import pytest
from tests.unit.control.builders import TOKENS, World, a_class, played

from parley.api.builtin import NodeSelector
from parley.api.models import ResourceClass
from parley.api.names import NODE_PLUGIN, PUBLISHED_BY_LABEL
from parley.api.resources import RESOURCE_SLICES
from parley.api.selectors import node_selector, selector_of
from parley.control.decision.eligible import SuitableNodes


def naming(*names: str) -> NodeSelector:
    """A selector of these nodes."""
    class_ = a_class(suitableNodes=node_selector(names))
    assert class_.suitable_nodes is not None
    return selector_of(class_.suitable_nodes)


def taint(key: str, effect: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": effect}]}


@pytest.mark.parametrize(
    ("spec", "class_", "misfit"),
    [
        ({}, a_class(), ""),
        ({}, a_class(suitableNodes=node_selector(["node-1"])), ""),
        ({}, a_class(suitableNodes=node_selector(["other"])), "not among the suitableNodes of class licence"),
        ({"unschedulable": True}, a_class(), "cordoned"),
        (taint("maintenance", "NoSchedule"), a_class(), "taint maintenance:NoSchedule"),
        (taint("maintenance", "NoExecute"), a_class(), "taint maintenance:NoExecute"),
        (taint("slow", "PreferNoSchedule"), a_class(), ""),
    ],
    ids=["any", "suitable", "unsuitable", "cordoned", "tainted", "evicting", "rather-not"],
)
def test_why_a_node_is_not_eligible(spec: dict[str, Any], class_: ResourceClass, misfit: str) -> None:
    async def story(world: World) -> None:
        await world.node("node-1", **spec)
        nodes = SuitableNodes(world.state, class_, "team", "uid")
        assert nodes.misfit("node-1") == misfit
        assert list(nodes) == ([] if misfit else ["node-1"])
        assert nodes.misfits == ({"node-1": misfit} if misfit else {})

    played(story)


def test_a_node_that_is_gone_is_not_eligible() -> None:
    async def story(world: World) -> None:
        nodes = SuitableNodes(world.state, a_class(), "team", "uid")
        assert not nodes.fits("gone")
        assert nodes.misfits == {"gone": "does not exist"}

    played(story)


@pytest.mark.parametrize(
    ("node_part", "eligible"), [("Required", ["node-1"]), ("None", ["node-1", "node-2"])], ids=["needed", "not"]
)
def test_where_the_drivers_plugin_is_known_to_run_it_must_run(node_part: str, eligible: list[str]) -> None:
    async def story(world: World) -> None:
        for name in ("node-1", "node-2"):
            await world.node(name)
        spec = {"driver": TOKENS, "nodeName": "node-1", "pool": {"name": "node-1", "generation": 1}}
        metadata = {"name": "node-1-tokens", "labels": {PUBLISHED_BY_LABEL: NODE_PLUGIN}}
        await world.put(RESOURCE_SLICES, {"metadata": metadata, "spec": spec})
        nodes = SuitableNodes(world.state, a_class(nodePart=node_part), "team", "uid")
        assert sorted(nodes) == eligible

    played(story)


def test_what_a_driver_proposes_has_to_match_every_selector_and_to_be_eligible() -> None:
    async def story(world: World) -> None:
        for name in ("node-1", "node-2", "node-3"):
            await world.node(name)
        await world.node("cordoned", unschedulable=True)
        nodes = SuitableNodes(world.state, a_class(), "team", "uid")
        proposed = [naming("node-1", "node-2", "cordoned"), naming("node-2", "node-3", "cordoned")]
        assert list(nodes.matching(proposed)) == ["node-2"]

    played(story)


def test_looking_anew_begins_where_the_first_look_did_and_knows_nothing_of_it() -> None:
    async def story(world: World) -> None:
        for name in ("node-1", "node-2", "node-3"):
            await world.node(name)
        await world.node("cordoned", unschedulable=True)
        nodes = SuitableNodes(world.state, a_class(), "team", "uid")
        looked = list(nodes)
        anew = nodes.fresh_copy()
        assert anew.misfits == {}
        assert list(anew) == looked

    played(story)
