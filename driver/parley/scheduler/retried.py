"""Makes a kube-scheduler try a pod again that its own filters rejected everywhere.

No change of its claims or annotations matters to such a pod (`isPodWorthRequeuing` of Kubernetes 1.37): it is
tried again when a pod leaves a node, a node changes, or after five minutes.
"""

from parley.api.resources import PODS
from parley.control.live import live_pod
from parley.kube.client import Client, Conflict, Invalid, NotFound
from parley.sdk import PodReference

_CHANGED = 5
"""So often a pod may change between a look at it and the end of its nomination."""


async def nominate_briefly(client: Client, pod: PodReference, node: str) -> None:
    """Nominate the pod for the node and take that back, which makes its scheduler try it again, whatever
    rejected it: to a kube-scheduler it is as if a pod had left the node (`hasNominatedNodeNameChanged`).

    If the end of it does not arrive, the scheduler ends it itself the next time that it finds no node for the pod,
    nor any to evict others on.
    """
    version = await _nominate(client, pod, node, "")
    for _ in range(_CHANGED):
        try:
            await _nominate(client, pod, None, version)
        except Conflict:
            version = await _version_if_nominated(client, pod, node)
        else:
            return
        if not version:
            return


async def _nominate(client: Client, pod: PodReference, node: str | None, version: str) -> str:
    """Returns the pod's resourceVersion, or "" if it is gone. Raises Conflict if `version` is another one."""
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
