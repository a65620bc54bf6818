"""Other clients clear and delete Parley's objects, and administrators remove its finalizers."""

from tests.soak.actions.requests import Requests
from tests.soak.cluster.processes import acting_as
from tests.soak.cluster.world import World
from tests.soak.kinds.of_world import Kinds
from tests.soak.rules.reservations import HOME

from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, POD_SCHEDULINGS, PODS
from parley.kube.memory.managed_fields import UPDATE, Manager


class Meddlers:
    """Acts on built-in claims and their templates, PodSchedulings, reservation pods, and finalizers of claims."""

    def __init__(self, world: World, requests: Requests, kinds: Kinds) -> None:
        self._server = world.server
        self._chance = world.chance
        self._requests = requests
        self._kinds = kinds

    def clear(self) -> None:
        """The status of a mirror is cleared."""
        if (found := self._requests.some(BUILTIN_CLAIMS)) is not None:
            with acting_as("meddler"):
                cleared = {"allocation": None, "reservedFor": None, "devices": None}
                self._requests.patch(BUILTIN_CLAIMS, found.meta["name"], {"status": cleared}, subresource="status")

    def delete_mirror(self) -> None:
        """A built-in claim is deleted."""
        if (found := self._requests.some(BUILTIN_CLAIMS)) is not None:
            with acting_as("meddler"):
                self._requests.delete(BUILTIN_CLAIMS, found.meta["name"])

    def delete_template_mirror(self) -> None:
        """A built-in template is deleted."""
        if (found := self._requests.some(BUILTIN_TEMPLATES)) is not None:
            with acting_as("meddler"):
                self._requests.delete(BUILTIN_TEMPLATES, found.meta["name"])

    def delete_scheduling(self) -> None:
        """A PodScheduling is deleted."""
        if (found := self._requests.some(POD_SCHEDULINGS)) is not None:
            with acting_as("meddler"):
                self._requests.delete(POD_SCHEDULINGS, found.meta["name"])

    def force_claim(self) -> None:
        """An administrator deletes a named claim and removes its finalizers."""
        name = self._chance.choice(sorted(self._kinds.claims))
        if self._requests.delete(CLAIMS, name):
            self._requests.patch(CLAIMS, name, {"metadata": {"finalizers": None}})

    def force_mirror(self) -> None:
        """Somebody does the same with a mirror."""
        if (found := self._requests.some(BUILTIN_CLAIMS)) is not None:
            with acting_as("meddler"):
                self._requests.delete(BUILTIN_CLAIMS, found.meta["name"])
                self._requests.patch(BUILTIN_CLAIMS, found.meta["name"], {"metadata": {"finalizers": None}})

    def disturb_reservation_pod(self) -> None:
        """Somebody deletes one, or a scheduler clears its nomination for a pod that preempts."""
        objects = self._server.store.collection(PODS).objects
        found = [stored for (namespace, _), stored in objects.items() if namespace == HOME]
        if not found:
            return
        name = self._chance.choice(found).meta["name"]
        with acting_as("meddler"):
            if self._chance.random() < 0.5:
                self._server.delete(PODS, name, HOME, grace=0)
                return
            body = {"status": {"nominatedNodeName": None}}
            self._server.patch(PODS, name, body, HOME, Manager("meddler", UPDATE, "status"))
