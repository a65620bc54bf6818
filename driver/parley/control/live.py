"""Reads a pod from the API server where the cache may be behind."""

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.kube.client import Client, NotFound
from parley.sdk import PodReference


async def live_pod(client: Client, user: PodReference) -> Pod | None:
    """The live pod; None if it is gone, even if another has its name. Raises what a client raises but NotFound."""
    try:
        live = await client.get(PODS, user.name, user.namespace)
    except NotFound:
        return None
    return live if live.metadata.uid == user.uid else None
