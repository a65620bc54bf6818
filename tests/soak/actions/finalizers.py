"""Other controllers hold pods and claims by finalizers of their own."""

from typing import Any

from tests.soak.actions.requests import Requests
from tests.soak.cluster.world import World

from parley.api.resources import CLAIMS, PODS, Resource
from parley.kube.memory.watch_cache import Stored

OTHERS_FINALIZER = "soak.example.com/held"


class Finalizers:
    """Sets a finalizer on pods and claims, and removes it."""

    def __init__(self, world: World, requests: Requests) -> None:
        self._chance = world.chance
        self._requests = requests

    def mend(self) -> None:
        """Remove the finalizer from all."""
        while self._held(PODS) or self._held(CLAIMS):
            self.let_pod_go()
            self.let_claim_go()

    def hold_pod(self) -> None:
        """Set it on a pod, as the Job controller does until it has counted the pod."""
        self._hold(PODS, self._requests.some(PODS))

    def let_pod_go(self) -> None:
        """Remove it from a pod."""
        self._let_go(PODS)

    def hold_claim(self) -> None:
        """Set it on a claim."""
        self._hold(CLAIMS, self._requests.some(CLAIMS))

    def let_claim_go(self) -> None:
        """Remove it from a claim."""
        self._let_go(CLAIMS)

    def _held(self, resource: Resource[Any]) -> list[Stored]:
        return [
            one for one in self._requests.all(resource) if OTHERS_FINALIZER in (one.meta.get("finalizers") or ())
        ]

    def _hold(self, resource: Resource[Any], found: Stored | None) -> None:
        if found is not None and not found.meta.get("deletionTimestamp"):
            held = [*(found.meta.get("finalizers") or ()), OTHERS_FINALIZER]
            self._requests.patch(resource, found.meta["name"], {"metadata": {"finalizers": held}})

    def _let_go(self, resource: Resource[Any]) -> None:
        if found := self._held(resource):
            chosen = self._chance.choice(found)
            left = [name for name in chosen.meta["finalizers"] if name != OTHERS_FINALIZER]
            self._requests.patch(resource, chosen.meta["name"], {"metadata": {"finalizers": left or None}})
