"""Reads Deployments, DaemonSets and their pods: commands, options, readiness and its obstacles. No I/O."""

from collections.abc import Iterator, Sequence
from typing import Any

from parley.doctor.kinds import Body

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def containers(workload: Body) -> list[Body]:
    """The containers of a workload's pods, or of a pod."""
    spec = workload["spec"].get("template", workload)["spec"]
    found: list[Body] = spec.get("containers") or []
    return found


def command(container: Body) -> list[str]:
    """The container's command with its arguments."""
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def runs(workload: Body, *words: str) -> bool:
    """Whether a container's command begins with these words, whatever the program's folder."""
    return any(_begins(command(container), words) for container in containers(workload))


def has_option(workload: Body, name: str) -> bool:
    """Whether a container's command has this option, as `name=value` or as two words."""
    words = [word for container in containers(workload) for word in command(container)]
    return any(word.partition("=")[0] == name for word in words)


def option(workload: Body, name: str) -> str:
    """The value of this option in a container's command; "" if there is none."""
    words = [word for container in containers(workload) for word in command(container)]
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return after
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _begins(line: Sequence[str], words: Sequence[str]) -> bool:
    if not line:
        return False
    return [line[0].rpartition("/")[2], *line[1 : len(words)]] == list(words)


def pods_of(workload: Body, pods: Sequence[Body]) -> list[Body]:
    """The pods that the workload's selector selects."""
    wanted = (workload["spec"]["selector"].get("matchLabels") or {}).items()
    return [pod for pod in pods if wanted <= (pod["metadata"].get("labels") or {}).items()]


def host_paths(workload: Body) -> dict[str, str]:
    """The host paths that the workload's pods mount, by volume name."""
    volumes = workload["spec"]["template"]["spec"].get("volumes") or ()
    return {one["name"]: one["hostPath"]["path"].rstrip("/") for one in volumes if one.get("hostPath")}


def node_of(pod: Body) -> str:
    """The pod's node; for an unbound pod of a DaemonSet the node of its required affinity."""
    spec = pod["spec"]
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    fields = [one for term in affinity.get("nodeSelectorTerms") or () for one in term.get("matchFields") or ()]
    named = (one["values"][0] for one in fields if one.get("key") == "metadata.name" and one.get("values"))
    return str(spec.get("nodeName") or next(named, ""))


def ready(pod: Body) -> bool:
    """Whether the pod is ready, by its condition."""
    return _condition(pod, "Ready").get("status") == "True"


def trouble(pod: Body) -> str:
    """Why the pod is not ready, in Kubernetes' words; "" if it is."""
    if ready(pod):
        return ""
    name = pod["metadata"]["name"]
    for state in _states(pod):
        waiting = state.get("waiting") or state.get("terminated") or {}
        if reason := waiting.get("reason"):
            message = waiting.get("message", "")
            return f"pod {name}: {reason}{f': {message}' if message else ''}"
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"pod {name}: {scheduled.get('reason')}: {scheduled.get('message', '')}"
    return f"pod {name}: {_condition(pod, 'Ready').get('message') or 'is not ready yet'}"


def refused(deployment: Body) -> str:
    """Why the Deployment's pods can't be created, in Kubernetes' words; "" if they can."""
    failure = _condition(deployment, "ReplicaFailure")
    return str(failure.get("message", "")) if failure.get("status") == "True" else ""


def uncreated(daemon_set: Body) -> str:
    """How many of its pods exist, as "N of M", if some can't be created; "" if all exist."""
    status = daemon_set.get("status") or {}
    wanted = status.get("desiredNumberScheduled", 0)
    there = status.get("currentNumberScheduled", wanted)
    return f"{there} of {wanted}" if there < wanted else ""


def _states(pod: Body) -> Iterator[dict[str, Any]]:
    status = pod.get("status") or {}
    for one in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        yield one.get("state") or {}


def _condition(body: Body, kind: str) -> dict[str, Any]:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})
