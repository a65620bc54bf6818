"""The simulated kube-scheduler alone: the test plays claim controller, Parley and kubelet."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.support.faults import FaultClient

from parley.api.resources import BUILTIN_CLAIMS
from parley.kube.backoff import Backoff
from parley.kube.client import Call, Client, ServerError
from parley.simulate.binding_cycle import CHECK_SECONDS
from parley.simulate.kube_scheduler import AFTER_FAILURE, AS_UPSTREAM, KubeScheduler


def message(pod: Any) -> str:
    return next((c.message for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"), "")


def users(claim: Any) -> list[str]:
    return [consumer.name for consumer in claim.status.reserved_for]


def test_a_pod_waits_in_silence_until_its_claims_exist(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1")
        await world.pod("p", ["c"])
        await world.settle()
        assert (await world.the_pod("p")).status.conditions == []

        await world.claim("c")
        await world.settle()
        assert message(await world.the_pod("p")) == (
            "0/1 nodes are available: request shareable: device class being-negotiated.parley.dev does not exist."
        )

        await world.allocate("c", "n1")
        await world.settle()
        assert (await world.the_pod("p")).spec.node_name == "n1"
        assert users(await world.the_claim("c")) == ["p"]

    alone(KubeScheduler, story)


def test_a_claim_on_a_node_that_is_full_is_taken_back(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="0")
        await world.node("n2")
        pod = await world.pod("p", ["c"])
        await world.claim("c")
        await world.allocate("c", "n1", pods=[pod])
        await world.settle()

        claim = await world.the_claim("c")
        assert (claim.status.allocation, users(claim)) == (None, [])

    alone(KubeScheduler, story)


def test_a_claim_that_another_pod_reserved_is_left_alone(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await world.node("n2")
        other = await world.pod("other", nodeName="n1")
        await world.claim("c")
        await world.allocate("c", "n1", pods=[other])
        await world.pod("p", ["c"])
        await world.settle()

        assert users(await world.the_claim("c")) == ["other"]
        assert message(await world.the_pod("p")) == (
            "0/2 nodes are available: 1 node(s) too little cpu left, 1 resourceclaim not available on the node."
        )

    alone(KubeScheduler, story)


def test_no_claim_is_taken_back_where_every_node_is_full(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="0")
        await world.claim("c")
        await world.allocate("c", "n1")
        await world.pod("p", ["c"])
        await world.settle()
        assert (await world.the_claim("c")).status.allocation is not None

    alone(KubeScheduler, story)


def test_an_offer_is_bound_once_its_condition_holds(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1")
        await world.claim("c")
        await world.allocate("c", "n1", conditions=True)
        await world.pod("p", ["c"])
        await world.settle()

        pod = await world.the_pod("p")
        assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "n1")
        assert users(await world.the_claim("c")) == ["p"]

        await world.answer("c", "ready")
        await world.settle()
        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(KubeScheduler, story)


def test_a_binding_that_waits_is_given_up_for_a_pod_of_higher_priority(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await world.claim("c")
        await world.allocate("c", "n1", conditions=True)
        low = await world.pod("low", ["c"])
        await world.settle()
        assert (await world.the_pod("low")).status.nominated_node_name == "n1"

        await world.pod("high", priority=5)
        await world.settle()

        pod, claim = await world.the_pod("low"), await world.the_claim("c")
        assert (await world.the_pod("high")).spec.node_name == "n1"
        assert (pod.metadata.uid, pod.metadata.deletion_timestamp) == (low.metadata.uid, None)
        assert (pod.status.nominated_node_name, users(claim)) == ("", [])

    alone(KubeScheduler, story)


def test_a_binding_that_is_given_up_before_its_reservation_is_seen_leaves_that(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await world.claim("c")
        await world.allocate("c", "n1", conditions=True)
        await world.pod("low", ["c"])
        await asyncio.sleep(CHECK_SECONDS / 2)
        await world.pod("high", priority=5)
        await world.settle()

        pod, claim = await world.the_pod("low"), await world.the_claim("c")
        assert (await world.the_pod("high")).spec.node_name == "n1"
        assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "")
        assert users(claim) == ["low"]

    alone(KubeScheduler, story)


def test_a_pod_that_preempts_takes_the_nomination_of_less_important_ones(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await world.pod("running", nodeName="n1")
        await world.pod("gated", schedulingGates=[{"name": "example.com/later"}])
        await world.pod_status("gated", {"nominatedNodeName": "n1"})
        await world.pod("high", priority=5)
        await world.settle()

        assert (await world.the_pod("gated")).status.nominated_node_name == ""
        assert (await world.the_pod("high")).status.nominated_node_name == "n1"

    alone(KubeScheduler, story)


def test_a_declined_offer_is_taken_back_and_the_nomination_with_it(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1")
        await world.claim("c")
        await world.allocate("c", "n1", conditions=True)
        await world.pod("p", ["c"])
        await world.settle()
        await world.answer("c", "declined")
        await world.settle()

        claim, pod = await world.the_claim("c"), await world.the_pod("p")
        assert (claim.status.allocation, claim.status.devices, users(claim)) == (None, [], [])
        assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "")

    alone(KubeScheduler, story)


def test_a_claim_that_was_moved_since_the_scheduler_looked_is_reserved_all_the_same(alone: Any) -> None:
    moved: list[Any] = []

    async def story(world: Any) -> None:
        async def move() -> None:
            await world.claim_status("c", {"allocation": None})
            await world.allocate("c", "n2")

        moved.append(move)
        await world.node("n1")
        await world.node("n2")
        await world.claim("c")
        await world.allocate("c", "n1")
        await world.pod("p", ["c"])
        await world.settle()

        assert (await world.the_pod("p")).spec.node_name == "n1"
        assert users(await world.the_claim("c")) == ["p"]

    class Moving(Client):
        async def request(self, call: Call) -> bytes:
            if "reservedFor" in str(call.body) and moved:
                await moved.pop()()
            return await super().request(call)

    alone(lambda client, clock: KubeScheduler(Moving(client), clock), story)


def test_an_offer_that_was_taken_back_is_waited_for_and_another_one_is_taken_for_it(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1")
        await world.claim("c")
        await world.allocate("c", "n1", conditions=True)
        pod = await world.pod("p", ["c"])
        await world.settle()
        await world.claim_status("c", {"allocation": None, "reservedFor": None})
        await world.settle()
        assert (await world.the_pod("p")).status.nominated_node_name == "n1"

        await world.allocate("c", "elsewhere", pods=[pod])
        await world.settle()
        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(KubeScheduler, story)


def test_whose_claim_it_is_counts_for_nothing_where_a_pod_names_it(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1")
        meta = {"apiVersion": "v1", "kind": "Pod", "name": "x", "controller": True}
        other = await world.pod("x", schedulerName="none")
        request = {"name": "x", "exactly": {"deviceClassName": "gpus.example.org"}}
        body = {
            "metadata": {"name": "c", "ownerReferences": [{**meta, "uid": other.metadata.uid}]},
            "spec": {"devices": {"requests": [request]}},
        }
        await world.client.create(BUILTIN_CLAIMS, body, "team")
        result = {"request": "x", "driver": "d.dev", "pool": "p", "device": "x"}
        await world.claim_status("c", {"allocation": {"devices": {"results": [result]}}})
        await world.pod("p", ["c"])
        await world.settle()

        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(KubeScheduler, story)


def test_a_pod_that_is_being_bound_counts_for_its_node(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await world.claim("c")
        await world.allocate("c", "n1", conditions=True)
        await world.pod("p", ["c"])
        await world.settle()
        await world.pod("web")
        await world.settle()

        assert message(await world.the_pod("web")) == ("0/1 nodes are available: 1 node(s) too little cpu left.")

    alone(KubeScheduler, story)


async def claim_of_another(world: Any) -> None:
    await world.node("n1")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x", "controller": True}
    other = await world.pod("x", schedulerName="none")
    await world.claim("c", ownerReferences=[{**owner, "uid": other.metadata.uid}])


def test_a_claim_of_another_pod_is_refused(alone: Any) -> None:
    async def story(world: Any) -> None:
        await claim_of_another(world)
        await world.pod("p", template="t")
        await world.pod_status("p", {"resourceClaimStatuses": [{"name": "entry", "resourceClaimName": "c"}]})
        await world.settle()

        assert message(await world.the_pod("p")) == (
            "0/1 nodes are available: ResourceClaim team/c was not created for pod p."
        )

    alone(KubeScheduler, story)


def test_a_freed_node_is_tried_again(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await world.pod("web", nodeName="n1")
        await world.pod("p")
        await world.settle()
        assert (await world.the_pod("p")).spec.node_name == ""

        await world.pod_status("web", {"phase": "Succeeded"})
        await world.settle()
        assert (await world.the_pod("p")).spec.node_name == "n1"

    alone(KubeScheduler, story)


def test_a_pod_that_is_bound_elsewhere_than_it_was_nominated_wakes_nobody(alone: Any) -> None:
    async def story(world: Any) -> None:
        await world.node("n1", cpu="1")
        await world.node("n2", cpu="1")
        await world.claim("c")
        await world.pod("p", ["c"])
        await world.settle()
        await world.pod_status("p", {"nominatedNodeName": "n2"})
        await world.pod("kept-out", nodeSelector={"kubernetes.io/hostname": "n2"})
        await world.settle()
        assert (await world.the_pod("kept-out")).spec.node_name == ""

        await world.allocate("c", "n1")
        await world.settle()
        assert (await world.the_pod("p")).spec.node_name == "n1"
        assert (await world.the_pod("kept-out")).spec.node_name == ""

        await world.pod_status("p", {"phase": "Succeeded"})
        await world.settle()
        assert (await world.the_pod("kept-out")).spec.node_name == "n2"

    alone(KubeScheduler, story)


@pytest.mark.parametrize(
    ("after_failure", "pauses"),
    [(AS_UPSTREAM, [1, 2, 4, 8, 10, 10]), (AFTER_FAILURE, [1] * 6)],
    ids=["longer", "same"],
)
def test_a_pod_whose_binding_failed_is_left_alone(alone: Any, after_failure: Backoff, pauses: list[int]) -> None:
    tried: list[float] = []

    def refuse(call: Call) -> None:
        if call.subresource == "binding":
            tried.append(asyncio.get_running_loop().time())
            raise ServerError(500, "InternalError", "etcdserver: request timed out")

    async def story(world: Any) -> None:
        await world.node("n1")
        await world.pod("p")
        await asyncio.sleep(40)

    alone(
        lambda client, clock: KubeScheduler(
            FaultClient(client, before=refuse), clock, after_failure=after_failure
        ),
        story,
    )

    assert [round(later - earlier, 3) for earlier, later in pairwise(tried)][:6] == pauses
