"""Which running pods the soak lets use a claim that is not reserved for them."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.soak.cluster.processes import acting_as
from tests.soak.kinds.names import NAMESPACE
from tests.soak.rules.judge import Judge

from parley.api.resources import BUILTIN_CLAIMS, PODS
from parley.kube.memory.managed_fields import UPDATE, Manager

Play = Callable[[Any], None]
CLAIM = "p-gpu-0"


def deleted_and_cleared(world: Any) -> None:
    """An administrator deletes a claim that a finalizer keeps, clears it, and lets it go."""
    manager = Manager("meddler", UPDATE, "")
    with acting_as("meddler"):
        world.server.patch(BUILTIN_CLAIMS, CLAIM, {"metadata": {"finalizers": ["a/b"]}}, NAMESPACE, manager)
        world.server.delete(BUILTIN_CLAIMS, CLAIM, NAMESPACE)
        world.clear(CLAIM, "meddler")


def unreserved(world: Any) -> list[str]:
    judge = Judge(world.server, world.rules)
    body = world.body(PODS, "p")
    pod = next(one for one in judge.pods if one.metadata.uid == body["metadata"]["uid"])
    judge._going.clear()  # as if it had been recreated
    return list(judge.unreserved(pod))


@pytest.mark.parametrize("runs", [False, True], ids=["to be started", "running"])
def test_only_one_that_was_not_seen_to_run_when_the_claim_was_deleted_and_cleared(play: Play, runs: bool) -> None:
    async def story(world: Any) -> None:
        pod = world.pod("p", "one")
        world.start(pod, CLAIM, "c")
        if runs:
            world.status(PODS, "p", {"phase": "Running"}, "kubelets")
        deleted_and_cleared(world)
        world.status(PODS, "p", {"phase": "Running"}, "kubelets")

        assert unreserved(world) == [CLAIM] * runs

    play(story)
