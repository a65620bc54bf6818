"""Reads a pod's object: whether it has ended, its priority, its order, and a reference to it. Pure."""

from parley.api.builtin import Pod
from parley.sdk import PodReference

SCHEDULED = "PodScheduled"
"""The condition in which a scheduler reports its attempts to place a pod."""


def is_terminal(pod: Pod) -> bool:
    """Whether the pod is terminal: the kubelet has unprepared its claims by then."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_done(pod: Pod) -> bool:
    """Whether nothing is negotiated for the pod any more: it is terminal, or being deleted and was never bound.
    The same as `isPodDone` of Kubernetes' claim controller."""
    return is_terminal(pod) or bool(pod.metadata.deletion_timestamp and not pod.spec.node_name)


def priority(pod: Pod) -> int:
    """The pod's priority, which the API server set from its PriorityClass; 0 without one."""
    return pod.spec.priority or 0


def was_tried(pod: Pod) -> bool:
    """Whether a scheduler has tried to place the pod: its condition reports that."""
    return any(condition.type == SCHEDULED for condition in pod.status.conditions)


def arrival(pod: Pod) -> tuple[str, str, str]:
    """The order in which pods are served, the same for a new leader: by creation (to the second), then by name."""
    return pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name


def path_of(pod: Pod) -> str:
    """The pod's name in messages, NAMESPACE/NAME."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def reference(pod: Pod) -> PodReference:
    """The pod's namespace, name and UID."""
    return PodReference(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
