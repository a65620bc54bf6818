"""Nodes are cordoned, tainted, removed, added and replaced; their devices are withdrawn and published."""

from tests.soak.actions.requests import Requests
from tests.soak.cluster.taints import some_taint
from tests.soak.cluster.world import World
from tests.soak.kinds import nodes
from tests.soak.kinds.names import ZONE
from tests.soak.kinds.nodes import NODE_KINDS, STANDALONE_DEVICES

from parley.api.names import UNREACHABLE_TAINT
from parley.api.resources import NODES, PODS, RESOURCE_SLICES


class NodeActions:
    """Acts on nodes and their ResourceSlices."""

    def __init__(self, world: World, requests: Requests) -> None:
        self._world = world
        self._chance = world.chance
        self._requests = requests
        self._generation = 1
        self._missing: dict[str, frozenset[int]] = {}
        """Numbers of the devices that a node does not publish, by node."""
        self._missing_standalone: dict[str, frozenset[int]] = {}
        """The same of the standalone driver's devices."""

    def create(self) -> None:
        """The nodes, at the beginning."""
        for name in NODE_KINDS:
            self._requests.create(NODES, nodes.node(name))
            self._requests.create(RESOURCE_SLICES, nodes.slice_(name, 1))
            if self._world.plan.standalone:
                self._requests.create(RESOURCE_SLICES, nodes.standalone_slice(name, 1))

    def mend(self) -> None:
        """All nodes exist, take pods, are in their zones, and publish all devices."""
        for name in NODE_KINDS:
            self._requests.ensure(NODES, nodes.node(name))
            self._world.parts.kubelets.machine_there(name)
            self._requests.patch(NODES, name, {"spec": {"unschedulable": None, "taints": None}})
            self._requests.patch(NODES, name, {"metadata": {"labels": {ZONE: NODE_KINDS[name][0]}}})
            self._missing[name] = self._missing_standalone[name] = frozenset()
            self._set_slice(name)

    def cordon(self) -> None:
        """A node becomes unschedulable, or schedulable."""
        cordoned = self._chance.random() < 0.5
        self._requests.patch(NODES, self._requests.some_node(), {"spec": {"unschedulable": cordoned or None}})

    def taint(self) -> None:
        """A node gets a NoExecute taint, or loses it. The kubelet of an unreachable node does nothing."""
        name = self._requests.some_node()
        if (node := self._requests.found(NODES, name)) is None:
            return
        taints = [] if (node.body.get("spec") or {}).get("taints") else [some_taint(self._chance)]
        if any(taint["key"] == UNREACHABLE_TAINT for taint in taints):
            self._world.parts.kubelets.stop(name)
        else:
            self._world.parts.kubelets.machine_there(name)
        self._requests.patch(NODES, name, {"spec": {"taints": taints or None}})

    def remove(self, name: str = "") -> None:
        """The node, its devices, and its pods are gone, as after the removal of a machine; or the pods' objects
        stay until they are collected, or another machine of the name runs them again."""
        name = name or self._requests.some_node()
        self._requests.delete(NODES, name)
        self._requests.delete(RESOURCE_SLICES, f"{name}-devices")
        self._requests.delete(RESOURCE_SLICES, f"{name}-far")
        self._world.parts.kubelets.machine_gone(name)
        if self._world.plan.orphaned_pods:
            return
        for stored in self._requests.all(PODS):
            if stored.body["spec"].get("nodeName") == name:
                self._requests.delete(PODS, stored.meta["name"], grace=0)

    def add(self, name: str = "") -> None:
        """The node exists, with its devices."""
        name = name or self._requests.some_node()
        self._requests.ensure(NODES, nodes.node(name))
        self._world.parts.kubelets.machine_there(name)
        self._set_slice(name)

    def replace(self) -> None:
        """Another node of the same name follows at once. The first one's pods are gone by then, or soon."""
        name = self._requests.some_node()
        if self._requests.there(NODES, name):
            self.remove(name)
            self.add(name)

    def relabel(self) -> None:
        """A node leaves its zone, or returns to it."""
        name = self._requests.some_node()
        zone = NODE_KINDS[name][0] if self._chance.random() < 0.5 else None
        self._requests.patch(NODES, name, {"metadata": {"labels": {ZONE: zone}}})

    def publish(self) -> None:
        """A device of a node is withdrawn, or published again."""
        name = self._requests.some_node()
        if self._requests.there(NODES, name):
            device = self._chance.randrange(len(NODE_KINDS[name][1]))
            self._missing[name] = self._missing.get(name, frozenset()) ^ {device}
            self._set_slice(name)

    def publish_standalone(self) -> None:
        """The same with a device of the standalone driver."""
        name = self._requests.some_node()
        if self._requests.there(NODES, name) and STANDALONE_DEVICES[name]:
            device = self._chance.randrange(len(STANDALONE_DEVICES[name]))
            self._missing_standalone[name] = self._missing_standalone.get(name, frozenset()) ^ {device}
            self._set_slice(name)

    def _set_slice(self, name: str) -> None:
        """Publish the node's devices but for those that are withdrawn."""
        self._generation += 1
        found = [nodes.slice_(name, self._generation, self._missing.get(name, frozenset()))]
        if self._world.plan.standalone:
            found.append(
                nodes.standalone_slice(name, self._generation, self._missing_standalone.get(name, frozenset()))
            )
        for body in found:
            if self._requests.there(RESOURCE_SLICES, body["metadata"]["name"]):
                self._requests.patch(RESOURCE_SLICES, body["metadata"]["name"], {"spec": body["spec"]})
            else:
                self._requests.create(RESOURCE_SLICES, body)
