"""Pods are created, deleted, finished and replaced."""

from collections.abc import Mapping

from tests.soak.actions.priorities import Priorities
from tests.soak.actions.requests import Requests
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.taints import TOLERATIONS
from tests.soak.cluster.world import World
from tests.soak.kinds import pods
from tests.soak.kinds.names import Json
from tests.soak.kinds.pods import PodKind

from parley.api.resources import PODS

MOST_PODS = 14
"""No more are created while there are so many."""


class PodActions:
    """Acts on pods, which are of these kinds. `priorities` is None in worlds without priorities."""

    def __init__(
        self, world: World, requests: Requests, kinds: Mapping[str, PodKind], priorities: Priorities | None
    ) -> None:
        self._world = world
        self._chance = world.chance
        self._requests = requests
        self._kinds = kinds
        self._priorities = priorities
        self._created = 0

    def add(self) -> None:
        """Create one, rarely on a node, and rarely one that succeeds by itself."""
        if len(self._requests.all(PODS)) >= MOST_PODS:
            return
        self._created += 1
        weights = [weight for weight, *_ in self._kinds.values()]
        kind = self._chance.choices(list(self._kinds), weights)[0]
        node = self._requests.some_node() if self._chance.random() < 0.05 else ""
        seconds = self._chance.uniform(0, 20) if self._chance.random() < 0.2 else None
        scheduler = SECOND_SCHEDULER if self._chance.random() < self._world.plan.extender else ""
        name = f"p{self._created}-{kind}"
        wishes = self._wishes()
        self._requests.create(
            PODS, pods.pod(name, kind, node=node, seconds=seconds, scheduler=scheduler, wishes=wishes)
        )

    def _wishes(self) -> Json | None:
        """What a pod says about priorities and tolerations."""
        wishes = self._priorities.wishes() if self._priorities is not None else {}
        if self._world.plan.no_execute_taints:
            tolerations = list(self._chance.choice(TOLERATIONS))
            wishes = {**wishes, "spec": {**wishes.get("spec", {}), "tolerations": tolerations}}
        return wishes

    def delete(self) -> None:
        """Delete one, with its grace period."""
        if (found := self._requests.some(PODS)) is not None:
            self._requests.delete(PODS, found.meta["name"], policy=self._requests.deletion_policy())

    def force_delete(self) -> None:
        """Delete one at once, while its node may still run it."""
        if (found := self._requests.some(PODS)) is not None:
            self._requests.delete(PODS, found.meta["name"], grace=0)

    def finish(self) -> None:
        """A running pod succeeds or fails."""
        found = self._requests.some(PODS)
        if found is not None and found.body["status"].get("phase") == "Running":
            phase = self._chance.choice(["Succeeded", "Failed"])
            self._requests.patch(PODS, found.meta["name"], {"status": {"phase": phase}}, subresource="status")

    def replace(self) -> None:
        """A pod of the same name follows at once, as in a StatefulSet."""
        if (found := self._requests.some(PODS)) is not None:
            name, kind = found.meta["name"], found.meta["labels"]["kind"]
            scheduler = found.body["spec"]["schedulerName"]
            self._requests.delete(PODS, name, grace=0)
            if not self._requests.there(PODS, name):
                self._requests.create(PODS, pods.pod(name, kind, scheduler=scheduler, wishes=self._wishes()))
