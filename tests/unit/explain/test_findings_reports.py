"""Who has reported on a waiting pod: the controller, its scheduler, the kube-controller-manager."""

import asyncio

from tests.unit.explain.conftest import Play, explained, helps, said
from tests.unit.explain.waiting_pods import NOW
from tests.unit.scheduler.conftest import AWAY, SECOND_SCHEDULER, World

from parley.api.resources import NODES
from parley.explain.findings import written_at


def test_when_the_controller_last_wrote() -> None:
    fields = [{"manager": "disk", "time": "2026-01-01T00:00:00Z"}, {"manager": "parley-controller", "time": NOW}]

    assert written_at({"metadata": {"managedFields": fields}}) == NOW
    assert written_at({"metadata": {}}) == "" == written_at(None)


def test_a_pod_with_all_of_its_claims_waits_for_its_scheduler(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        world.start_parley()
        await world.add_pod("p", "one", schedulerName="nobody")
        await world.settle()
        told = await explained(world, "p")
        assert (told.code, told.message) == (
            "Binding",
            "everything is allocated, and scheduler nobody has not bound the pod yet",
        )
        assert not said(told, "controller")
        assert helps(told) == [
            "scheduler nobody has not said anything about the pod: check whether a scheduler of that name "
            "(spec.schedulerName) runs, and recreate the pod if the name is wrong"
        ]

    play(scenario)


def test_a_claim_that_is_being_created_is_pending_and_nobody_has_to_create_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("p", "one")
        await asyncio.sleep(60)
        told = await explained(world, "p")
        assert (told.code, told.message) == (
            "",
            "the claim for 'gpu-0' is being created from template default/one",
        )
        assert [claim.state for claim in told.claims] == ["pending"]
        assert "create the claim or template in the pod's namespace" not in helps(told)
        (missing,) = said(told, "controller")
        assert missing.startswith("has not reported on the pod for 60 s")

    play(scenario)


def test_a_claim_that_kubernetes_does_not_make_is_not_parleys_to_report_on(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.stop_claim_controller()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("p", "one", "one")
        await world.settle()
        told = await explained(world, "p")
        assert not said(told, "controller")
        assert said(told, "kube-controller-manager") == [
            "has not made the pod's claims gpu-0, gpu-1 for 60 s: see the pod's events for what keeps it from "
            "that, such as a quota, or check whether it runs"
        ]

    play(scenario)


def test_what_the_controller_said_before_is_not_why_the_pod_waits(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class(whenUnused={"keepSeconds": 3600})
        await world.add_claim("c")
        await world.add_pod("has", claims=["c"])
        await world.settle()
        await world.add_pod("waits", claims=["c"])
        await world.settle()
        assert said(await explained(world, "waits"), "controller") == []

        await world.client.patch(NODES, "a", {"spec": {"unschedulable": True}})
        await world.delete_pod("has")
        await world.settle()
        told = await explained(world, "waits")
        assert told.code == "ClaimStranded"
        (earlier,) = said(told, "controller")
        assert earlier.startswith("(earlier) claim default/c is not shareable and pod default/has uses it")

    play(scenario)


def test_where_nothing_is_reported_a_pods_own_scheduler_may_be_away(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("p", "one", schedulerName=AWAY)
        await world.settle()
        (missing,) = said(await explained(world, "p"), "controller")
        assert missing.endswith(
            f"check whether it and scheduler {AWAY}, which may have to ask it first, run "
            "(kubectl -n parley-system get pods,leases)"
        )

    play(scenario)


def test_a_controller_that_has_written_an_event_has_reported(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_class()
        await world.add_claim("c")
        await world.add_pod("q", claims=["c", "nope"])
        await world.settle()
        told = await explained(world, "q")
        assert told.message.startswith("claim default/nope does not exist")
        assert not said(told, "controller"), "the event has the same words"

    play(scenario)


def test_a_pod_whose_scheduler_did_not_ask_is_not_the_controllers_to_report_on(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        requests = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100"}}}
        await world.add_pod("p", "one", containers=[requests], schedulerName=SECOND_SCHEDULER)
        await world.settle()
        told = await explained(world, "p")
        assert told.message == "scheduler parley found no node by its own filters, before it asked Parley"
        assert not said(told, "controller")
        assert "node a has what the claims request, but is not eligible: too little cpu left" in helps(told)

    play(scenario)
