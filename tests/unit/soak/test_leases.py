"""The soak's rule about Leases: while nobody holds a Lease that was released, nobody writes by it."""

from collections.abc import Callable
from typing import Any

from tests.soak.kinds.names import NAMESPACE

from parley.api.resources import LEASES

Play = Callable[[Any], None]


def held_by(world: Any, name: str) -> None:
    world.create(LEASES, {"metadata": {"name": "parley-controller"}, "spec": {"holderIdentity": name}})


def test_the_holder_writes_also_late(play: Play) -> None:
    async def story(world: Any) -> None:
        held_by(world, "controller-1")
        world.pod("p", "plain")
        world.nominate("p", "a", who="controller-1")
        world.nominate("p", "b", who="controller-1 (late)")
        world.nominate("p", "a", who="scheduler")

        assert not world.faults

    play(story)


def test_nobody_else_writes(play: Play) -> None:
    async def story(world: Any) -> None:
        held_by(world, "controller-1")
        world.pod("p", "plain")
        world.nominate("p", "a", who="controller-2")

        assert world.faults == ["wrote without lease: controller-2 writes while controller-1 holds the lease"]

    play(story)


def test_nobody_writes_by_a_lease_that_was_released(play: Play) -> None:
    async def story(world: Any) -> None:
        held_by(world, "")
        world.pod("p", "plain")
        world.nominate("p", "a", who="controller-1 (late)")

        assert world.faults == ["wrote without lease: controller-1 (late) writes while nobody holds the lease"]

    play(story)


def test_without_leases_whoever_runs_writes(play: Play) -> None:
    async def story(world: Any) -> None:
        world.pod("p", "plain")
        world.nominate("p", "a", who="controller-1")

        assert not world.faults

    play(story)


def test_a_driver_s_lease_is_not_the_controllers(play: Play) -> None:
    async def story(world: Any) -> None:
        held_by(world, "controller-1")
        lease = {"metadata": {"name": "parley-driver-far.example.com"}, "spec": {"holderIdentity": "driver-2"}}
        world.create(LEASES, lease)
        world.pod("p", "plain")
        world.nominate("p", "a", who="controller-1")
        world.nominate("p", "b", who="driver-2")
        assert not world.faults
        world.nominate("p", "a", who="driver-1")

        assert world.faults == ["wrote without lease: driver-1 writes while driver-2 holds the lease"]

    play(story)


def test_nobody_writes_by_a_lease_that_was_deleted(play: Play) -> None:
    async def story(world: Any) -> None:
        held_by(world, "controller-1")
        world.server.delete(LEASES, "parley-controller", NAMESPACE)
        world.pod("p", "plain")
        world.nominate("p", "a", who="controller-1")

        assert world.faults == ["wrote without lease: controller-1 writes while nobody holds the lease"]

    play(story)
