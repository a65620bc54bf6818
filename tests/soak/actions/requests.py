"""Requests of users and administrators in a soak. They take effect at once."""

from typing import Any

from tests.soak.cluster.world import World
from tests.soak.kinds.names import NAMESPACE, Json
from tests.soak.kinds.nodes import NODE_KINDS

from parley.api.resources import Resource
from parley.kube.client import ApiError
from parley.kube.memory.managed_fields import UPDATE, Manager
from parley.kube.memory.metadata import Propagation
from parley.kube.memory.watch_cache import Stored

POLICIES: tuple[Propagation, ...] = ("Background", "Foreground", "Orphan")
"""Propagation policies of deletions, where a plan has cascading deletions."""


class Requests:
    """Reads and writes the API server's store. Random choices are drawn from the world's generator."""

    def __init__(self, world: World) -> None:
        self._server = world.server
        self._chance = world.chance
        self._plan = world.plan

    def all(self, resource: Resource[Any]) -> list[Stored]:
        """The objects of that kind, without those in other namespaces."""
        objects = self._server.store.collection(resource).objects
        return [stored for (namespace, _), stored in objects.items() if namespace in ("", NAMESPACE)]

    def some(self, resource: Resource[Any]) -> Stored | None:
        """A random one of them, None if there is none."""
        found = self.all(resource)
        return self._chance.choice(found) if found else None

    def some_node(self) -> str:
        """The name of a random node, which may not exist."""
        return self._chance.choice(sorted(NODE_KINDS))

    def deletion_policy(self) -> Propagation:
        """The propagation policy of the next deletion."""
        return self._chance.choice(POLICIES) if self._plan.propagation_policies else "Background"

    def found(self, resource: Resource[Any], name: str) -> Stored | None:
        """The object of that name, None if it does not exist."""
        key = (NAMESPACE if resource.namespaced else "", name)
        return self._server.store.collection(resource).objects.get(key)

    def there(self, resource: Resource[Any], name: str) -> bool:
        """Whether an object of that name exists."""
        return self.found(resource, name) is not None

    def ensure(self, resource: Resource[Any], body: Json) -> None:
        """Create the object unless one of its name exists."""
        if not self.there(resource, body["metadata"]["name"]):
            self.create(resource, body)

    def create(self, resource: Resource[Any], body: Json) -> None:
        """Create the object. Raises ApiError if it is refused."""
        self._server.create(resource, body, NAMESPACE if resource.namespaced else None, "user")

    def patch(self, resource: Resource[Any], name: str, body: Json, *, subresource: str = "") -> None:
        """Change the object. If it is gone or the change is refused, nothing happens."""
        namespace = NAMESPACE if resource.namespaced else None
        try:
            self._server.patch(resource, name, body, namespace, Manager("user", UPDATE, subresource))
        except ApiError:
            pass

    def delete(
        self, resource: Resource[Any], name: str, grace: int | None = None, policy: Propagation = "Background"
    ) -> bool:
        """Delete the object; returns whether it existed."""
        if not self.there(resource, name):
            return False
        self._server.delete(resource, name, NAMESPACE if resource.namespaced else None, grace=grace, policy=policy)
        return True
