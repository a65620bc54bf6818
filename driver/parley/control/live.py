"""Reads a pod from the API server where the cache may be behind."""

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.control.allocation import Busy
from parley.control.state import State
from parley.kube.client import Client, NotFound
from parley.sdk import PodReference


async def live_pod(client: Client, user: PodReference) -> Pod | None:
    """The live pod; None if it is gone, even if another has its name. Raises what a client raises but NotFound."""
    try:
        live = await client.get(PODS, user.name, user.namespace)
    except NotFound:
        return None
    return live if live.metadata.uid == user.uid else None


async def live_pod_if_unchanged(client: Client, state: State, user: PodReference) -> Pod | None:
    """The live pod, to decide whether its claims are released.

    Raises Busy if the pod's nodes or a built-in claim that it holds changed in the cache while it was read: the
    answer may be older than that, and a write of the claim would not be refused.
    """
    before = _cached(state, user)
    live = await live_pod(client, user)
    if _cached(state, user) != before:
        raise Busy
    return live


def _cached(state: State, user: PodReference) -> list[str]:
    """What the cache has: the nodes that the pod is bound to and nominated for, and the resource versions of the
    built-in claims that it holds."""
    pod = state.cluster.pod_with_uid(user)
    nodes = [pod.spec.node_name, pod.status.nominated_node_name] if pod is not None else []
    mirrors = (state.cluster.mirror((one.namespace, one.claim)) for one in state.ledger.of_pod(user))
    return [*nodes, *(one.metadata.resource_version if one is not None else "" for one in mirrors)]
