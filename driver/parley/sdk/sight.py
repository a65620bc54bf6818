"""Views for a driver in the controller: the pod that a request is for, and the cluster's nodes.

Amounts are in thousandths by resource name: 500 of `cpu` is half a core, 1000 of `memory` is a byte.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from parley.sdk.values import PodReference

Amounts: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PodController:
    """The controller of a pod, by its owner reference: a ReplicaSet, a Job, a workflow."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A waiting pod. `requests` are its effective resource requests, `images` those of its containers, init
    containers first. The pod's user writes labels and images: let them influence where the pod goes, never what
    it may have."""

    labels: Mapping[str, str] = field(default_factory=dict)
    controller: PodController | None = None
    priority: int = 0
    requests: Amounts = field(default_factory=dict)
    images: tuple[str, ...] = ()


class SeenCluster(Protocol):
    """The nodes as the controller knows them now. For an unknown node, labels and amounts are empty."""

    def nodes(self) -> Sequence[str]:
        """The names of all nodes."""
        ...

    def labels(self, node: str) -> Mapping[str, str]:
        """The node's labels."""
        ...

    def allocatable(self, node: str) -> Amounts:
        """The amounts that all pods on the node together may request."""
        ...

    def used(self, node: str) -> Amounts:
        """The summed requests of the pods bound to the node, and of those about to be bound."""
        ...

    def reserved(self, node: str) -> Amounts:
        """The amounts reserved there for the users of claims, whether they use them or not."""
        ...

    def users(self, claim_uid: str) -> "Sequence[PodReference]":
        """The pods that use an allocated claim."""
        ...
