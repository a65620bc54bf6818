"""What pods leave on nodes for named claims, where the driver says that they leave something (`leaves_data`).

It stays until the node's plugin confirms a ClaimRelease that asks to remove it, or the machine is gone. Until then
`Invariants` counts it as a hold on the claim's devices, and `quiescence` wants none at the end. Nobody knows of
data whose claim was forced away before the controller was replaced.
"""

from collections.abc import Callable, Set

from tests.soak.cluster.observed import Step
from tests.soak.rules.mirrors import Device

Place = tuple[str, str]
"""The UID of a claim, and a node."""


class Data:
    """Follows ClaimReleases. `removed` is called with a claim's UID and the devices that have none any more."""

    def __init__(self, removed: Callable[[str, tuple[Device, ...]], None]) -> None:
        self.is_left = False
        """Whether pods leave any."""
        self.places: dict[Place, tuple[Device, ...]] = {}
        self._removed = removed
        self._asked: dict[str, Place] = {}
        """What nodes are asked to remove, by name of the ClaimRelease."""

    def left(self, claim: str, node: str, devices: tuple[Device, ...]) -> None:
        """A pod began to run there with the claim."""
        self.places[claim, node] = devices

    def release_changed(self, step: Step) -> None:
        """A node is asked, or has answered."""
        body = step.change.last.body
        spec, name = body["spec"], body["metadata"]["name"]
        place = spec["holdingUid"], spec["nodeName"]
        self._asked.pop(name, None)
        if step.change.new is not None and spec.get("removeData"):
            self._asked[name] = place
        elif step.change.new is None and step.who == "node-plugins" and spec.get("removeData"):
            self._remove(place)

    def machine_gone(self, node: str) -> None:
        """With all that was on it."""
        for place in [place for place in self.places if place[1] == node]:
            self._remove(place)

    def memory_lost(self, claims: Set[str]) -> None:
        """A controller begins with what the API holds: these claims, and what nodes were asked to remove."""
        for place in [place for place in self.places if place[0] not in claims]:
            if place not in self._asked.values():
                self._remove(place)

    def _remove(self, place: Place) -> None:
        self._removed(place[0], self.places.pop(place, ()))
