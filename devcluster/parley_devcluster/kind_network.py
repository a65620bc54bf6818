"""The pod network of kind's nodes, configured statically, so that no image of a network plugin is needed.

Each node assigns its pods addresses from its pod CIDR, and has a route to the pod CIDR of every other node.
Traffic that leaves the cluster is masqueraded with the node's address. kind's own plugin does the same, and also
follows nodes that are added or change their address, which this does not.
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
    """A node: its name, which is also its container's, its address and its pod CIDR."""

    name: str
    address: str
    pods: str


def nodes(listed: str) -> list[KindNode]:
    """The nodes of a NodeList in JSON, without those that have no pod CIDR yet."""
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
    """The shell commands that configure a node; they are idempotent."""
    routes = [f"ip route replace {other.pods} via {other.address}" for other in connected if other != node]
    rule = f"POSTROUTING -s {node.pods} ! -d {PODS} -j MASQUERADE"
    masquerade = f"iptables -t nat -C {rule} 2>/dev/null || iptables -t nat -A {rule}"
    text = json.dumps(configuration(node))
    return [*routes, masquerade, f"mkdir -p /etc/cni/net.d && echo '{text}' > {_FILE}"]


def configuration(node: KindNode) -> dict[str, Any]:
    """A CNI configuration list of Debian's plugins: a veth pair for each pod, addresses, host ports."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "0.4.0",
        "name": "parley",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
