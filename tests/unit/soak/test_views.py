"""When the soak's rule about views finds that what they show was freed, and who may free it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.cluster.observed import Step
from tests.soak.rules.views import SOURCE, VIEW, Views

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS

Play = Callable[[Any], None]
FREED = [f"freed under a view: claim {SOURCE} is needed by reader-gpu-0"]


class Shown:
    """A pod on node a has a view of the claim `SOURCE`, which another pod uses there."""

    def __init__(self, world: Any) -> None:
        rules, views = world.rules, Views(world.rules, world.rules.fault)

        def observe(step: Step) -> None:
            rules.observe(step)
            views.observe(step)

        world.observe = observe
        self._world = world
        world.class_("shareable", shareable=True)
        self.source = world.claim(SOURCE)
        self.writer = world.pod("writer", "common")
        world.record(SOURCE, "a", self.writer)
        world.start(self.writer, SOURCE, "a")
        self.reader = world.pod("reader", VIEW)
        self.shows("reader-gpu-0")
        world.bind(self.reader, "a")
        world.rules.prepared(self.reader["metadata"]["uid"])

    def shows(self, view: str) -> None:
        self._world.allocate(view, "a", self.reader, "gpu-1", uses=self.source["metadata"]["uid"])


def test_what_a_view_shows_is_not_freed(play: Play) -> None:
    async def story(world: Any) -> None:
        Shown(world)
        world.clear_record(SOURCE)

        assert world.faults == FREED

    play(story)


def test_nor_let_go(play: Play) -> None:
    async def story(world: Any) -> None:
        Shown(world)
        world.delete(CLAIMS, SOURCE, "controller-1")

        assert world.faults == FREED

    play(story)


def test_nor_before_the_node_has_nothing_prepared_for_the_pod_that_was_deleted_by_force(play: Play) -> None:
    async def story(world: Any) -> None:
        Shown(world)
        world.delete(PODS, "reader", "user")
        world.clear_record(SOURCE)

        assert world.faults == FREED

    play(story)


@pytest.mark.parametrize("end", ["succeeds", "is gone"])
def test_it_may_be_freed_when_the_pod_with_the_view_has_ended(play: Play, end: str) -> None:
    async def story(world: Any) -> None:
        shown = Shown(world)
        if end == "succeeds":
            world.status(PODS, "reader", {"phase": "Succeeded"}, "kubelets")
        else:
            world.delete(PODS, "reader", "user")
            world.rules.unprepared(shown.reader["metadata"]["uid"])
        world.clear_record(SOURCE)

        assert not world.faults

    play(story)


def test_and_when_the_view_is_released_or_only_offered(play: Play) -> None:
    async def story(world: Any) -> None:
        Shown(world)
        world.pod("waiting", VIEW)
        world.offer("waiting-gpu-0", ["a"])
        world.clear("reader-gpu-0", "meddler")
        world.clear_record(SOURCE)

        assert not world.faults

    play(story)


def test_others_than_parley_may_end_it(play: Play) -> None:
    async def story(world: Any) -> None:
        Shown(world)
        world.clear_record(SOURCE, "meddler")
        world.delete(CLAIMS, SOURCE, "user")

        assert not world.faults

    play(story)


def test_its_own_pod_may_leave(play: Play) -> None:
    async def story(world: Any) -> None:
        Shown(world)
        world.status(PODS, "writer", {"phase": "Succeeded"}, "kubelets")
        world.clear(SOURCE)
        world.status(CLAIMS, SOURCE, {"reservedFor": None}, "controller-1")

        assert not world.faults

    play(story)


def test_a_view_of_another_claim_does_not_need_it(play: Play) -> None:
    async def story(world: Any) -> None:
        shown = Shown(world)
        shown.source = world.claim("disk")
        world.clear("reader-gpu-0")
        shown.shows("reader-gpu-0")
        world.clear_record(SOURCE)

        assert not world.faults
        assert world.body(BUILTIN_CLAIMS, "reader-gpu-0")["status"]["allocation"]

    play(story)
