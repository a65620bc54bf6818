"""Room that claims reserve: who has it, and whom it keeps out."""

import asyncio
from typing import Any

from tests.unit.explain.conftest import Play, explained, text_of
from tests.unit.scheduler.conftest import NAMESPACE, World
from tests.unit.scheduler.reserving import begin, claim, task

from parley.api.resources import CLAIMS
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
