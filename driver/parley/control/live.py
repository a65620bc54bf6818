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
    answer may be older than that, and a write of the claim would not be refused. Changes by Parley do not count.
    """
    nodes, mirrors = _nodes(state, user), _versions(state, user)
    live = await live_pod(client, user)
    now = _versions(state, user)
    if _nodes(state, user) != nodes or any(now.get(name) != version for name, version in mirrors.items()):
        raise Busy
    return live


def _nodes(state: State, user: PodReference) -> tuple[str, str] | None:
    """The nodes that the pod is bound to and nominated for, in the cache; None if that does not have the pod."""
    pod = state.cluster.pod_with_uid(user)
    return (pod.spec.node_name, pod.status.nominated_node_name) if pod is not None else None


def _versions(state: State, user: PodReference) -> dict[str, str]:
    """The resource versions in the cache of the built-in claims that the pod holds, by name. Not of those of which
    the cache does not show Parley's latest write yet."""
    found = (state.cluster.mirror((one.namespace, one.claim)) for one in state.ledger.of_pod(user))
    metas = (mirror.metadata for mirror in found if mirror is not None)
    return {meta.name: meta.resource_version for meta in metas if not state.cluster.own_writes.is_stale(meta)}
