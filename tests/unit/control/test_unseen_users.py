"""Pods that a scheduler let into a claim, and of which the cache shows too little: who counts, who is asked."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.control.builders import NAMESPACE, World, a_holding, a_pod, played, pod_manifest

from parley.api.builtin import BuiltinClaim, ConsumerReference, Pod
from parley.api.resources import PODS
from parley.control.allocation import Busy
from parley.control.holding import Holding
from parley.control.objects.mirror import MAX_USERS
from parley.control.objects.pod import reference
from parley.control.release.unseen_users import UnseenUsers
from parley.kube.client import Client
from parley.kube.memory import MemoryServer
from parley.sdk import Allocation, PodReference


class Api:
    """What the API server has by now, which the world's caches have yet to show."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client: Client = MemoryServer(clock=world.clock).client()

    async def begin(self, **fields: Any) -> "Api":
        """The claim `c` is allocated on node-1."""
        claim = await self.world.claim()
        self.mirror = await self.world.mirror(claim, shareable=True)
        given = {"uid": claim.metadata.uid, "allocation": Allocation(), **fields}
        self.holding: Holding = a_holding("c", "last", shareable=True, **given)
        self.world.ledger.add(self.holding)
        self.users = UnseenUsers(self.client, self.world.cluster, self.world.ledger)
        return self

    async def has(self, name: str, **spec: Any) -> PodReference:
        """A pod that names the claim."""
        made = await self.client.create(PODS, {**_KIND, **pod_manifest(name, claims=["c"], **spec)}, NAMESPACE)
        return reference(made)

    def reserved(self, *before: PodReference, after: tuple[PodReference, ...] = ()) -> None:
        """A scheduler changes for whom the mirror is reserved."""
        self.users.mirror_changed(_reserved_for(self.mirror, before), _reserved_for(self.mirror, after))


_KIND = {"apiVersion": "v1", "kind": "Pod"}


def _reserved_for(mirror: BuiltinClaim, pods: tuple[PodReference, ...]) -> BuiltinClaim:
    users = [ConsumerReference(resource="pods", name=pod.name, uid=pod.uid) for pod in pods]
    return replace(mirror, status=replace(mirror.status, reserved_for=users))


def test_a_pod_that_is_bound_there_and_not_seen_makes_the_claim_stay() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        pod = await api.has("p", nodeName="node-1")
        api.reserved(after=(pod,))
        api.reserved(pod)
        for _ in range(2):
            with pytest.raises(Busy):
                await api.users.nodes_of_unseen(api.holding)

    played(story)


def test_a_pod_that_ran_with_it_and_ended_makes_it_stay_until_that_is_seen() -> None:
    """It counts as a user then, from whose end the claim may be kept."""

    async def story(world: World) -> None:
        api = await Api(world).begin()
        pod = await api.has("p", nodeName="node-1")
        await api.client.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
        api.reserved(after=(pod,))
        api.reserved(pod)
        with pytest.raises(Busy):
            await api.users.nodes_of_unseen(api.holding)

    played(story)


def test_a_pod_that_is_gone_and_not_seen_to_be_may_have_run_with_it() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        pod = reference(await world.pod("p", claims=["c"]))
        api.reserved(pod)
        with pytest.raises(Busy):
            await api.users.nodes_of_unseen(api.holding)

    played(story)


@pytest.mark.parametrize("spec", [{}, {"nodeName": "node-2"}], ids=["not bound", "bound elsewhere"])
def test_a_pod_that_does_not_run_with_it_is_forgotten(spec: dict[str, Any]) -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        api.reserved(after=(await api.has("p", **spec),))
        assert list(await api.users.nodes_of_unseen(api.holding)) == []
        assert api.holding.unseen_users == {}

    played(story)


def test_for_a_pod_that_came_and_went_unseen_the_nodes_are_asked_however_often() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        api.reserved(after=(reference(a_pod("gone")),))
        for _ in range(2):
            assert list(await api.users.nodes_of_unseen(api.holding)) == ["node-1"]

    played(story)


def test_a_known_pod_counts_from_when_its_reservation_is_dropped() -> None:
    """As long as it is reserved the reservation tells it."""

    async def story(world: World) -> None:
        api = await Api(world).begin()
        pod = reference(await world.pod("p", claims=["c"]))
        api.reserved(after=(pod,))
        assert api.holding.unseen_users == {}
        api.reserved(pod)
        assert list(api.holding.unseen_users) == [pod.uid]

    played(story)


@pytest.mark.parametrize("fate", ["seen bound", "seen gone", "a user"])
def test_what_the_cache_shows_needs_no_look(fate: str) -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        pod: Pod = await world.pod("p", claims=["c"])
        api.reserved(reference(pod))
        assert list(api.holding.unseen_users) == [pod.metadata.uid]
        if fate == "seen bound":
            target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
            await world.admin.create_subresource(PODS, "p", "binding", {"target": target}, NAMESPACE)
            await world.seen()
        elif fate == "seen gone":
            api.users.pod_gone(pod)
        else:
            world.ledger.join(api.holding, reference(pod))
        assert list(await api.users.nodes_of_unseen(api.holding)) == []

    played(story)


def test_the_reservation_of_a_pod_that_was_seen_to_go_may_show_up_later() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        pod = await world.pod("p", claims=["c"])
        await world.delete(PODS, "p")
        api.users.pod_gone(pod)
        api.reserved(after=(reference(pod),))
        api.reserved(reference(pod))
        assert api.holding.unseen_users == {}

    played(story)


def test_no_more_pods_are_remembered_than_can_be_users() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        api.reserved(after=tuple(reference(a_pod(f"p-{number}")) for number in range(MAX_USERS + 40)))
        assert len(api.holding.unseen_users) == MAX_USERS

    played(story)


def test_pods_that_the_cache_shows_there_join() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        there = await world.pod("there", claims=["c"], nodeName="node-1")
        await world.pod("elsewhere", claims=["c"], nodeName="node-2")
        await world.pod("waits", claims=["c"])
        assert api.users.join_known(api.holding) == []
        assert api.holding.pods.keys() == {"uid-last", there.metadata.uid}

    played(story)


def test_of_a_claim_that_was_forced_away_no_pods_count_that_came_after_the_next_one_of_its_name() -> None:
    async def story(world: World) -> None:
        before = await world.pod("before", claims=["c"], nodeName="node-1")
        await asyncio.sleep(2)
        api = await Api(world).begin(uid="forced-away")
        await asyncio.sleep(2)
        await world.pod("after", claims=["c"], nodeName="node-1")
        assert api.users.join_known(api.holding) == []
        assert api.holding.pods.keys() == {"uid-last", before.metadata.uid}

    played(story)


def test_after_another_list_the_nodes_are_asked() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin(lists_read=world.cluster.lists)
        assert list(api.users.nodes_of_missed(api.holding)) == []
        api.holding.lists_read -= 1
        assert list(api.users.nodes_of_missed(api.holding)) == ["node-1"]
        api.holding.shareable = False
        assert list(api.users.nodes_of_missed(api.holding)) == []

    played(story)


def test_a_bound_pod_uses_a_shareable_claim_that_it_names_among_very_many() -> None:
    async def story(world: World) -> None:
        api = await Api(world).begin()
        names = [*(f"other-{n}" for n in range(300)), "c"]
        pod = await world.pod("p", claims=names, nodeName="node-1")
        assert api.users.join_known(api.holding) == []
        assert reference(pod) in api.holding.pods.values()
        api.holding.unseen_users = {pod.metadata.uid: reference(pod)}
        api.users.pod_gone((world.cluster.pod((NAMESPACE, "p"))) or pod)
        assert api.holding.unseen_users == {}

    played(story)


def test_of_very_many_pods_that_were_let_in_the_latest_count() -> None:
    """Those before wait for something else, and were let in and out again and again."""

    async def story(world: World) -> None:
        api = await Api(world).begin()
        for number in range(MAX_USERS):
            api.reserved(reference(await world.pod(f"waits-{number}", claims=["c"])))
        pod = await api.has("p", nodeName="node-1")
        api.reserved(after=(pod,))
        api.reserved(pod)
        assert pod.uid in api.holding.unseen_users

    played(story)
