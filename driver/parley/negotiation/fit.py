"""A model of kube-scheduler's basic filters: which nodes are feasible for a pod. Pure.

Knows: unschedulable, taints, node selector, required node affinity, resources left, node name. Leaves to the
real scheduler: pod affinity and anti-affinity, topology spread, ports, volumes, other drivers' claims. A node
that passes here and is refused there costs one more attempt, never a wrong placement.
The size of a pod's constraints is limited, because they are compared with each node.
Source of the rules: the scheduler's plugins NodeUnschedulable, TaintToleration, NodeAffinity and
NodeResourcesFit in Kubernetes 1.37.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from parley.api.builtin import (
    Node,
    NodeSelector,
    Pod,
    PodSpec,
    ShortenedPodSpec,
    Taint,
    Toleration,
    Volume,
)
from parley.api.meta import MAX_COMPARED, MAX_VALUES
from parley.api.selectors import NodeMatcher, matches
from parley.negotiation.requests import MAX_RESOURCES, Amounts, declared_resources, few_resources, requested

MAX_VOLUMES = 256
"""The most volumes with a PersistentVolumeClaim that a pod may have: each may tie it to nodes."""

CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""Stands for `spec.unschedulable` of a node: a pod that tolerates this taint may be scheduled there."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod requires of a node, apart from its claims. `excess` is why that is too much to evaluate, or "":
    if it is set, only the requests were read. A node that has none of a `delegated` resource fits all the same: a
    DRA driver allocates that resource there."""

    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...]
    affinity: NodeSelector | None
    tolerations: tuple[Toleration, ...]
    node_name: str
    excess: str = ""
    delegated: frozenset[str] = frozenset()
    matcher: NodeMatcher | None = field(default=None, compare=False, repr=False)
    """The affinity, compiled: it is compared with each node."""


def needs_of(pod: Pod) -> Needs:
    """The needs of a pod, read from its spec."""
    requests = tuple(sorted(few_resources(requested(pod)).items()))
    if excess := excess_of(pod.spec):
        return Needs(requests, (), None, (), pod.spec.node_name, excess)
    affinity = _required(pod.spec)
    return Needs(
        requests=requests,
        node_selector=tuple(sorted(pod.spec.node_selector.items())),
        affinity=affinity,
        matcher=NodeMatcher(affinity) if affinity is not None else None,
        tolerations=tuple(pod.spec.tolerations),
        node_name=pod.spec.node_name,
    )


def _required(spec: PodSpec) -> NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def excess_of(spec: PodSpec) -> str:
    """Why a pod's requirements for nodes are too large to evaluate, "" if they are not."""
    if isinstance(spec, ShortenedPodSpec) and spec.excess:
        return spec.excess
    selector = _required(spec)
    compared, values = len(spec.tolerations) + len(spec.node_selector), 0
    for term in selector.node_selector_terms if selector else ():
        requirements = (*term.match_expressions, *term.match_fields)
        compared += 1 + len(requirements)
        for requirement in requirements:
            values += len(requirement.values)
    if compared > MAX_COMPARED:
        return (
            f"is not considered: the pod has {compared} tolerations, node selector terms and requirements, and "
            f"Parley evaluates at most {MAX_COMPARED} with a node"
        )
    if values > MAX_VALUES:
        return (
            f"is not considered: the pod's node affinity names {values} values, and Parley evaluates at most "
            f"{MAX_VALUES} with a node"
        )
    if _requests_too_many(spec):
        return (
            f"is not considered: the pod requests more than {MAX_RESOURCES} different resources, and Parley "
            "evaluates no more with a node"
        )
    return _too_many_volumes(spec.volumes) if len(spec.volumes) > MAX_VOLUMES else ""


def _requests_too_many(spec: PodSpec) -> bool:
    if (
        sum(len(resources.requests) + len(resources.limits) for resources in declared_resources(spec))
        <= MAX_RESOURCES
    ):
        return False
    return len(requested(Pod(spec=spec))) > MAX_RESOURCES


def _too_many_volumes(all_volumes: Iterable[Volume]) -> str:
    volumes = sum(v.persistent_volume_claim is not None or v.ephemeral is not None for v in all_volumes)
    if volumes <= MAX_VOLUMES:
        return ""
    return (
        f"is not considered: the pod has {volumes} volumes with a PersistentVolumeClaim, and Parley evaluates at "
        f"most {MAX_VOLUMES} with a node"
    )


def misfit(needs: Needs, node: Node, allocatable: Amounts, used: Amounts, pods: int) -> str:
    """Why the pod does not fit on the node, or "" if it does.

    `allocatable` and `used` are in thousandths, `pods` counts those on the node.
    """
    if needs.node_name:
        return "" if needs.node_name == node.metadata.name else f"the pod is bound to node {needs.node_name}"
    return (
        needs.excess
        or untolerated_taint(needs, node)
        or ("" if selected(needs, node) else "does not match the pod's node selector or affinity")
        or shortage(needs, allocatable, used, pods)
    )


def untolerated_taint(needs: Needs, node: Node) -> str:
    """Which cordon or taint of the node keeps the pod away, or ""."""
    taint = next(iter(untolerated_taints(needs, node)), None)
    if taint is None:
        return ""
    if taint is CORDON:
        return "cordoned"
    return f"taint {taint.key}:{taint.effect}, which the pod does not tolerate"


def untolerated_taints(needs: Needs, node: Node) -> list[Taint]:
    """The taints of the node that keep the pod away."""
    return [taint for taint in all_taints(node) if not _tolerated(taint, needs.tolerations)]


def all_taints(node: Node) -> list[Taint]:
    """The node's taints that keep pods away; a cordon comes first, as the taint `CORDON`."""
    taints = [CORDON] if node.spec.unschedulable else []
    return taints + [taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute")]


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def selected(needs: Needs, node: Node) -> bool:
    """Whether node selector and required affinity let the pod onto the node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in needs.node_selector):
        return False
    if needs.matcher is not None:
        return needs.matcher.matches(node)
    return needs.affinity is None or matches(needs.affinity, node)


def unsuitable(class_name: str, selector: NodeSelector, node: Node) -> str:
    """Why claims of the class with these `suitableNodes` may not be allocated on the node; "" if they may."""
    return "" if matches(selector, node) else f"not among the suitableNodes of class {class_name}"


def shortage(needs: Needs, allocatable: Amounts, used: Amounts, pods: int) -> str:
    """The first of the node's resources of which too little is left for the pod, as a message, or ""."""
    if (pods + 1) * 1000 > allocatable.get("pods", 0):
        return "no pod slots left"
    for name, amount in needs.requests:
        if name in needs.delegated and not allocatable.get(name, 0):
            continue
        if used.get(name, 0) + amount > allocatable.get(name, 0):
            return f"too little {name} left"
    return ""
