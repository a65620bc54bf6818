"""A claim that can be used in a zone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parley.api.resources import NODES
from parley.drivers.tokens import Pool, TokensDriver, Wanted
from parley.kube.client import Client
from parley.sdk import Allocation, NodeLabels, Request, SeenCluster

ZONE = "topology.kubernetes.io/zone"


class ZoneTokens(TokensDriver):
    """What is allocated on a node can be used in its zone."""

    def see(self, cluster: SeenCluster) -> None:
        self.cluster = cluster

    async def allocate(self, request: Request[Wanted, Pool], node: str) -> Mapping[str, Allocation]:
        zone = NodeLabels({ZONE: self.cluster.labels(node)[ZONE]})
        found = await super().allocate(request, node)
        return {name: replace(one, available_on=zone) for name, one in found.items()}


async def place(client: Client, node: str, zone: str | None, *, cordoned: bool = False) -> None:
    """The node is in the zone, or in none."""
    body: dict[str, Any] = {"metadata": {"labels": {ZONE: zone}}, "spec": {"unschedulable": cordoned}}
    await client.patch(NODES, node, body)
