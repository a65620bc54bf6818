"""Claims that are allocated on nodes where a pod can't go: the cause at each node, and the message. Pure.

A claim is stranded for a pod when each node where it can be used is deleted, cordoned, full, or has a taint that
the pod does not tolerate. A pod's own node selector or affinity never makes a claim stranded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from parley.api.builtin import Node, Taint
from parley.api.names import NOT_READY_TAINT, OUT_OF_SERVICE_TAINT, UNREACHABLE_TAINT
from parley.api.wording import listed
from parley.kube.clock import moment
from parley.negotiation.answers import by_reason
from parley.negotiation.fit import CORDON, Needs, all_taints, selected, shortage, untolerated_taints
from parley.negotiation.nowhere import where
from parley.negotiation.requests import Amounts

_NAMED = 5
"""The most claims that a message names."""


class Cause(Enum):
    """Why a node can't take a pod. The values are reasons of a claim's condition `Stranded`."""

    DELETED = "NodeDeleted"
    OUT_OF_SERVICE = "NodeOutOfService"
    UNREACHABLE = "NodeUnreachable"
    NOT_READY = "NodeNotReady"
    CORDONED = "NodeCordoned"
    TAINTED = "NodeTainted"
    FULL = "NodeFull"


_KNOWN_TAINTS: Mapping[str, tuple[Cause, str]] = {
    OUT_OF_SERVICE_TAINT: (Cause.OUT_OF_SERVICE, "out of service"),
    UNREACHABLE_TAINT: (Cause.UNREACHABLE, "unreachable"),
    NOT_READY_TAINT: (Cause.NOT_READY, "not ready"),
    CORDON.key: (Cause.CORDONED, "cordoned"),
}
"""If a node has several of these taints, the first one here counts: it says most about the node's condition."""

_REMEDIES: Mapping[Cause, str] = {
    Cause.OUT_OF_SERVICE: "start the node and remove the taint",
    Cause.UNREACHABLE: "bring the node back",
    Cause.NOT_READY: "bring the node back",
    Cause.CORDONED: "uncordon the node",
    Cause.TAINTED: "remove the taint",
    Cause.FULL: "delete pods on the node",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a node does not take a pod: the cause, and the text that follows the node's name in messages."""

    cause: Cause
    text: str


_DELETED = Obstacle(Cause.DELETED, "deleted")


@dataclass(frozen=True, slots=True)
class StrandedClaims:
    """Claims of a pod, as "namespace/name", that can all be used on the same nodes only, with the obstacle that
    each of these nodes has. `used`: other pods use one of the claims."""

    claims: Sequence[str]
    obstacles: Mapping[str, Obstacle]
    used: bool

    @property
    def message(self) -> str:
        """Names the claims, their nodes, why the pod can't go there, and the remedy."""
        single = len(self.claims) == 1
        nodes = by_reason({node: obstacle.text for node, obstacle in self.obstacles.items()})
        subject = f"claim{'' if single else 's'} {listed(self.claims, _NAMED)} {'is' if single else 'are'}"
        return f"{subject} {where(sorted(self.obstacles))}, where the pod can't go: {nodes}. Remedy: {self.remedy}"

    @property
    def remedy(self) -> str:
        """The remedy as a clause, without a full stop."""
        delete = f"delete the claim{'' if len(self.claims) == 1 else 's'} to start over elsewhere"
        if self.used:
            delete += " once the pods that use it have ended" if len(self.claims) == 1 else " once they are unused"
        causes = dict.fromkeys(obstacle.cause for obstacle in self.obstacles.values())
        return ", or ".join([*(_REMEDIES[cause] for cause in causes if cause in _REMEDIES), delete])


def unavailable(node: Node | None) -> Obstacle | None:
    """The temporary obstacle that keeps ordinary pods off the node; None if there is none. Taints that dedicate a
    node to some pods do not count, nor does a full node."""
    if node is None:
        return _DELETED
    known = [taint for taint in all_taints(node) if taint.key in _KNOWN_TAINTS]
    return _taint_obstacle(known) if known else None


def unavailable_since(node: Node) -> datetime | None:
    """The earliest `timeAdded` of the taints that make a node unavailable; None if none of them has a time."""
    added = (t.time_added for t in node.spec.taints if t.key in _KNOWN_TAINTS and t.time_added)
    return min((time for time in map(moment, added) if time is not None), default=None)


def obstacle_for(
    needs: Needs, node: Node | None, allocatable: Amounts, used: Amounts, pods: int
) -> Obstacle | None:
    """Why the node can't take the pod; None if it can, or if only the pod's own selector or affinity excludes it.

    `node` is None if it does not exist; the amounts are as in `fit.misfit`.
    """
    if node is None:
        return _DELETED
    if taints := untolerated_taints(needs, node):
        return _taint_obstacle(taints)
    if not selected(needs, node):
        return None
    lacking = shortage(needs, allocatable, used, pods)
    return Obstacle(Cause.FULL, lacking) if lacking else None


def remedy(cause: Cause, start_over: str) -> str:
    """The remedy for the cause, as a clause; `start_over` is the remedy that helps with every cause."""
    return f"{_REMEDIES[cause]}, or {start_over}" if cause in _REMEDIES else start_over


def _taint_obstacle(taints: Sequence[Taint]) -> Obstacle:
    keys = {taint.key for taint in taints}
    known = next((obstacle for key, obstacle in _KNOWN_TAINTS.items() if key in keys), None)
    if known is not None:
        return Obstacle(*known)
    return Obstacle(Cause.TAINTED, f"taint {taints[0].key}:{taints[0].effect}, which the pod does not tolerate")
