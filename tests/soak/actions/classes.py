"""Classes are changed, deleted and replaced, with their limits, pools of tokens and parameters in a ConfigMap."""

from tests.soak.actions.priorities import Preemption
from tests.soak.actions.requests import Requests
from tests.soak.cluster.world import World
from tests.soak.kinds import classes
from tests.soak.kinds.classes import STANDALONE_CLASS_KINDS, TOKEN_CLASS_KINDS
from tests.soak.kinds.names import DRIVER, PARAMETERS, STANDALONE_DRIVER, Json
from tests.soak.kinds.of_world import Kinds
from tests.soak.rules import limits

from parley.api.resources import CLASSES, CONFIG_MAPS


class ClassActions:
    """Acts on classes, and on the ConfigMap with parameters."""

    def __init__(self, world: World, requests: Requests, kinds: Kinds) -> None:
        self._world = world
        self._chance = world.chance
        self._requests = requests
        self._kinds = kinds
        keeps = (None, {"keepSeconds": 20}, {"keepSeconds": 240})
        self._keeps: tuple[Json | None, ...] = keeps if world.plan.kept_claims else ()
        """What `whenUnused` may be set to."""

    def mend(self) -> None:
        """All classes exist, as they were at the beginning."""
        for name, kind in self._kinds.classes.items():
            self._requests.ensure(CLASSES, classes.class_(name, kind))
            self._set_class(name)

    def mend_parameters(self) -> None:
        """The ConfigMap exists, with parameters that drivers understand."""
        self._requests.ensure(CONFIG_MAPS, classes.config_map())
        self._requests.patch(CONFIG_MAPS, PARAMETERS, classes.config_map())

    def change(self) -> None:
        """A class of the device driver gets another value of one field."""
        name = self._chance.choice(self._kinds.varied_classes)
        only = {
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._requests.some_node()]}]
        }
        change: Json = self._chance.choice(
            [
                {"suitableNodes": {"nodeSelectorTerms": [only]}},
                {"suitableNodes": None},
                {"parameters": {"colour": "blue"}},
                {"parameters": None},
                {"placement": "Exact"},
                {"placement": "Optimistic"},
                {"shareable": True},
                {"shareable": False},
                {"driverName": "nobody.example.com"},
                {"driverName": DRIVER},
                {"driverName": DRIVER, "parameters": None, "suitableNodes": None},
                *({"whenUnused": keeps} for keeps in self._keeps),
            ]
        )
        self._requests.patch(CLASSES, name, change)

    def change_standalone(self) -> None:
        """The same with a class of the standalone driver, which may also change drivers."""
        only = {
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._requests.some_node()]}]
        }
        change: Json = self._chance.choice(
            [
                {"suitableNodes": {"nodeSelectorTerms": [only]}},
                {"suitableNodes": None},
                {"parameters": {"colour": "blue"}},
                {"parameters": None},
                {"shareable": True},
                {"shareable": False},
                {"driverName": "nobody.example.com"},
                {"driverName": DRIVER},
                {"driverName": STANDALONE_DRIVER},
                {"driverName": STANDALONE_DRIVER, "parameters": None, "suitableNodes": None},
            ]
        )
        self._requests.patch(CLASSES, self._chance.choice(sorted(STANDALONE_CLASS_KINDS)), change)

    def change_limits(self) -> None:
        """A class gets limits, or loses them."""
        limited = sorted(self._kinds.classes.keys() - STANDALONE_CLASS_KINDS.keys())
        self._requests.patch(CLASSES, self._chance.choice(limited), {"limits": limits.drawn(self._chance)})

    def delete_or_create(self) -> None:
        """A class is deleted, or created again."""
        name = self._chance.choice(sorted(self._kinds.classes))
        if not self._requests.delete(CLASSES, name):
            self._requests.create(CLASSES, classes.class_(name, self._kinds.classes[name]))

    def replace(self) -> None:
        """Another class of the same name follows at once."""
        name = self._chance.choice(sorted(self._kinds.classes))
        if self._requests.delete(CLASSES, name):
            self._requests.create(CLASSES, classes.class_(name, self._kinds.classes[name]))

    def change_pool(self) -> None:
        """A class of tokens gets a smaller or larger pool."""
        name = self._chance.choice(sorted(TOKEN_CLASS_KINDS))
        self._requests.patch(CLASSES, name, {"parameters": {"pool": self._chance.randint(1, 4)}})

    def change_parameters(self) -> None:
        """The ConfigMap is deleted or created, or it gets parameters that are valid or not."""
        if self._chance.random() < 0.6:
            if not self._requests.delete(CONFIG_MAPS, PARAMETERS):
                self._requests.create(CONFIG_MAPS, classes.config_map())
            return
        text = self._chance.choice(["{}", "", "count: many", "count: [", "colour: blue"])
        self._requests.patch(CONFIG_MAPS, PARAMETERS, {"data": {"parameters": text}})

    def _set_class(self, name: str) -> None:
        """Give its fields the values that they had at the beginning."""
        usual = {"parameters": None, "suitableNodes": None, "placement": "Optimistic", "shareable": False}
        if self._world.plan.kept_claims:
            usual["whenUnused"] = None
        if self._world.plan.preemption is not Preemption.NONE:
            usual["preemption"] = "Never"
        self._requests.patch(CLASSES, name, {**usual, "driverName": DRIVER, **self._kinds.classes[name]})
