"""The pod network of kind's nodes, by static configuration: no image of a network plugin is needed.

Each node gives its pods addresses of the range that the controller-manager assigned to it, and has a route to the
range of every other node; what leaves the cluster does so with the node's address. kind's own plugin does the
same, and also when a node is added or gets another address, which this does not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley_devcluster.engine import Engine

PODS = "10.244.0.0/16"

_FILE = "/etc/cni/net.d/10-parley.conflist"


@dataclass(frozen=True)
class KindNode:
    """A node by its name, which is its container's too, its address, and the range of its pods."""

    name: str
    address: str
    pods: str


def nodes(listed: str) -> list[KindNode]:
    """Those of a NodeList as JSON; one that has no range yet is left out."""
    found = []
    for item in json.loads(listed)["items"]:
        addresses = {address["type"]: address["address"] for address in item["status"]["addresses"]}
        if pods := item["spec"].get("podCIDR"):
            found.append(KindNode(item["metadata"]["name"], addresses["InternalIP"], pods))
    return found


def connect(engine: Engine, connected: Sequence[KindNode]) -> None:
    """Configure every node's network; raises `EngineError`."""
    for node in connected:
        for command in commands(node, connected):
            engine.run("exec", node.name, "sh", "-euc", command, limit=30)


def commands(node: KindNode, connected: Sequence[KindNode]) -> list[str]:
    """What a node's shell has to do; done twice it changes nothing more."""
    routes = [f"ip route replace {other.pods} via {other.address}" for other in connected if other != node]
    rule = f"POSTROUTING -s {node.pods} ! -d {PODS} -j MASQUERADE"
    masquerade = f"iptables -t nat -C {rule} 2>/dev/null || iptables -t nat -A {rule}"
    text = json.dumps(configuration(node))
    return [*routes, masquerade, f"mkdir -p /etc/cni/net.d && echo '{text}' > {_FILE}"]


def configuration(node: KindNode) -> dict[str, Any]:
    """A CNI list of plugins that Debian has: a pair of interfaces for each pod, addresses, host ports."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "0.4.0",
        "name": "parley",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
