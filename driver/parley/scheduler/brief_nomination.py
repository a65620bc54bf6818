"""Makes a kube-scheduler retry a pod that its own filters rejected on every node, by a brief nomination.

Changes of its claims or annotations don't requeue such a pod (`isPodWorthRequeuing` of Kubernetes 1.37): it is
retried when a pod leaves a node, when a node changes, or after five minutes.
"""

from parley.api.resources import PODS
from parley.control.live import live_pod
from parley.kube.client import Client, Conflict, Invalid, NotFound
from parley.sdk import PodReference

_TRIES = 5
"""How often to try to end the nomination of a pod that keeps changing."""


async def nominate_briefly(client: Client, pod: PodReference, node: str) -> None:
    """Nominate the pod for the node and clear the nomination, which makes its scheduler try it again, whatever
    rejected it: kube-scheduler treats that as if a pod had left the node (`hasNominatedNodeNameChanged`).

    If the nomination can't be cleared, the scheduler clears it itself the next time that it finds no node for the
    pod, nor any to evict others on.
    """
    version = await _nominate(client, pod, node, "")
    for _ in range(_TRIES):
        try:
            await _nominate(client, pod, None, version)
        except Conflict:
            version = await _version_if_nominated(client, pod, node)
        else:
            return
        if not version:
            return


async def _nominate(client: Client, pod: PodReference, node: str | None, version: str) -> str:
    """Returns the pod's resourceVersion, or "" if it is gone. Raises Conflict if `version` is outdated."""
    metadata = {"uid": pod.uid, **({"resourceVersion": version} if version else {})}
    body = {"metadata": metadata, "status": {"nominatedNodeName": node}}
    try:
        live = await client.patch(PODS, pod.name, body, pod.namespace, subresource="status")
    except (NotFound, Invalid):
        return ""
    return live.metadata.resource_version


async def _version_if_nominated(client: Client, pod: PodReference, node: str) -> str:
    """The pod's resourceVersion if it is nominated for the node, else ""."""
    live = await live_pod(client, pod)
    return live.metadata.resource_version if live is not None and live.status.nominated_node_name == node else ""
