"""When the soak's rule about limits takes a claim for allocated anew: also if it has again what it had before it
was released."""

from collections.abc import Callable
from typing import Any

from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import claim
from tests.soak.rules.kept_claims import LATELY
from tests.soak.rules.limits import ClassLimits

from parley.api.resources import CLAIMS
from parley.api.selectors import node_selector

Play = Callable[[Any], None]
OVER = ["over the limit: class gpu: 1 more, of 3 units of 2 claims, with Most(claims=None, units=2)"]


class Limited:
    """Two named claims of a class of which the namespace may have two devices, and a pod that uses both."""

    def __init__(self, world: Any) -> None:
        self._world = world
        rules, limits = world.rules, ClassLimits(world.rules.fault, world.rules.lives)

        def observe(step: Step) -> None:
            rules.observe(step)
            limits.observe(step)

        world.observe = observe
        world.class_("gpu", limits=[{"units": 2}])
        self._pod = world.pod("p", "two-named")
        for name in ("disk", "tape"):
            world.create(CLAIMS, claim(name))

    def allocate(self, name: str, *devices: str) -> None:
        found = [{"pool": "c", "device": device} for device in devices]
        allocation = {
            "handles": [{"driverName": "device.parley.dev", "data": {}, "devices": found}],
            "availableOnNodes": node_selector(["c"]),
        }
        meta = self._pod["metadata"]
        users = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}]
        status = {"driverName": "device.parley.dev", "allocation": allocation, "reservedFor": users}
        self._world.status(CLAIMS, name, status, "controller-1")

    def clear(self, name: str, who: str) -> None:
        cleared = {"driverName": None, "allocation": None, "reservedFor": None}
        self._world.status(CLAIMS, name, cleared, who)


def test_a_claim_that_others_cleared_has_again_what_it_had(play: Play) -> None:
    async def story(world: Any) -> None:
        limited = Limited(world)
        limited.allocate("disk", "gpu-0")
        await world.wait(LATELY + 1)
        limited.clear("disk", "meddler")
        limited.allocate("tape", "gpu-1", "gpu-2")
        limited.allocate("disk", "gpu-0")

        assert not world.faults

    play(story)


def test_a_claim_that_was_released_is_allocated_anew(play: Play) -> None:
    async def story(world: Any) -> None:
        limited = Limited(world)
        limited.allocate("disk", "gpu-0")
        await world.wait(LATELY + 1)
        limited.clear("disk", "controller-1")
        limited.allocate("tape", "gpu-1", "gpu-2")
        limited.allocate("disk", "gpu-0")

        assert world.faults == OVER

    play(story)
