"""What pods leave on nodes for named claims, where the driver says that they leave something (`leaves_data`).

    removed too early   no pod uses what a node has removed of an allocation: neither one that runs with it then,
                        or was deleted by force while it did, nor one that starts later

Data stays until the node's plugin confirms a ClaimRelease that asks to remove that of this very allocation, or the
machine is gone. Until then `Invariants` counts it as a hold on the claim's devices, and `quiescence` wants none at
the end. If its claim was forced away before the controller was replaced, it is known by a ClaimRelease only.
"""

from collections.abc import Callable, Set
from typing import NamedTuple

from tests.soak.cluster.observed import Step
from tests.soak.rules.mirrors import Device


class Place(NamedTuple):
    """The data of one allocation: the UID of the claim, the node, and the name that the data has there."""

    claim: str
    node: str
    folder: str


class Data:
    """Follows ClaimReleases. `removed` is called with a place and the devices that its claim had there; `uses` is
    asked whether a pod, by its UID, uses a claim, by its UID; `fault` takes the rule that is broken."""

    def __init__(
        self,
        removed: Callable[[Place, tuple[Device, ...]], None],
        uses: Callable[[str, str], bool],
        fault: Callable[[str, str], None],
    ) -> None:
        self.is_left = False
        """Whether pods leave any."""
        self.places: dict[Place, tuple[Device, ...]] = {}
        self._removed = removed
        self._uses = uses
        self._fault = fault
        self._pods: dict[Place, set[str]] = {}
        """UIDs of the pods that left it."""
        self._released: dict[str, Place] = {}
        """What ClaimReleases are about, by their names, whatever they ask for."""
        self._gone: set[Place] = set()
        """What nodes have removed."""

    def left(self, place: Place, pod: str, devices: tuple[Device, ...]) -> None:
        """The pod of that UID began to run there with the claim."""
        if place in self._gone:
            self._fault("removed too early", f"data on node {place.node} of a claim with which a pod starts")
        self.places[place] = devices
        self._pods.setdefault(place, set()).add(pod)

    def release_changed(self, step: Step) -> None:
        """A node is asked, or has answered."""
        body = step.change.last.body
        spec, name = body["spec"], body["metadata"]["name"]
        self._released.pop(name, None)
        handles = spec["allocation"].get("handles") or [{}]
        data = handles[0].get("data") or {}
        place = Place(spec["holdingUid"], spec["nodeName"], data.get("folder", ""))
        if step.change.new is not None:
            self._released[name] = place
        elif spec.get("removeData") and step.who == "node-plugins":
            if any(self._uses(pod, place.claim) for pod in self._pods.get(place, ())):
                self._fault("removed too early", f"data on node {place.node} of a claim with which a pod runs")
            self._gone.add(place)
            self._remove(place)

    def machine_gone(self, node: str) -> None:
        """With all that was on it."""
        for place in [place for place in self.places if place.node == node]:
            self._remove(place)

    def memory_lost(self, claims: Set[str]) -> None:
        """A controller begins with what the API holds: these claims, and what ClaimReleases are about."""
        for place in [place for place in self.places if place.claim not in claims]:
            if place not in self._released.values():
                self._remove(place)

    def _remove(self, place: Place) -> None:
        self._pods.pop(place, None)
        self._removed(place, self.places.pop(place, ()))
