"""When the soak's rule about data on nodes takes it for removed, and what it finds: a device that is given on
while data is on its node, and data that is removed while pods use it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.kinds.names import typed
from tests.soak.rules.mirrors import Json

from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, NODES, PODS

Play = Callable[[Any], None]
CONTROLLER = "controller-1"
NODE_PLUGINS = "node-plugins"
REMOVED = "removed too early: data on node a of a claim with which a pod {}"


class Leaving:
    """A pod has the only device of node a by the claim `disk`, and leaves data there if it `leaves` any."""

    def __init__(self, world: Any, *, leaves: bool = True) -> None:
        world.rules.data.is_left = leaves
        self._world = world
        world.class_("gpu")
        self.claim = world.claim("disk")
        self.pod = world.pod("p", "disk")
        world.record("disk", "a", self.pod)
        world.start(self.pod, "disk", "a", folder="first")

    def ends(self) -> None:
        """The pod ends, and its claim is released."""
        self._world.status(PODS, "p", {"phase": "Succeeded"}, "kubelets")
        self._world.clear("disk")
        self._world.clear_record("disk")

    def continues(self, folder: str = "first") -> None:
        """Another pod starts with the claim."""
        self._world.clear("disk")
        self._world.clear_record("disk")
        other = self._world.pod("second", "disk")
        self._world.record("disk", "a", other)
        self._world.allocate("disk", "a", other, folder=folder)
        self._world.bind(other, "a")
        self._world.rules.prepared(other["metadata"]["uid"])

    def is_deleted_by_force(self) -> None:
        self._world.delete(PODS, "p", "user")

    def asks(self, name: str = "one", *, data: bool = True, folder: str = "first") -> None:
        """Parley asks the node."""
        meta = self.claim["metadata"]
        spec = {
            "claim": {"namespace": meta["namespace"], "name": "disk", "uid": "mirror"},
            "nodeName": "a",
            "driverName": "device.parley.dev",
            "holdingUid": meta["uid"],
            "allocation": {"handles": [{"driverName": "device.parley.dev", "data": {"folder": folder}}]},
            "removeData": data,
        }
        self._world.create(CLAIM_RELEASES, typed(CLAIM_RELEASES, {"metadata": {"name": name}, "spec": spec}))

    def answers(self, name: str = "one", who: str = NODE_PLUGINS) -> None:
        """The node answers; or the controller withdraws what it asked."""
        self._world.delete(CLAIM_RELEASES, name, who)

    def is_forced_away(self) -> None:
        """The claim and its mirror are removed by force."""
        for resource in (BUILTIN_CLAIMS, CLAIMS):
            self._world.delete(resource, "disk", "user")

    def gives_on(self) -> list[str]:
        """Another pod gets the device. Returns why it must not."""
        other: Json = self._world.pod("next", "one")
        self._world.allocate("next-gpu-0", "a", other)
        return [text.partition(":")[0] for text in self._world.faults]


HANDED_OUT_TWICE = ["handed out twice"]


def test_a_device_is_not_given_on_while_data_is_there(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.ends()

        assert leaving.gives_on() == HANDED_OUT_TWICE
        place = next(iter(world.rules.data.places))
        assert (place.claim, place.node, place.folder) == (leaving.claim["metadata"]["uid"], "a", "first")

    play(story)


def test_where_pods_leave_nothing_it_may_be(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world, leaves=False)
        leaving.ends()

        assert leaving.gives_on() == []

    play(story)


def test_it_may_be_when_the_node_has_removed_the_data(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.ends()
        leaving.asks()
        leaving.answers()

        assert leaving.gives_on() == []
        assert not world.rules.data.places

    play(story)


@pytest.mark.parametrize(
    ("asked", "who"),
    [({"data": False}, NODE_PLUGINS), ({"folder": "earlier"}, NODE_PLUGINS), ({}, CONTROLLER)],
    ids=["asked for something else", "asked for an earlier allocation's", "withdrawn"],
)
def test_but_not_when_it_was_not_asked_to_or_did_not_answer(play: Play, asked: dict[str, Any], who: str) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.ends()
        leaving.asks(**asked)
        leaving.answers(who=who)

        assert leaving.gives_on() == HANDED_OUT_TWICE

    play(story)


def test_a_machine_that_is_gone_has_no_data(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.ends()
        world.delete(NODES, "a", "user")

        assert not world.rules.data.places
        assert leaving.gives_on() == []

    play(story)


def test_the_next_controller_does_not_know_of_data_of_a_claim_that_was_forced_away(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.ends()
        leaving.is_forced_away()
        world.rules.memory_lost(set())

        assert leaving.gives_on() == []

    play(story)


@pytest.mark.parametrize(
    "why",
    ["the claim is there", "the node is asked", "the node owes a receipt", "no other controller has begun"],
)
def test_else_it_does(play: Play, why: str) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.ends()
        if why.startswith("the node"):
            leaving.asks(data=why == "the node is asked")
        if why != "the claim is there":
            leaving.is_forced_away()
        if why != "no other controller has begun":
            world.rules.memory_lost(set())

        assert leaving.gives_on() == HANDED_OUT_TWICE

    play(story)


def test_data_is_not_removed_under_a_pod(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.asks()
        leaving.answers()

        assert world.faults == [REMOVED.format("runs")]

    play(story)


def test_nor_under_one_that_was_deleted_by_force_until_its_node_has_nothing_prepared(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.is_deleted_by_force()
        leaving.asks()
        leaving.answers()

        assert world.faults == [REMOVED.format("runs")]

    play(story)


def test_it_may_be_after_that(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.is_deleted_by_force()
        world.rules.unprepared(leaving.pod["metadata"]["uid"])
        leaving.asks()
        leaving.answers()

        assert not world.faults

    play(story)


def test_no_pod_starts_with_a_claim_whose_data_was_removed(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        world.status(PODS, "p", {"phase": "Succeeded"}, "kubelets")
        leaving.asks()
        leaving.answers()
        leaving.continues()

        assert world.faults == [REMOVED.format("starts")]

    play(story)


@pytest.mark.parametrize("why", ["withdrawn", "another allocation", "another machine"])
def test_one_may_start_with_what_was_not_removed(play: Play, why: str) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        world.status(PODS, "p", {"phase": "Succeeded"}, "kubelets")
        if why == "another machine":
            world.delete(NODES, "a", "user")
            world.node("a")
        else:
            leaving.asks()
            leaving.answers(who=CONTROLLER if why == "withdrawn" else NODE_PLUGINS)
        leaving.continues(**({"folder": "second"} if why == "another allocation" else {}))

        assert not world.faults

    play(story)


def test_what_an_earlier_allocation_left_may_be_removed_while_a_pod_uses_the_claim(play: Play) -> None:
    async def story(world: Any) -> None:
        leaving = Leaving(world)
        leaving.asks(folder="earlier")
        leaving.answers()

        assert not world.faults

    play(story)
