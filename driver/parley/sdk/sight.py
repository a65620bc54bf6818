"""What a driver in the controller sees beside its own claims: the pod that asks, and the cluster's nodes.

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
    """The object that made a pod and looks after it: a ReplicaSet, a Job, a workflow."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A waiting pod. `requests` are what a node needs for it, `images` those of its containers, init
    containers first. The pod's user writes labels and images: let them decide where the pod goes, never what
    it may have."""

    labels: Mapping[str, str] = field(default_factory=dict)
    controller: PodController | None = None
    priority: int = 0
    requests: Amounts = field(default_factory=dict)
    images: tuple[str, ...] = ()


class SeenCluster(Protocol):
    """The nodes as the controller knows them now. An unknown node has no labels and nothing else."""

    def nodes(self) -> Sequence[str]:
        """All names."""
        ...

    def labels(self, node: str) -> Mapping[str, str]:
        """The node's labels."""
        ...

    def allocatable(self, node: str) -> Amounts:
        """What pods may request there in all."""
        ...

    def used(self, node: str) -> Amounts:
        """What bound pods request there, and those that are about to be bound."""
        ...

    def reserved(self, node: str) -> Amounts:
        """What is reserved there for the users of claims, whether they use it or not."""
        ...

    def users(self, claim_uid: str) -> "Sequence[PodReference]":
        """The pods that use a claim which is allocated."""
        ...
