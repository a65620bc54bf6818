"""What the scheduler knows and Parley does not: a pod that others keep away from."""

from tests.unit.scheduler.conftest import World

from parley.api.resources import PODS

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "grump"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
"""A pod's `affinity`: it goes to no node with a grump."""


async def add_grump(world: World, node: str, priority: int = 0) -> None:
    """A pod which others may be told to keep away from."""
    meta = {"name": f"grump-{node}", "namespace": "default", "labels": {"app": "grump"}}
    spec = {"nodeName": node, "priority": priority, "containers": [{"name": "main", "image": "none"}]}
    await world.create(PODS, {"metadata": meta, "spec": spec})
