"""Makes a kube-scheduler retry a pod that its own filters rejected on every node, by a brief nomination.

Changes of its claims or annotations don't requeue such a pod (`isPodWorthRequeuing` of Kubernetes 1.37): it is
retried when a pod leaves a node, when a node changes, or after five minutes.
"""

from parley.api.builtin import Pod
from parley.api.resources import PODS
from parley.control.live import live_pod
from parley.control.objects.pod import reference
from parley.kube.client import Client, Conflict, Invalid, NotFound
from parley.sdk import PodReference

_TRIES = 5
"""How often to try to begin or end the nomination of a pod that keeps changing."""


async def nominate_briefly(client: Client, pod: Pod, node: str) -> None:
    """Nominate the pod for the node and clear the nomination, which makes its scheduler try it again, whatever
    rejected it: kube-scheduler treats that as if a pod had left the node (`hasNominatedNodeNameChanged`). Raises
    Conflict, and writes nothing, if the pod was nominated or bound since it was read as `pod`.

    If the nomination can't be cleared, the scheduler clears it itself the next time that it finds no node for the
    pod, nor any to evict others on.
    """
    user = reference(pod)
    version = await _begin(client, pod, node)
    for _ in range(_TRIES if version else 0):
        try:
            await _nominate(client, user, None, version)
        except Conflict:
            version = await _version_if_nominated(client, user, node)
        else:
            return
        if not version:
            return


async def _begin(client: Client, pod: Pod, node: str) -> str:
    """Nominate the pod. Returns its resourceVersion, or "" if it is gone. Raises Conflict as above, and if the pod
    keeps changing."""
    user, version = reference(pod), pod.metadata.resource_version
    for _ in range(_TRIES):
        try:
            return await _nominate(client, user, node, version)
        except Conflict:
            live = await live_pod(client, user)
            if live is None:
                return ""
            if _nodes(live) != _nodes(pod):
                raise
        version = live.metadata.resource_version
    return await _nominate(client, user, node, version)


def _nodes(pod: Pod) -> tuple[str, str]:
    return pod.spec.node_name, pod.status.nominated_node_name


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
