"""Reservation pods: they reserve room on a node against the scheduler's other pods, and never run. Pure.

kube-scheduler counts a pod that waits for the node in its `status.nominatedNodeName` when it filters that node for
pods of the same or a lower priority (`addGENominatedPods`). No kubelet sees it, nothing is evicted. A scheduling
gate keeps the scheduler from placing it. The kube-scheduler of Kubernetes 1.36, however, does not count gated pods
that exist when it starts (`PriorityQueue.Add`). There it is an affinity that no node can satisfy: the scheduler
tries the pod in vain, and leaves its nomination alone if its PriorityClass says that it does not preempt
(`RunPostFilterPlugins`, `PodEligibleToPreemptOthers`). The name is a digest of the content: a pod with the wanted
name has the wanted content.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from parley.api.builtin import NodeSelectorTerm, Pod
from parley.api.names import RESERVATION_GATE, RESERVED_CLAIM_LABEL, RESERVED_FOR_ANNOTATION
from parley.api.selectors import named_by, node_selector
from parley.negotiation.requests import Amounts
from parley.negotiation.reservations import PODS

_IMAGE = "registry.k8s.io/pause:3.10"
"""Required by the API. It is never pulled."""


@dataclass(frozen=True, slots=True)
class ReservationPod:
    """The content of a reservation pod: for `node`, requesting `amounts` (in thousandths, by resource name) for a
    claim, which is given by UID and, for people, as "namespace/name", against pods of the scheduler. `gated`: a
    gate keeps it from being placed, otherwise its affinity. `priority_class` is the name of its PriorityClass, ""
    for the cluster's default."""

    node: str
    claim: str
    path: str
    scheduler: str
    amounts: tuple[tuple[str, int], ...]
    number: int
    gated: bool
    priority_class: str

    @property
    def name(self) -> str:
        """The name of the object."""
        what = (self.node, self.claim, self.scheduler, self.amounts, self.number)
        content = repr((*what, self.gated, self.priority_class))
        return f"reservation-{sha256(content.encode()).hexdigest()[:20]}"

    def body(self, namespace: str) -> dict[str, Any]:
        """The manifest; the strictest Pod Security Standard admits it. Requests are limits, too, as the API
        requires for resources other than CPU and memory."""
        requests = {name: _quantity(amount) for name, amount in self.amounts}
        confined = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65535,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        resources = {"resources": {"requests": requests, "limits": requests}} if requests else {}
        return {
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/name": "parley-reservation", RESERVED_CLAIM_LABEL: self.claim},
                "annotations": {RESERVED_FOR_ANNOTATION: self.path},
            },
            "spec": {
                **({"schedulingGates": [{"name": RESERVATION_GATE}]} if self.gated else {}),
                "schedulerName": self.scheduler,
                **({"priorityClassName": self.priority_class} if self.priority_class else {}),
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": self._selector()}},
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "room", "image": _IMAGE, "securityContext": confined, **resources}],
            },
        }

    def _selector(self) -> dict[str, Any]:
        """The node selector, by which the pod's node is read back. Without a gate, no node matches it."""
        selector = node_selector([self.node])
        if not self.gated:
            (term,) = selector["nodeSelectorTerms"]
            term["matchExpressions"] = [{"key": RESERVATION_GATE, "operator": one} for one in _CONTRADICTION]
        return selector


_CONTRADICTION = ("Exists", "DoesNotExist")
"""Operators for one label that no node can match together."""


def reservation_pods(
    node: str,
    claim: str,
    path: str,
    left: Amounts,
    schedulers: Iterable[str],
    *,
    gated: bool = True,
    priority_class: str = "",
) -> Sequence[ReservationPod]:
    """The pods that hold the amounts `left` of a claim's reservation: one for each of its pod slots, the first of
    them with all amounts; a single one if no slots are reserved."""
    amounts = tuple(sorted((name, amount) for name, amount in left.items() if amount > 0 and name != PODS))
    slots = -(-left[PODS] // 1000) if PODS in left else bool(amounts)
    return [
        ReservationPod(node, claim, path, scheduler, amounts if number == 0 else (), number, gated, priority_class)
        for scheduler in schedulers
        for number in range(slots)
    ]


def reserved_on(pod: Pod, namespace: str) -> str | None:
    """The node where the pod reserves room; None if it is not a reservation pod. These are in the namespace where
    Parley makes them, and name one node. Users may make pods like them elsewhere, which name thousands."""
    if pod.metadata.namespace != namespace or pod.spec.affinity is None:
        return None
    affinity = pod.spec.affinity.node_affinity
    selector = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    nodes = named_by(selector)
    if selector is None or len(nodes) != 1:
        return None
    gated = any(gate.name == RESERVATION_GATE for gate in pod.spec.scheduling_gates)
    return nodes[0] if gated or all(map(_is_contradictory, selector.node_selector_terms)) else None


def _is_contradictory(term: NodeSelectorTerm) -> bool:
    operators = {one.operator for one in term.match_expressions if one.key == RESERVATION_GATE}
    return operators.issuperset(_CONTRADICTION)


def _quantity(thousandths: int) -> str:
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"
