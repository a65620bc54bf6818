"""Worlds with priorities: what pods and classes say about preemption, and what disruption budgets allow."""

import random
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from tests.soak.kinds.classes import CLASS_KINDS, PREEMPTION_CLASS_KINDS
from tests.soak.kinds.names import NAMESPACE, typed

from parley.api.resources import CLASSES
from parley.kube.client import ApiError
from parley.kube.memory import MemoryServer
from parley.kube.memory.evictions import BUDGETS
from parley.kube.memory.managed_fields import UPDATE, Manager

Json = dict[str, Any]

LEVELS = (0, 0, 0, 0, 1, 1, 5, 5, 10)
"""What priorities are drawn from."""

FULL_NODES_LEVELS = (0, 0, 1, 2, 5, 10, 20)
"""The same where pods fill their nodes."""

GRACE_SECONDS = 40
ENDS_AFTER = "soak.parley.dev/ends-after"
"""Annotation of a pod: so many seconds its containers take to end once it is deleted; without it none."""

SPARED = {"budget": "spares"}
"""Label of the pods that disruption budgets are about."""

TAKEN = ("gpu", "exact")
"""The classes that let pods be evicted, where any do."""


class Preemption(Enum):
    """What a world has of it."""

    NONE = "none"
    """Not even priorities."""
    NEVER = "never"
    """Priorities, and no class of which anything is taken."""
    FORBIDDEN = "forbidden"
    """Classes say LowerPriority, and Parley's account may not evict: the chart's `preemption.enabled` is off."""
    ALLOWED = "allowed"
    """Parley evicts."""

    @classmethod
    def of_world(cls, number: int) -> "Preemption":
        """Of five worlds two have it, one has priorities alone, two have nothing."""
        without = (cls.NEVER, cls.FORBIDDEN)[number // 5 % 2]
        return (cls.ALLOWED, cls.NONE, cls.ALLOWED, without, cls.NONE)[number % 5]

    @property
    def takes(self) -> bool:
        """Whether classes say LowerPriority."""
        return self in (Preemption.FORBIDDEN, Preemption.ALLOWED)

    @property
    def classes(self) -> Mapping[str, Json]:
        """The world's classes, each with what it says."""
        if self is Preemption.NONE:
            return CLASS_KINDS
        says: Json = {"preemption": "LowerPriority"} if self.takes else {}
        every = {**CLASS_KINDS, **PREEMPTION_CLASS_KINDS}
        return {name: {**kind, **(says if name in TAKEN else {})} for name, kind in every.items()}


class Priorities:
    """Draws what pods say, and changes what classes and budgets do."""

    def __init__(
        self, server: MemoryServer, chance: random.Random, preemption: Preemption, *, full_nodes: bool
    ) -> None:
        self._server = server
        self._chance = chance
        self._levels = FULL_NODES_LEVELS if full_nodes else LEVELS
        self.preemption = preemption

    def begin(self) -> None:
        """There is a budget from the start."""
        self._create("spares")
        self._allow("spares", 0)

    def actions(self) -> list[tuple[int, Callable[[], None]]]:
        """How often each is done, as in `actions`."""
        return [(4, self._change_allowed), (1, self._change_second), (1, self._change_class)]

    def mend(self) -> None:
        """Nothing is in the way of evictions but a budget that allows none."""
        self._delete("also")

    def wishes(self) -> Json:
        """A pod's, see `pods.pod`."""
        chance, spec, annotations = self._chance, dict[str, Any](), dict[str, str]()
        if level := chance.choice(self._levels):
            spec["priority"] = level
        if chance.random() < 0.15:
            spec["preemptionPolicy"] = "Never"
        labels = SPARED if chance.random() < 0.2 else {}
        if chance.random() < 0.5:
            spec["terminationGracePeriodSeconds"] = GRACE_SECONDS
            annotations[ENDS_AFTER] = str(chance.uniform(0, GRACE_SECONDS))
        return {"labels": labels, "annotations": annotations, "spec": spec}

    def _change_class(self) -> None:
        says = {"preemption": self._chance.choice(["Never", "LowerPriority", "LowerPriority"])}
        if self.preemption.takes:
            self._patch(CLASSES, self._chance.choice(sorted(self.preemption.classes)), says)

    def _change_allowed(self) -> None:
        """As the disruption controller does after it counted."""
        self._allow("spares", self._chance.choice([0, 1, 3]))

    def _change_second(self) -> None:
        """Two budgets for one pod: the API server refuses its eviction with an error of its own."""
        if not self._delete("also"):
            self._create("also")

    def _create(self, name: str) -> None:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": SPARED}}
        body = typed(BUDGETS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        self._server.create(BUDGETS, body, NAMESPACE, "user")

    def _allow(self, name: str, disruptions: int) -> None:
        counts = {"currentHealthy": 1, "desiredHealthy": 1, "observedGeneration": 1}
        status = {"disruptionsAllowed": disruptions, **counts}
        self._patch(BUDGETS, name, {"status": status}, NAMESPACE, subresource="status")

    def _patch(
        self, resource: Any, name: str, body: Json, namespace: str | None = None, *, subresource: str = ""
    ) -> None:
        try:
            self._server.patch(resource, name, body, namespace, Manager("user", UPDATE, subresource))
        except ApiError:
            pass  # it is not there

    def _delete(self, name: str) -> bool:
        """Returns whether there was one."""
        if (NAMESPACE, name) not in self._server.store.collection(BUDGETS).objects:
            return False
        self._server.delete(BUDGETS, name, NAMESPACE)
        return True
