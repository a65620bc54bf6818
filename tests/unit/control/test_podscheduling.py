"""How a pod's negotiation went, in one object, written once where that is enough."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.control.builders import NAMESPACE, TOKENS, World, played
from tests.unit.control.published import ANSWER, ASKED, BOUND, GPU, OUTCOME, POD, WAITING, Published

from parley.api import reasons
from parley.api.names import DRIVERS_LABEL, FIELD_MANAGER, STANDALONE
from parley.api.resources import POD_SCHEDULINGS
from parley.control.objects.pod import reference
from parley.control.publishing.podscheduling import REWRITES, Publisher, Question, Report, body
from parley.kube.client import NotFound, ServerError
from parley.kube.queue import WorkQueue
from parley.negotiation.answers import Answer
from parley.negotiation.rounds import MAX_CANDIDATES, Outcome


def test_the_object_is_the_pods_and_tells_candidates_answers_and_selected_node() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(BOUND)
        shown = await published.shown()
        assert [owner.uid for owner in shown.metadata.owner_references] == [published.pod.uid]
        assert (shown.spec.candidate_nodes, shown.spec.round) == (("node-1", "node-2"), 2)
        assert shown.spec.selected_node == "node-1"
        assert (shown.status.candidates, shown.status.viable) == (2, 1)
        (claim,) = shown.status.claims
        assert (claim.name, claim.driver_name, claim.round) == ("gpu", TOKENS, 2)
        assert (claim.viable_nodes, claim.reason) == (("node-1",), "node-2: 0 of 1 device free")
        assert claim.alternatives is not None
        assert claim.alternatives.nodes == ("node-3",)

    played(story)


def test_no_more_is_written_than_the_api_takes() -> None:
    many = replace(
        WAITING, outcome=Outcome(1, tuple(f"n{n}" for n in range(MAX_CANDIDATES + 1))), message="x" * 5000
    )
    written = body(POD, many)
    assert len(written["spec"]["candidateNodes"]) == MAX_CANDIDATES
    assert written["status"]["candidates"] == MAX_CANDIDATES + 1
    assert len(written["status"]["message"]) == 4096


def test_a_question_to_drivers_outside_names_their_claims_and_leaves_the_answers_to_them() -> None:
    written = body(POD, ASKED)
    assert written["metadata"]["labels"] == {DRIVERS_LABEL: STANDALONE}
    assert written["spec"]["claims"] == [
        {"name": "disk", "driverName": "outside.example.com", "resourceClaimName": "p-disk"}
    ]
    assert written["status"]["claims"] == []
    assert "labels" not in body(POD, BOUND)["metadata"]


def test_the_latest_state_is_written_once() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(replace(WAITING, message="older"), WAITING)
        assert (await published.shown()).status.message == "no room"
        await published.publish(WAITING)
        await published.publisher.publish(published.pod)
        assert published.writes == ["create"]
        await published.publish(BOUND)
        assert published.writes == ["create", "patch"]
        assert (await published.shown()).status.waiting_for == ""

    played(story)


def test_what_an_earlier_run_wrote_is_written_over() -> None:
    async def story(world: World) -> None:
        pod = await world.pod()
        await Published(world, pod).publish(WAITING)
        again = Published(world, pod)
        await again.publish(BOUND)
        assert (await again.shown()).spec.selected_node == "node-1"

    played(story)


def test_what_could_not_be_written_is_still_wanted() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())

        def fail(_: object) -> None:
            raise ServerError(500, "InternalError", "out of order")

        world.before = fail
        with pytest.raises(ServerError):
            await published.publish(WAITING)
        assert published.publisher.known(published.pod)
        world.before = lambda call: None
        await published.publisher.publish(published.pod)
        assert (await published.shown()).status.message == "no room"

    played(story)


@pytest.mark.parametrize("under_way", [False, True])
def test_what_was_written_before_is_written_again_after_another_state(under_way: bool) -> None:
    """The other one is about to be written, or is being written."""

    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(ASKED)
        other = replace(ASKED, selected="", waiting_for=reasons.LIMIT_REACHED)
        published.publisher.enqueue(published.pod, other)
        if under_way:
            world.before = lambda _: published.publisher.enqueue(published.pod, ASKED)
            await published.publisher.publish(published.pod)
            world.before = lambda _: None
        else:
            published.publisher.enqueue(published.pod, ASKED)
        await published.publisher.publish(published.pod)
        assert (await published.shown()).spec.selected_node == "node-1"

    played(story)


def test_one_that_keeps_being_deleted_is_written_less_and_less_soon() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        publisher, pod = published.publisher, published.pod
        waiting = []
        for _ in range(3):
            publisher.enqueue(pod, WAITING)
            waiting.append((published.queue.statistics().ready, published.queue.statistics().delayed))
            await publisher.publish(pod)
            publisher.scheduling_deleted(pod)
        assert waiting[0] == (1, 0)
        assert waiting[1] == (1, 1)
        assert REWRITES.delay(1) < REWRITES.delay(2)
        publisher.forget(pod)
        assert not publisher.known(pod)

    played(story)


def test_when_it_is_closed_no_driver_outside_is_asked_to_allocate() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(ASKED)
        assert (await published.shown()).spec.selected_node == "node-1"
        await published.publisher.close(published.pod)
        shown = await published.shown()
        assert (shown.spec.selected_node, shown.spec.claims) == ("", ())

    played(story)


def test_closing_costs_nothing_where_no_driver_outside_was_asked_to_allocate() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(WAITING)
        await published.publisher.close(published.pod)
        assert published.writes == ["create"]
        with pytest.raises(NotFound):
            await world.admin.get(POD_SCHEDULINGS, "other", NAMESPACE)

    played(story)


QUIET = replace(ASKED, waiting_for="")
"""A node is selected without a question, and nobody needs to know what the pod waits for."""


def test_a_selection_that_says_all_that_there_is_to_say_of_a_bound_pod_is_not_written_again() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(QUIET)
        assert not published.publisher.pod_bound(published.pod, "node-2")
        assert published.publisher.pod_bound(published.pod, "node-1")

    played(story)


@pytest.mark.parametrize("report", [WAITING, ASKED, BOUND])
def test_what_waits_or_asks_nobody_is_written_for_a_bound_pod(report: Report) -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(report)
        assert not published.publisher.pod_bound(published.pod, "node-1")

    played(story)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_bound_pods_selection_is_withdrawn_before_its_claims_are_taken_back(restarted: bool) -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(QUIET)
        assert published.publisher.pod_bound(published.pod, "node-1")
        publisher = published.publisher
        if restarted:
            publisher = Publisher(world.client, WorkQueue(), world.cluster.scheduling, world.cluster.has_pod)
            publisher.adopt(published.pod, asked=True)
        await publisher.close(published.pod)
        shown = await published.shown()
        assert (shown.spec.selected_node, shown.spec.claims) == ("", ())

    played(story)


@pytest.mark.parametrize(
    "late",
    [
        replace(ASKED, selected="node-2"),
        replace(ASKED, selected=""),
        replace(ASKED, outcome=Outcome(0, ("node-1",))),
        replace(ASKED, outcome=Outcome(1, ("node-2",))),
        replace(ASKED, question=Question()),
    ],
    ids=["other-node", "no-node", "earlier-round", "other-candidates", "no-claims"],
)
def test_a_question_that_a_late_write_undid_is_asked_again_less_and_less_soon(late: Report) -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(ASKED)
        for times in (1, 2):
            await world.seen()
            published.publisher.scheduling_changed(published.pod)
            assert len(published.writes) == times
            await undo(world, published, late)
            published.publisher.scheduling_changed(published.pod)
            assert published.queue.statistics().delayed == 1
            await published.publisher.publish(published.pod)
            shown = await published.shown()
            assert (shown.spec.selected_node, shown.spec.round, len(shown.spec.claims)) == ("node-1", 1, 1)
            assert shown.spec.candidate_nodes == ("node-1",)
        assert len(published.writes) == 3

    played(story)


@pytest.mark.parametrize("report", [BOUND, WAITING, "closed"], ids=["bound", "waiting", "closed"])
def test_what_a_late_write_asks_of_a_pod_that_asks_nothing_is_taken_back(report: Report | str) -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(ASKED)
        if isinstance(report, Report):
            await published.publish(replace(report, question=Question()))
        else:
            await published.publisher.close(published.pod)
        await undo(world, published, ASKED)
        published.publisher.scheduling_changed(published.pod)
        await published.publisher.publish(published.pod)
        assert (await published.shown()).spec.claims == ()

    played(story)


@pytest.mark.parametrize("report", [BOUND, WAITING], ids=["bound", "waiting"])
def test_a_pod_whose_classes_are_of_drivers_inside_by_now_asks_nobody_outside(report: Report) -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(ASKED)
        await world.seen()
        await published.publish(report)
        assert (await published.shown()).spec.claims == ()

    played(story)


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "cache-behind"])
def test_alternatives_that_are_not_answered_any_more_do_not_stop_the_question(seen: bool) -> None:
    """They were written while no driver outside was asked; an apply that leaves them out leaves null of them."""

    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        inside = Answer(("node-1",), None, {})
        asks = replace(
            ASKED, outcome=replace(ASKED.outcome, answers={"gpu": inside}), drivers={**ASKED.drivers, **GPU}
        )
        await published.publish(asks)
        await published.publisher.close(published.pod)
        await published.publish(replace(WAITING, drivers=GPU))
        other = replace(OUTCOME, answers={"gpu": replace(ANSWER, alternatives=("node-4",))})
        await published.publish(replace(asks, outcome=other, selected=""))
        if seen:
            await world.seen()
        await published.publish(asks)
        shown = await published.shown()
        assert [(one.name, one.alternatives) for one in shown.status.claims] == [("gpu", None)]
        assert [asked.name for asked in shown.spec.claims] == ["disk"]

    played(story)


def test_closing_goes_by_what_the_api_shows() -> None:
    """A late write that has not been answered with another one yet."""

    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(replace(BOUND, question=Question()))
        await undo(world, published, ASKED)
        await published.publisher.close(published.pod)
        shown = await published.shown()
        assert (shown.spec.selected_node, shown.spec.claims) == ("", ())
        before = len(published.writes)
        await published.publisher.close(published.pod)  # the cache does not show it yet
        assert len(published.writes) == before

    played(story)


def test_what_the_cache_shows_of_earlier_writes_is_not_written_over() -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await published.publish(ASKED)
        await world.seen()
        await published.publish(replace(BOUND, question=Question()))
        published.publisher.scheduling_changed(published.pod)
        await published.publisher.close(published.pod)
        assert len(published.writes) == 2

    played(story)


async def undo(world: World, published: Published, late: Report) -> None:
    """An earlier write of the controller's arrives late; the cache shows it."""
    await world.admin.apply(
        POD_SCHEDULINGS, "p", body(published.pod, late), NAMESPACE, field_manager=FIELD_MANAGER, force=True
    )
    await world.seen()


async def is_told_late(published: Published) -> None:
    """Whoever looked at the pod when it went says how that ended."""
    await published.gone()
    await published.publish(WAITING)


async def was_there_before(published: Published) -> None:
    """A pod that had gone when the controller began."""
    await published.gone()
    published.publisher.adopt(published.pod, asked=True)
    await published.deleted()


async def was_collected_before(published: Published) -> None:
    """The same, and its PodScheduling went while the controller restored: nothing more is seen of it."""
    await published.gone()
    published.publisher.adopt(published.pod, asked=True)


def remembered(publisher: Publisher) -> tuple[object, ...]:
    return publisher._wanted, publisher._written, publisher._versions, publisher._losses


@pytest.mark.parametrize("way", [is_told_late, was_there_before, was_collected_before])
def test_nothing_is_remembered_of_pods_that_are_gone(way: Callable[[Published], Awaitable[None]]) -> None:
    async def story(world: World) -> None:
        published = Published(world, await world.pod())
        await way(published)
        assert remembered(published.publisher) == ({}, {}, {}, {})

    played(story)


def test_nor_of_one_that_goes_while_a_write_fails() -> None:
    async def story(world: World) -> None:
        there = {reference(await world.pod())}
        publisher = Publisher(world.client, WorkQueue(), world.cluster.scheduling, there.__contains__)
        (pod,) = there
        publisher.enqueue(pod, WAITING)

        def fail(_: object) -> None:
            there.clear()
            publisher.forget(pod)
            raise ServerError(500, "InternalError", "out of order")

        world.before = fail
        with pytest.raises(ServerError):
            await publisher.close(pod)
        assert remembered(publisher) == ({}, {}, {}, {})

    played(story)
