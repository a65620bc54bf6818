"""Claims that reserve room, for tests of the rules about it."""

from collections.abc import Callable
from typing import Any

from tests.soak.cluster.processes import acting_as
from tests.soak.kinds.claims import claim
from tests.soak.kinds.names import NAMESPACE
from tests.soak.rules.mirrors import Json
from tests.soak.rules.reservations import RESERVED, RESOURCE, Reservations

from parley.api.resources import CLAIM_RELEASES, CLAIMS, PODS
from parley.api.selectors import node_selector

Play = Callable[[Any], None]
CONTROLLER = "controller-1"


class Reserving:
    """Claims that reserve room on nodes, and pods that request it."""

    def __init__(self, world: Any) -> None:
        self.world = world
        world.observe = Reservations(world.rules.fault).observe
        for name in ("disk", "tape"):
            world.create(CLAIMS, claim(name))

    def body(self, name: str) -> Json:
        found: Json = self.world.body(CLAIMS, name)
        return found

    def allocate(self, name: str, node: str = "a", hold: str = "Ledger") -> Json:
        """Parley allocates the claim on the node."""
        allocation = {
            "handles": [{"driverName": "device.parley.dev", "data": {}, "devices": []}],
            "availableOnNodes": node_selector([node]),
            "reserve": {"amounts": {RESOURCE: str(RESERVED[name])}, "hold": hold},
        }
        status = {"driverName": "device.parley.dev", "allocation": allocation}
        found: Json = self.world.status(CLAIMS, name, status, CONTROLLER)
        return found

    def clear(self, name: str) -> None:
        self.world.status(CLAIMS, name, {"driverName": None, "allocation": None}, CONTROLLER)

    def begins_to_end(self, name: str) -> None:
        """The claim says that only its data is left."""
        condition = {"type": "Releasing", "status": "True", "reason": "RemovingData", "message": "b"}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        self.world.status(CLAIMS, name, {"conditions": [condition]}, CONTROLLER)

    def ask_node(self, name: str, *, remove_data: bool) -> None:
        """A ClaimRelease asks the node for a receipt, or to remove the claim's data."""
        meta, allocation = self.body(name)["metadata"], self.body(name)["status"]["allocation"]
        spec = {
            "claim": {"namespace": NAMESPACE, "name": name, "uid": f"built-in {name}"},
            "nodeName": "a",
            "driverName": "device.parley.dev",
            "holdingUid": meta["uid"],
            "allocation": allocation,
            **({"removeData": True} if remove_data else {}),
        }
        self.world.create(CLAIM_RELEASES, {"metadata": {"name": name}, "spec": spec}, CONTROLLER)

    def answer(self, name: str) -> None:
        with acting_as("plugin"):
            self.world.server.delete(CLAIM_RELEASES, name, None)

    def pod(self, name: str, kind: str, **spec: Any) -> Json:
        found: Json = self.world.pod(name, kind, **spec)
        return found

    def bound(self, name: str, kind: str) -> Json:
        """A pod that its scheduler binds to node a."""
        pod = self.pod(name, kind)
        self.world.bind(pod, "a")
        return pod

    def end(self, name: str) -> None:
        self.world.status(PODS, name, {"phase": "Succeeded"}, "kubelet")
