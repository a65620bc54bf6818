"""Named claims, and templates from which Parley creates claims, are deleted, created and replaced."""

from tests.soak.actions.requests import Requests
from tests.soak.cluster.world import World
from tests.soak.kinds import claims
from tests.soak.kinds.of_world import Kinds

from parley.api.resources import CLAIMS, TEMPLATES


class ClaimActions:
    """Acts on named claims and on templates of claims on demand."""

    def __init__(self, world: World, requests: Requests, kinds: Kinds) -> None:
        self._chance = world.chance
        self._requests = requests
        self._kinds = kinds

    def delete_or_create(self) -> None:
        """A named claim is deleted, or created again."""
        name = self._chance.choice(sorted(self._kinds.claims))
        if (
            not self._requests.delete(CLAIMS, name, policy=self._requests.deletion_policy())
            and name in self._kinds.users_claims
        ):
            self._requests.create(CLAIMS, claims.claim(name))

    def replace(self) -> None:
        """A named claim is deleted, and another one of its name follows at once unless finalizers keep it."""
        name = self._chance.choice(sorted(self._kinds.claims))
        if self._requests.delete(CLAIMS, name) and self._chance.random() < 0.3:
            self._requests.patch(CLAIMS, name, {"metadata": {"finalizers": None}})
        if not self._requests.there(CLAIMS, name):
            self._requests.create(CLAIMS, claims.claim(name))

    def delete_or_create_template(self) -> None:
        """A template of claims on demand is deleted, or created again."""
        name = self._chance.choice(sorted(self._kinds.on_demand_templates))
        if not self._requests.delete(TEMPLATES, name):
            self._requests.create(TEMPLATES, claims.on_demand_template(name))
