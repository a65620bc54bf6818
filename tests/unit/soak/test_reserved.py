"""The soak's rule about reservations: an exclusive claim is reserved for one living pod."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.kinds.names import NAMESPACE

from parley.api.resources import PODS

Play = Callable[[Any], None]
P = "p-gpu-0"
TWO = [f"exclusive, two pods: claim {P} is reserved for p, q"]


def is_gone(world: Any) -> None:
    world.server.delete(PODS, "p", NAMESPACE)


def has_ended(world: Any) -> None:
    world.status(PODS, "p", {"phase": "Succeeded"}, "kubelet")


def lives(_: Any) -> None:
    pass


@pytest.mark.parametrize(("first", "faults"), [(lives, TWO), (has_ended, []), (is_gone, [])])
def test_an_exclusive_claim_is_reserved_for_two_living_pods(
    play: Play, first: Callable[[Any], None], faults: list[str]
) -> None:
    async def story(world: Any) -> None:
        pods = [world.pod(name, "one") for name in ("p", "q")]
        world.allocate(P, "a", pods[0])
        first(world)
        if P in {name for _, name in world.rules.records}:
            world.reserve(P, *pods)

        assert world.faults == faults

    play(story)
