"""The simulated claim controller alone: the test plays scheduler, Parley and kubelet."""

from typing import Any

from tests.support.faults import FaultClient

from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, PODS
from parley.kube.client import Call, Client
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


def test_a_deleted_claim_is_made_anew_under_another_name_at_the_pods_next_change(
    alone: Any,
) -> None:
    async def story(world: Any) -> None:
        await template(world)
        await world.pod("p", template="t")
        await world.settle()
        [before] = await world.claims()
        await world.client.delete(BUILTIN_CLAIMS, before.metadata.name, "team")
        await world.settle()
        assert await world.claims() == []

        await world.pod_status("p", {"message": "a change"})
        await world.settle()
        [after] = await world.claims()
        [status] = (await world.the_pod("p")).status.resource_claim_statuses
        assert after.metadata.name != before.metadata.name
        assert status.resource_claim_name == after.metadata.name

    alone(model, story)


def test_a_terminal_pods_claim_is_made_anew_and_deleted_again_at_its_next_change(alone: Any) -> None:
    async def story(world: Any) -> None:
        await template(world)
        await world.pod("p", template="t")
        await world.settle()
        [before] = await world.claims()
        await world.pod_status("p", {"phase": "Succeeded"})
        await world.settle()
        assert await world.claims() == []

        await world.pod_status("p", {"message": "a change"})
        await world.settle()
        assert await world.claims() == []
        [status] = (await world.the_pod("p")).status.resource_claim_statuses
        assert status.resource_claim_name != before.metadata.name

    alone(model, story)


def test_a_deleted_pod_that_was_never_bound_and_is_held_loses_reservation_and_claim(
    alone: Any,
) -> None:
    async def story(world: Any) -> None:
        await template(world)
        pod = await world.pod("p", ["named"], template="t")
        await world.claim("named")
        await world.allocate("named", "n1", pods=[pod])
        held = {"metadata": {"finalizers": ["example.com/held"]}}
        await world.client.patch(PODS, "p", held, "team")
        await world.client.delete(PODS, "p", "team")
        await world.settle()

        [left] = await world.claims()
        assert (left.metadata.name, users(left)) == ("named", [])

    alone(model, story)


def test_a_shared_claim_is_reserved_for_a_done_pod_and_dropped_again(alone: Any) -> None:
    written: list[list[str]] = []

    def write(call: Call) -> None:
        if call.resource == BUILTIN_CLAIMS and call.verb == "patch":
            written.append(sorted(user["name"] for user in call.body["status"]["reservedFor"]))

    async def story(world: Any) -> None:
        pods = [await world.pod(name, ["c"], nodeName="n1") for name in ("first", "second")]
        await world.claim("c")
        await world.allocate("c", "n1", pods=pods)
        await world.settle()
        await world.pod_status("first", {"phase": "Succeeded"})
        await world.settle()

        assert written == [["second"], *[["first", "second"], ["second"]] * 3]

    alone(lambda client, _: ClaimController(FaultClient(client, before=write)), story)


def test_no_claim_is_listed_while_a_template_is_missing(alone: Any) -> None:
    async def story(world: Any) -> None:
        await template(world)
        entries = [{"name": n, "resourceClaimTemplateName": t} for n, t in (("a", "t"), ("b", "missing"))]
        await world.pod("p", resourceClaims=entries)
        await world.settle()

        assert len(await world.claims()) == 1
        assert (await world.the_pod("p")).status.resource_claim_statuses == []

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
