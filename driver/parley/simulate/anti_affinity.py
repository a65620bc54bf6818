"""Required pod anti-affinity: a filter of kube-scheduler that Parley itself does not evaluate.

With it a simulated scheduler can refuse a node that Parley proposed. Only required anti-affinity within one
namespace. Source: the InterPodAffinity plugin of Kubernetes 1.37.
"""

from collections.abc import Iterable

from parley.api import builtin
from parley.api.builtin import LabelSelector, Struct
from parley.api.resources import Resource
from parley.api.selectors import selects


class Term(Struct, frozen=True):
    """Keeps pods that `label_selector` selects off nodes with the same value of label `topology_key`."""

    label_selector: LabelSelector = LabelSelector()
    topology_key: str = ""


class PodAntiAffinity(Struct, frozen=True):
    required_during_scheduling_ignored_during_execution: list[Term] = []


class Affinity(builtin.Affinity, frozen=True):
    pod_anti_affinity: PodAntiAffinity | None = None


class PodSpec(builtin.PodSpec, frozen=True):
    affinity: Affinity | None = None


class Pod(builtin.Pod, frozen=True):
    """A pod with the fields that the simulated scheduler reads."""

    spec: PodSpec = PodSpec()


PODS = Resource("", "v1", "pods", "Pod", True, Pod)


def has_anti_affinity(pod: Pod) -> bool:
    """Whether the pod has required anti-affinity terms."""
    rules = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return bool(rules and rules.required_during_scheduling_ignored_during_execution)


def conflicting_topology_keys(pod: Pod, other: Pod) -> frozenset[str]:
    """The topology keys whose value must differ between the nodes of the two pods."""
    if pod.metadata.namespace != other.metadata.namespace:
        return frozenset()
    return frozenset(_keys(pod, other)) | frozenset(_keys(other, pod))


def _keys(pod: Pod, other: Pod) -> Iterable[str]:
    rules = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    for term in rules.required_during_scheduling_ignored_during_execution if rules else ():
        if selects(term.label_selector, other.metadata.labels):
            yield term.topology_key
