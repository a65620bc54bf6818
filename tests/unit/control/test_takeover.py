"""A new leader changes every claim that a former leader's late write could allocate, and none else."""

import asyncio
from typing import Any

import pytest
from tests.support.faults import NumberedCall
from tests.unit.control.builders import NAMESPACE, World, played, pod_manifest

from parley.api.builtin import BuiltinClaim
from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, PODS
from parley.control.objects.mirror import allocation_body, offer_body
from parley.control.takeover import fence_acceptances, fence_former_leaders
from parley.kube.client import BadRequest, Conflict, Forbidden, OutcomeUnknown, ServerError
from parley.kube.responses import refusal
from parley.sdk import Allocation

NO_ROLES_YET = (
    'resourceclaims.resource.k8s.io "p-waits" is forbidden: User "system:serviceaccount:parley-system:parley" '
    'cannot patch resource "resourceclaims" in API group "resource.k8s.io" in the namespace "default"'
)
"""As API servers say that have just started."""


async def claims(world: World) -> dict[str, BuiltinClaim]:
    """One that waits, one that is offered, one that is allocated, and one that is not Parley's."""
    pod = await world.put(PODS, pod_manifest("p"))
    made = {name: await world.generated(pod, name) for name in ("waits", "offered", "allocated")}
    offer = offer_body(made["offered"], "tokens.parley.dev", ["node-1"], "2026-01-01T00:00:00Z")
    await world.patch_status(BUILTIN_CLAIMS, "p-offered", {"allocation": offer})
    body = allocation_body(
        made["allocated"],
        "tokens.parley.dev",
        Allocation(),
        ["node-1"],
        "2026-01-01T00:00:00Z",
        node_part=True,
    )
    await world.patch_status(BUILTIN_CLAIMS, "p-allocated", {"allocation": body})
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    await world.put(BUILTIN_CLAIMS, {"metadata": {"name": "other"}, "spec": {"devices": {"requests": [request]}}})
    return {name: await world.the_mirror(name) for name in ("p-waits", "p-offered", "p-allocated", "other")}


async def write_late(world: World, before: BuiltinClaim, status: dict[str, Any]) -> None:
    """What a former leader decided on the claim as it was."""
    meta = before.metadata
    body = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": status}
    await world.admin.patch(BUILTIN_CLAIMS, meta.name, body, NAMESPACE, subresource="status")


def test_what_was_decided_on_an_earlier_state_of_a_claim_that_waits_or_is_offered_is_refused() -> None:
    async def story(world: World) -> None:
        before = await claims(world)
        changed = await fence_former_leaders(world.client, world.cluster)
        assert {claim.metadata.name for claim in changed.values()} == {"p-waits", "p-offered"}
        assert len(world.writes) == 2
        for name in ("p-waits", "p-offered"):
            with pytest.raises(Conflict):
                await write_late(world, before[name], {"devices": None})
        for name in ("p-allocated", "other"):
            assert await world.the_mirror(name) == before[name]

    played(story)


def test_nobody_prevents_that_by_filling_the_annotations_of_a_claim() -> None:
    async def story(world: World) -> None:
        pod = await world.put(PODS, pod_manifest("p"))
        await world.generated(pod, "waits")
        now = (await world.the_mirror("p-waits")).metadata.annotations
        full = 256 * 1024 - sum(len(key) + len(value) for key, value in now.items()) - len("a/b")
        body = {"metadata": {"annotations": {"a/b": "x" * full}}}
        await world.admin.patch(BUILTIN_CLAIMS, "p-waits", body, NAMESPACE)
        before = await world.the_mirror("p-waits")

        await fence_former_leaders(world.client, world.cluster)

        with pytest.raises(Conflict):
            await write_late(world, before, {"devices": None})

    played(story)


def test_it_returns_what_was_written_since_the_cache_saw_the_claim() -> None:
    async def story(world: World) -> None:
        before = await claims(world)
        offer = offer_body(before["p-waits"], "tokens.parley.dev", ["node-1"], "2026-01-01T00:00:00Z")
        late = world.admin.patch(
            BUILTIN_CLAIMS, "p-waits", {"status": {"allocation": offer}}, NAMESPACE, subresource="status"
        )
        await late  # and no time for the cache to see it
        changed = await fence_former_leaders(world.client, world.cluster)
        assert changed[before["p-waits"].metadata.uid].status.allocation is not None

    played(story)


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (ServerError(503, "", "busy"), True),
        (Forbidden(403, "", "a policy"), False),
        (Forbidden(403, "Forbidden", NO_ROLES_YET), True),
        (BadRequest(400, "", "a webhook"), False),
        (refusal(500, "", b'{"code":500,"message":"etcdserver: request is too large"}'), False),
    ],
    ids=str,
)
def test_a_busy_server_is_asked_again_and_one_that_refuses_keeps_nobody_from_leading(
    error: Exception, changes: bool
) -> None:
    async def story(world: World) -> None:
        before = await claims(world)
        failed: list[NumberedCall] = []

        def fail(call: NumberedCall) -> None:
            if call.writes and call.name == "p-waits" and not failed:
                failed.append(call)
                raise error

        world.before = fail
        changed = await fence_former_leaders(world.client, world.cluster)
        assert len(failed) == 1
        assert (before["p-waits"].metadata.uid in changed) is changes

    played(story)


@pytest.mark.parametrize(
    "error",
    [
        refusal(500, "", b'{"code":500,"message":"failed calling webhook: connection refused"}'),
        Conflict(409, "Conflict", "its user writes it all the time"),
        OutcomeUnknown("a webhook takes longer than the lease allows"),
    ],
    ids=str,
)
def test_one_that_nobody_can_change_keeps_nobody_from_leading(error: Exception) -> None:
    async def story(world: World) -> None:
        before = await claims(world)

        def fail(call: NumberedCall) -> None:
            if call.writes and call.name == "p-waits":
                raise error

        world.before = fail
        async with asyncio.timeout(120):
            changed = await fence_former_leaders(world.client, world.cluster)
        assert set(changed) == {before["p-offered"].metadata.uid}

    played(story)


def test_many_that_fail_do_not_keep_another_one_from_being_changed() -> None:
    async def story(world: World) -> None:
        pod = await world.put(PODS, pod_manifest("p"))
        for number in range(40):
            await world.generated(pod, f"a{number}")
        await world.generated(pod, "z")

        def fail(call: NumberedCall) -> None:
            if call.writes and call.name.startswith("p-a"):
                raise ServerError(500, "InternalError", "failed calling webhook")

        world.before = fail
        taking_over = asyncio.create_task(fence_former_leaders(world.client, world.cluster))
        await asyncio.sleep(1)
        assert "parley.dev/settled" in (await world.the_mirror("p-z")).metadata.labels
        await taking_over

    played(story)


def test_a_claim_is_not_accepted_late() -> None:
    async def story(world: World) -> None:
        await world.put(CLAIMS, {"metadata": {"name": "now"}, "spec": {"resourceClassName": "gpu"}})
        before = await world.admin.get(CLAIMS, "now", NAMESPACE)
        changed = await fence_acceptances(world.client, world.cluster, [before])
        assert [claim.metadata.name for claim in changed.values()] == ["now"]
        meta = {"uid": before.metadata.uid, "resourceVersion": before.metadata.resource_version}
        body = {"metadata": meta, "status": {"driverName": "tokens.parley.dev"}}
        with pytest.raises(Conflict):
            await world.admin.patch(CLAIMS, "now", body, NAMESPACE, subresource="status")

    played(story)
