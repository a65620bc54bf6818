"""What a pod's object says about it: whether it has ended, its priority, and how others refer to it. Pure."""

from parley.api.builtin import Pod
from parley.sdk import PodReference

SCHEDULED = "PodScheduled"
"""The condition in which a scheduler says how its attempts at a pod end."""


def done(pod: Pod) -> bool:
    """Whether the pod has ended: the kubelet has unprepared its claims by then."""
    return pod.status.phase in ("Succeeded", "Failed")


def over(pod: Pod) -> bool:
    """Whether nothing is negotiated for the pod any more: it has ended, or is deleted and was never bound."""
    return done(pod) or bool(pod.metadata.deletion_timestamp and not pod.spec.node_name)


def priority(pod: Pod) -> int:
    """Of its PriorityClass, which the API server wrote into the pod; 0 without one."""
    return pod.spec.priority or 0


def tried(pod: Pod) -> bool:
    """Whether a scheduler has tried to place the pod: it says in a condition how that ended."""
    return any(condition.type == SCHEDULED for condition in pod.status.conditions)


def arrival(pod: Pod) -> tuple[str, str, str]:
    """Who came first is served first, also by a new leader: by creation (to the second), then by name."""
    return pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name


def reference(pod: Pod) -> PodReference:
    """Namespace, name and UID."""
    return PodReference(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
