"""What drivers see: the pod that asks, and the cluster's nodes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tests.unit.scheduler.shelf import Behaviour, ShelfDriver, Shelves, Wanted, restart

from parley.api.resources import NODES, PODS
from parley.sdk import Answer, PodController, Request, SeenCluster, SeenPod

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

Play = Callable[[Callable[[World], Any]], None]


class RackDriver(ShelfDriver):
    """Serves a pod on nodes of the rack that its label names, where at most half of the CPU is used."""

    sees_pods: ClassVar[bool] = True

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(behaviour)
        self.cluster: SeenCluster | None = None
        self.seen: dict[str, SeenPod | None] = {}

    def see(self, cluster: SeenCluster) -> None:
        self.cluster = cluster

    def viable(self, request: Request[Wanted, Shelves], nodes: Sequence[str]) -> Mapping[str, Answer]:
        assert self.cluster is not None
        self.seen[request.pod.name] = seen = request.seen
        rack = seen.labels.get("rack", "") if seen is not None else ""
        found = [node for node in nodes if self.cluster.labels(node).get("rack", "") == rack and self._quiet(node)]
        return super().viable(request, found)

    def _quiet(self, node: str) -> bool:
        assert self.cluster is not None
        return 2 * self.cluster.used(node).get("cpu", 0) <= self.cluster.allocatable(node).get("cpu", 0)


async def begin(world: World, driver: ShelfDriver) -> None:
    for name, rack in (("a", "1"), ("b", "2")):
        await world.add_node(name, 0)
        await world.client.patch(NODES, name, {"metadata": {"labels": {"rack": rack}}})
    await world.add_class("shelf", driverName=driver.name)
    await world.add_template("place", "shelf")
    await world.add_claim("common", "shelf")
    world.start_parley(drivers=[driver])
    await world.settle(2)


async def add(world: World, name: str, rack: str, **spec: Any) -> None:
    """A pod of a rack, which its workflow controls."""
    await world.add_pod(name, "place", schedulingGates=[{"name": "wait"}], **spec)
    owner = {"apiVersion": "example.com/v1", "kind": "Run", "name": "run", "uid": "1", "controller": True}
    meta = {"labels": {"rack": rack}, "ownerReferences": [{**owner, "blockOwnerDeletion": False}]}
    await world.client.patch(PODS, name, {"metadata": meta, "spec": {"schedulingGates": None}}, "default")


def test_a_driver_decides_by_what_the_pod_is_like(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = RackDriver(Behaviour(other=8))
        await begin(world, driver)
        containers = [{"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": "500m"}}}]
        await add(world, "first", "2", priority=7, containers=containers)
        await add(world, "second", "1")
        await world.settle()
        assert [await world.node_of(name) for name in ("first", "second")] == ["b", "a"]
        seen = driver.seen["first"]
        assert seen is not None
        assert (seen.labels["rack"], seen.priority, seen.images) == ("2", 7, ("example.com/train:1",))
        assert seen.controller == PodController("example.com/v1", "Run", "run", "1")
        assert seen.requests == {"cpu": 500}

    play(scenario)


def test_pods_that_differ_in_what_is_seen_do_not_stand_in_one_line(play: Play) -> None:
    """The first one can't be served by what comes free; the second one can."""

    async def scenario(world: World) -> None:
        driver = RackDriver(Behaviour(places={"a": 1, "b": 1}))
        await begin(world, driver)
        for name, rack in (("one", "1"), ("two", "2"), ("late-one", "1"), ("late-two", "2")):
            await add(world, name, rack)
            await world.settle(2)
        await world.delete_pod("two")
        await world.settle()
        assert [await world.node_of(name) for name in ("late-one", "late-two")] == ["", "b"]

    play(scenario)


def test_a_driver_sees_what_is_used_on_nodes_and_who_uses_its_claims(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = RackDriver(Behaviour(other=8))
        await begin(world, driver)
        assert driver.cluster is not None
        cpu = driver.cluster.allocatable("a")["cpu"]
        heavy = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": f"{cpu // 2 + 1}m"}}}]
        await world.add_pod("heavy", nodeName="a", containers=heavy)
        await world.settle(2)
        await add(world, "waits", "1")
        await world.settle()
        assert await world.node_of("waits") == ""
        assert sorted(driver.cluster.nodes()) == ["a", "b"]
        assert driver.cluster.used("a") == {"cpu": cpu // 2 + 1}
        assert driver.cluster.reserved("a") == {}
        assert (driver.cluster.labels("gone"), driver.cluster.used("gone")) == ({}, {})

        await world.delete_pod("heavy")
        await world.settle()
        assert await world.node_of("waits") == "a"
        (mirror,) = [one for one in await world.mirrors() if one.metadata.name.startswith("waits")]
        assert [user.name for user in driver.cluster.users(mirror.metadata.uid)] == ["waits"]

    play(scenario)


def test_a_driver_that_does_not_see_pods_gets_none(play: Play) -> None:
    class Blind(RackDriver):
        sees_pods: ClassVar[bool] = False

        def viable(self, request: Request[Wanted, Shelves], nodes: Sequence[str]) -> Mapping[str, Answer]:
            self.seen[request.pod.name] = request.seen
            return ShelfDriver.viable(self, request, nodes)

    async def scenario(world: World) -> None:
        driver = Blind(Behaviour(other=8))
        await begin(world, driver)
        await add(world, "first", "2")
        await world.settle()
        assert driver.seen == {"first": None}
        assert world.controller is not None
        pod = world.controller.cluster.pod(("default", "first"))
        assert pod is not None
        assert (pod.metadata.labels, pod.metadata.owner_references) == ({}, [])

    play(scenario)


class DoormanDriver(ShelfDriver):
    """Notes who uses what it allocated, whenever it hears that others do."""

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(behaviour)
        self.cluster: SeenCluster | None = None
        self.heard: list[tuple[str, ...]] = []

    def see(self, cluster: SeenCluster) -> None:
        self.cluster = cluster

    def users_changed(self, uid: str) -> None:
        assert self.cluster is not None
        assert uid in self.held
        self.heard.append(tuple(sorted(user.name for user in self.cluster.users(uid))))


def test_a_driver_hears_of_the_users_of_its_claims_as_they_come_and_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        driver = DoormanDriver(Behaviour(other=10))
        await world.add_node("a", 0)
        await world.add_class("shelf", driverName=driver.name, shareable=True, whenUnused={"keepSeconds": 600})
        await world.add_claim("common", "shelf")
        world.start_parley(drivers=[driver])
        for name in ("one", "two"):
            await world.add_pod(name, claims=["common"])
            await world.settle()
        assert driver.heard == [("one",), ("one", "two")]

        anew = DoormanDriver(driver.behaviour)
        await restart(world, [anew])
        await world.settle()
        assert anew.heard == [("one", "two")]
        for name in ("one", "two"):
            await world.delete_pod(name)
            await world.settle(2)
        assert anew.heard == [("one", "two"), ("two",), ()]

        await asyncio.sleep(601)
        await world.settle()
        assert anew.held == {}
        assert len(anew.heard) == 3

    play(scenario)


def test_a_driver_that_fails_over_users_keeps_nobody_out(play: Play) -> None:
    class Failing(ShelfDriver):
        def users_changed(self, uid: str) -> None:
            raise RuntimeError(uid)

    async def scenario(world: World) -> None:
        await begin(world, Failing(Behaviour(other=10)))
        await world.add_pod("one", claims=["common"])
        await world.settle()
        assert (await world.pod("one")).status.phase == "Running"
        await world.delete_pod("one")
        await world.settle()
        assert len(world.ledger) == 0

    play(scenario)
