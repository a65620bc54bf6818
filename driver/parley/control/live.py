"""A pod as the API server has it now, where the cache may be behind."""

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.kube.client import Client, NotFound
from parley.sdk import PodReference


async def live_pod(client: Client, user: PodReference) -> Pod | None:
    """None if it is gone, also if another one has its name. Raises what the client raises else."""
    try:
        live = await client.get(PODS, user.name, user.namespace)
    except NotFound:
        return None
    return live if live.metadata.uid == user.uid else None
