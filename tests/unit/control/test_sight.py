"""What drivers see beside their claims: the pod that asks, and the nodes as the caches have them."""

from tests.unit.control.builders import World, a_holding, played, user

from parley.api.resources import PODS
from parley.control.decision.sight import ClusterSight, pods_are_seen, seen_pod
from parley.control.objects.pod import reference
from parley.drivers.tokens import TokensDriver


class SeeingDriver(TokensDriver):
    """Wants to know what pods are like."""

    sees_pods = True


CONTAINERS = [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]
LOADER = [{"name": "load", "image": "loader:2"}]


async def a_pod_with_an_owner(world: World) -> None:
    world.server.garbage_lag = lambda: 3600.0
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    other = {"apiVersion": "example.com/v1", "kind": "Run", "name": "r", "uid": "uid-r"}
    meta = {"name": "p", "labels": {"run": "42"}, "ownerReferences": [other, owner]}
    entries = [{"name": "licence", "resourceClaimName": "c"}]
    spec = {"resourceClaims": entries, "containers": CONTAINERS, "initContainers": LOADER, "priority": 7}
    await world.put(PODS, {"metadata": meta, "spec": spec})


def test_a_driver_that_asks_for_it_sees_labels_controller_priority_requests_and_images() -> None:
    async def story(world: World) -> None:
        await a_pod_with_an_owner(world)
        pod = world.cluster.pod(("team", "p"))
        assert pod is not None

        seen = seen_pod(world.state, reference(pod))

        assert seen is not None
        assert (seen.labels, seen.priority, seen.images) == ({"run": "42"}, 7, ("loader:2", "app:1"))
        assert seen.controller is not None
        assert (seen.controller.kind, seen.controller.name) == ("Job", "j")
        assert seen.requests["cpu"] == 1000

    played(story, SeeingDriver())


def test_nobody_else_does_nor_is_a_pod_seen_that_is_not_there() -> None:
    async def story(world: World) -> None:
        await a_pod_with_an_owner(world)
        pod = world.cluster.pod(("team", "p"))
        assert pod is not None
        assert not pods_are_seen(world.state.drivers)
        assert seen_pod(world.state, reference(pod)) is None

    async def gone(world: World) -> None:
        await a_pod_with_an_owner(world)
        assert seen_pod(world.state, user("other")) is None
        assert seen_pod(world.state, user("p")) is None  # of another UID

    played(story)
    played(gone, SeeingDriver())


def test_nodes_show_what_they_have_and_who_uses_a_claim() -> None:
    async def story(world: World) -> None:
        await world.node("node-1")
        await world.pod("busy", nodeName="node-1", containers=CONTAINERS)
        world.ledger.add(a_holding("c", "p"))
        sight = ClusterSight(world.state)

        assert [*sight.nodes()] == ["node-1"]
        assert sight.labels("node-1") == {"kubernetes.io/hostname": "node-1"}
        assert sight.allocatable("node-1")["cpu"] == 8000
        assert sight.used("node-1")["cpu"] == 1000
        assert (sight.reserved("node-1"), sight.labels("gone")) == ({}, {})
        assert [*sight.users("uid-c")] == [user("p")]
        assert [*sight.users("uid-none")] == []

    played(story)
