"""Room that claims reserve: who has it, and whom it keeps out."""

import asyncio
from typing import Any

import pytest
from tests.support.containers import requesting
from tests.unit.explain.conftest import Play, explained, helps, text_of
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api import reasons
from parley.api.resources import CLAIM_RELEASES, CLAIMS, CLASSES
from parley.explain.text import claim_state


def test_what_a_claim_reserves_is_shown_with_it_and_keeps_others_out(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        await claim(world, "build-42", {"cpu": "2", "memory": "4Gi", "pods": 3})
        await claim(world, "other")
        await task(world, "clone", "build-42")
        await task(world, "waits", "other", cpu="7")

        holder, waiter = await explained(world, "clone"), await explained(world, "waits")

        (state,) = (claim_state(one, holder) for one in holder.claims)
        assert state.startswith("allocated on node node-1, reserves 2 cpu, 4Gi memory, 3 pod slots there: node-1/")
        (row,) = waiter.nodes
        assert row.fit == "too little cpu left: 1 cpu is reserved for claim default/build-42"

    play(scenario)


def test_to_whom_a_reservation_yields_is_shown_with_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1", yields_to=["night", "weekend"])
        await claim(world, "build-42", {"cpu": "2"})
        await task(world, "clone", "build-42")

        holder = await explained(world, "clone")

        (state,) = (claim_state(one, holder) for one in holder.claims)
        assert state.startswith(
            "allocated on node node-1, reserves 2 cpu there and yields to pods of class night, weekend: node-1/"
        )

    play(scenario)


def test_claims_of_other_namespaces_are_named_to_who_may_read_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        parameters: dict[str, Any] = {"reserve": {"cpu": "8"}, "size": "1Mi"}
        spec = {"resourceClassName": "workspace", "parameters": parameters, "allocationMode": "Immediate"}
        body = {"metadata": {"name": "build"}, "apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind}
        await world.client.create(CLAIMS, {**body, "spec": spec}, "other")
        await claim(world, "mine")
        await asyncio.sleep(5)
        await task(world, "waits", "mine")

        told = text_of(await explained(world, "waits"))

        assert "8 cpu are reserved for claim other/build" in " ".join(told.split())
        assert "claim other/build" not in (await world.scheduling("waits")).status.message
        assert NAMESPACE != "other"

    play(scenario)


def test_room_is_free_when_the_last_pod_of_its_claim_ends(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        await world.client.patch(CLASSES, "workspace", {"whenUnused": None})
        await claim(world, "build", {"cpu": "6"})
        await claim(world, "other")
        await task(world, "clone", "build")
        await task(world, "waits", "other", cpu="4")

        told = await explained(world, "waits")

        assert helps(told)[0].startswith("node node-1 is free when pod default/clone ends (")
        assert [one.kind for one in told.remedies] == ["podEnds", "addNode"]
        await world.delete_pod("clone")
        await world.settle()
        assert await world.node_of("waits") == "node-1"

    play(scenario)


def test_room_is_free_when_a_claim_without_pods_ends(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        await claim(world, "build", {"cpu": "6"})
        await claim(world, "other", {"cpu": "4"})
        await task(world, "clone", "build")
        await world.delete_pod("clone")
        await world.settle()
        await task(world, "waits", "other")

        told = await explained(world, "waits")

        assert helps(told)[0].startswith("node node-1 is free when claim default/build ends (")
        assert [one.kind for one in told.remedies] == ["claimEnds", "addNode"]
        await world.client.delete(CLAIMS, "build", NAMESPACE)
        await world.settle()
        assert await world.node_of("waits") == "node-1"

    play(scenario)


def test_a_claim_of_which_only_data_is_left_reserves_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        await world.client.patch(CLASSES, "workspace", {"whenUnused": None})
        await claim(world, "build", {"cpu": "6"})
        await claim(world, "other", {"cpu": "8"})
        assert await task(world, "clone", "build") == "node-1"
        await task(world, "fills", cpu="1", nodeName="node-1", schedulerName="")
        world.kubelets.stop("node-1")
        await world.force_delete("clone")
        await world.settle()
        (receipt,) = (await world.client.list(CLAIM_RELEASES)).items
        await world.client.delete(CLAIM_RELEASES, receipt.metadata.name)
        await world.settle()
        assert (await world.claim("build")).status.allocation is not None

        await task(world, "waits", "other")

        told = text_of(await explained(world, "waits"))

        assert "too little cpu left to reserve 8 cpu for claim default/other" in " ".join(told.split())
        assert "claim default/build" not in told

    play(scenario)


def test_ordinary_pods_may_have_the_room_that_is_to_be_reserved(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        await world.add_pod("fills", containers=requesting(cpu="6"))
        await world.settle()
        await claim(world, "build", {"cpu": "4"})
        await task(world, "waits", "build")

        told = await explained(world, "waits")

        assert helps(told)[0].startswith("node node-1 is free when pod default/fills ends (")
        await world.delete_pod("fills")
        await world.settle()
        assert await world.node_of("waits") == "node-1"

    play(scenario)


def test_who_has_to_leave_a_full_node_where_the_claim_is(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world, "node-1")
        await claim(world, "build", {"cpu": "2"})
        await task(world, "clone", "build")
        await world.add_pod("fills", containers=requesting(cpu="6"))
        await world.settle()
        await task(world, "waits", "build", cpu="3")

        told = await explained(world, "waits")

        assert told.code == reasons.CLAIM_STRANDED
        assert [one.pods for one in told.remedies if one.kind == "podEnds"] == [("default/fills",)]
        assert helps(told)[-1] == (
            "delete pods on the node, or delete the claim to start over elsewhere once the pods that use it have "
            "ended"
        )
        await world.delete_pod("fills")
        await world.settle()
        assert await world.node_of("waits") == "node-1"

    play(scenario)


@pytest.mark.parametrize("scheduler", ["absent", "default-scheduler"])
def test_what_a_pod_has_been_allocated_for_counts_before_it_is_bound(play: Play, scheduler: str) -> None:
    """For others, as for the controller, and not for the pod itself."""

    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 2)
        await world.add_class()
        await world.add_template("one")
        big = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "6"}}}]
        await world.add_pod("first", "one", containers=big, schedulerName=scheduler)
        await world.settle()
        await world.add_pod("next", "one", containers=big)
        await world.settle()

        first, told = await explained(world, "first"), await explained(world, "next")

        assert (first.code, first.state) in ((reasons.BINDING, "waits"), ("", "bound"))
        assert [row.fit for row in first.nodes] == [""]
        assert told.code == reasons.NO_CANDIDATES
        assert [row.fit for row in told.nodes] == ["too little cpu left"]
        assert helps(told)[0].startswith("node a is free when pod default/first ends")

    play(scenario)
