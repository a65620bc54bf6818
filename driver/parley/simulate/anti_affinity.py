"""Pods that must not share a node: the one filter of kube-scheduler that Parley's own model leaves out.

It is here so that a simulated scheduler can refuse a node that Parley proposed. Required anti-affinity only,
within one namespace. Source: the InterPodAffinity plugin of Kubernetes 1.37.
"""

from collections.abc import Iterable

from parley.api import builtin
from parley.api.builtin import LabelSelector, Struct
from parley.api.resources import Resource
from parley.api.selectors import selects


class Term(Struct, frozen=True):
    """Pods that `label_selector` selects must not have a node with the same value of label `topology_key`."""

    label_selector: LabelSelector = LabelSelector()
    topology_key: str = ""


class PodAntiAffinity(Struct, frozen=True):
    required_during_scheduling_ignored_during_execution: list[Term] = []


class Affinity(builtin.Affinity, frozen=True):
    pod_anti_affinity: PodAntiAffinity | None = None


class PodSpec(builtin.PodSpec, frozen=True):
    affinity: Affinity | None = None


class Pod(builtin.Pod, frozen=True):
    """A pod as the simulated scheduler reads it."""

    spec: PodSpec = PodSpec()


PODS = Resource("", "v1", "pods", "Pod", True, Pod)


def has_rules(pod: Pod) -> bool:
    """Whether the pod itself keeps others away."""
    rules = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return bool(rules and rules.required_during_scheduling_ignored_during_execution)


def kept_apart(pod: Pod, other: Pod) -> frozenset[str]:
    """The topology keys whose value the nodes of the two pods must not share."""
    if pod.metadata.namespace != other.metadata.namespace:
        return frozenset()
    return frozenset(_keys(pod, other)) | frozenset(_keys(other, pod))


def _keys(pod: Pod, other: Pod) -> Iterable[str]:
    rules = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    for term in rules.required_during_scheduling_ignored_during_execution if rules else ():
        if selects(term.label_selector, other.metadata.labels):
            yield term.topology_key
