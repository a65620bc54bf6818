"""The soak's rule "moved under a pod" does not depend on the pod's reservation."""

from collections.abc import Callable
from typing import Any

from parley.api.resources import PODS

Play = Callable[[Any], None]
CLAIM = "p1-one-gpu-0"


async def running(world: Any) -> Any:
    """A pod that was started with the device of its claim."""
    pod = world.pod("p1-one", "one")
    world.start(pod, CLAIM, "c")
    world.status(PODS, "p1-one", {"phase": "Running"}, "kubelets")
    return pod


def test_a_claim_is_not_allocated_other_devices_than_its_pod_runs_with(play: Play) -> None:
    async def story(world: Any) -> None:
        pod = await running(world)
        world.clear(CLAIM, "meddler")
        world.allocate(CLAIM, "c", pod, device="gpu-1")

        assert world.faults == [
            "moved under a pod: claim p1-one-gpu-0 of p1-one: started with c/gpu-0, now c/gpu-1"
        ]

    play(story)


def test_nor_while_it_is_reserved_for_nobody(play: Play) -> None:
    async def story(world: Any) -> None:
        await running(world)
        world.clear(CLAIM)
        world.allocate(CLAIM, "c", None, device="gpu-1")

        assert world.faults == [
            "moved under a pod: claim p1-one-gpu-0 of p1-one: started with c/gpu-0, now c/gpu-1"
        ]

    play(story)


def test_it_may_get_them_again(play: Play) -> None:
    async def story(world: Any) -> None:
        pod = await running(world)
        world.clear(CLAIM)
        world.allocate(CLAIM, "c", pod)

        assert not world.faults

    play(story)
