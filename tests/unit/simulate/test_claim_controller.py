"""The simulated claim controller alone: the test plays scheduler, Parley and kubelet."""

from typing import Any

from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, PODS
from parley.kube.client import Client
from parley.simulate.claim_controller import ClaimController

REQUEST = {"name": "exclusive", "exactly": {"deviceClassName": "being-negotiated.parley.dev"}}


def model(client: Client, _clock: Any) -> ClaimController:
    return ClaimController(client)


async def template(world: Any) -> None:
    meta = {"labels": {"tier": "gold"}, "annotations": {"note": "n"}}
    spec = {"metadata": meta, "spec": {"devices": {"requests": [REQUEST]}}}
    await world.client.create(BUILTIN_TEMPLATES, {"metadata": {"name": "t"}, "spec": spec}, "team")


def users(claim: Any) -> list[str]:
    return [consumer.name for consumer in claim.status.reserved_for]


def test_a_pod_gets_a_claim_from_its_template(alone: Any) -> None:
    async def story(world: Any) -> None:
        pod = await world.pod("p", template="t")
        await world.settle()
        assert await world.claims() == []

        await template(world)
        await world.settle()
        [claim] = await world.claims()
        assert claim.metadata.name.startswith("p-entry-")
        assert claim.metadata.labels == {"tier": "gold"}
        assert claim.metadata.annotations == {"note": "n", "resource.kubernetes.io/pod-claim-name": "entry"}
        assert [(o.kind, o.uid, o.controller) for o in claim.metadata.owner_references] == [
            ("Pod", pod.metadata.uid, True)
        ]
        assert claim.spec.devices.requests[0].name == "exclusive"
        [status] = (await world.the_pod("p")).status.resource_claim_statuses
        assert (status.name, status.resource_claim_name) == ("entry", claim.metadata.name)

    alone(model, story)


def test_a_claim_that_is_there_already_is_adopted(alone: Any) -> None:
    async def story(world: Any) -> None:
        pod = await world.pod("p", template="t")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid, "controller": True}
        entry = {"resource.kubernetes.io/pod-claim-name": "entry"}
        await world.claim("mine", ownerReferences=[owner], annotations=entry)
        await template(world)
        await world.settle()

        [status] = (await world.the_pod("p")).status.resource_claim_statuses
        assert status.resource_claim_name == "mine"
        assert len(await world.claims()) == 1

    alone(model, story)


def test_a_deleted_claim_is_made_anew_under_another_name(alone: Any) -> None:
    async def story(world: Any) -> None:
        await template(world)
        await world.pod("p", template="t")
        await world.settle()
        [before] = await world.claims()
        await world.client.delete(BUILTIN_CLAIMS, before.metadata.name, "team")
        await world.settle()

        [after] = await world.claims()
        [status] = (await world.the_pod("p")).status.resource_claim_statuses
        assert after.metadata.name != before.metadata.name
        assert status.resource_claim_name == after.metadata.name

    alone(model, story)


def test_a_finished_pod_loses_its_reservation_and_then_its_claim(alone: Any) -> None:
    async def story(world: Any) -> None:
        await template(world)
        pod = await world.pod("p", ["named"], template="t", nodeName="n1")
        await world.claim("named")
        await world.allocate("named", "n1", pods=[pod])
        await world.settle()
        assert len(await world.claims()) == 2

        await world.pod_status("p", {"phase": "Succeeded"})
        await world.settle()
        [left] = await world.claims()
        assert (left.metadata.name, users(left)) == ("named", [])

    alone(model, story)


def test_reservations_of_pods_that_are_gone_or_replaced_are_dropped(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.claim("c")
        pod = await world.pod("p", ["c"])
        await world.allocate("c", "n1", pods=[pod])
        await world.client.delete(PODS, "p", "team")
        await world.pod("p", ["c"])
        await world.settle()

        claim = await world.the_claim("c")
        assert (users(claim), claim.status.allocation is None) == ([], False)

    alone(model, story)


def test_a_pod_bound_by_others_has_its_claims_reserved(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.claim("c")
        await world.pod("p", ["c"], nodeName="n1")
        await world.allocate("c", "n1")
        await world.settle()
        assert users(await world.the_claim("c")) == ["p"]

    alone(model, story)
