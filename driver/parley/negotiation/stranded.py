"""Claims that are allocated where a pod can't go: what about the nodes keeps it away, and the message. Pure.

A claim is stranded for a pod when each node where it can be used keeps the pod away: it is deleted, cordoned,
tainted or full. What keeps a pod away by its own choice (node selector, affinity) strands nothing.
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
from parley.negotiation.fit import CORDON, Needs, all_taints, refusing, selected, shortage
from parley.negotiation.nowhere import where
from parley.negotiation.requests import Amounts

_NAMED = 5
"""So many claims are named in a message."""


class Cause(Enum):
    """What about a node keeps a pod away. The values are reasons of a claim's condition `Stranded`."""

    DELETED = "NodeDeleted"
    OUT_OF_SERVICE = "NodeOutOfService"
    UNREACHABLE = "NodeUnreachable"
    NOT_READY = "NodeNotReady"
    CORDONED = "NodeCordoned"
    TAINTED = "NodeTainted"
    FULL = "NodeFull"


_OF_TAINT: Mapping[str, tuple[Cause, str]] = {
    OUT_OF_SERVICE_TAINT: (Cause.OUT_OF_SERVICE, "out of service"),
    UNREACHABLE_TAINT: (Cause.UNREACHABLE, "unreachable"),
    NOT_READY_TAINT: (Cause.NOT_READY, "not ready"),
    CORDON.key: (Cause.CORDONED, "cordoned"),
}
"""Of several taints the first here counts: it says most about what has become of the node."""

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
    """Claims of a pod, as "namespace/name", all of which can be used on the same nodes only; each of these has an
    obstacle. `used`: other pods use one of the claims."""

    claims: Sequence[str]
    obstacles: Mapping[str, Obstacle]
    used: bool

    @property
    def message(self) -> str:
        """Which claims, where, why the pod can't go there, and what helps."""
        one = len(self.claims) == 1
        nodes = by_reason({node: obstacle.text for node, obstacle in self.obstacles.items()})
        who = f"claim{'' if one else 's'} {listed(self.claims, _NAMED)} {'is' if one else 'are'}"
        return f"{who} {where(sorted(self.obstacles))}, where the pod can't go: {nodes}. Remedy: {self.remedy}"

    @property
    def remedy(self) -> str:
        """What helps, as a clause."""
        anew = f"delete the claim{'' if len(self.claims) == 1 else 's'} to start over elsewhere"
        if self.used:
            anew += " once the pods that use it have ended" if len(self.claims) == 1 else " once they are unused"
        causes = dict.fromkeys(obstacle.cause for obstacle in self.obstacles.values())
        return ", or ".join([*(_REMEDIES[cause] for cause in causes if cause in _REMEDIES), anew])


def unavailable(node: Node | None) -> Obstacle | None:
    """What keeps ordinary pods away from the node, as far as it passes: None if nothing does. Taints that keep a
    node for some pods do not count, nor whether there is room."""
    if node is None:
        return _DELETED
    known = [taint for taint in all_taints(node) if taint.key in _OF_TAINT]
    return _tainted(known) if known else None


def unavailable_since(node: Node) -> datetime | None:
    """The earliest time that one of these taints has; None if none has any."""
    times = (moment(taint.time_added) for taint in node.spec.taints if taint.key in _OF_TAINT and taint.time_added)
    return min((time for time in times if time is not None), default=None)


def obstacle_for(
    needs: Needs, node: Node | None, allocatable: Amounts, used: Amounts, pods: int
) -> Obstacle | None:
    """What about the node keeps the pod away; None if nothing does, or only what the pod selects.

    `node` is None if it does not exist; the amounts are as in `fit.misfit`.
    """
    if node is None:
        return _DELETED
    if taints := refusing(needs, node):
        return _tainted(taints)
    if not selected(needs, node):
        return None
    lacking = shortage(needs, allocatable, used, pods)
    return Obstacle(Cause.FULL, lacking) if lacking else None


def remedy(cause: Cause, anew: str) -> str:
    """What helps, as a clause; `anew` is what always does."""
    return f"{_REMEDIES[cause]}, or {anew}" if cause in _REMEDIES else anew


def _tainted(taints: Sequence[Taint]) -> Obstacle:
    keys = {taint.key for taint in taints}
    known = next((found for key, found in _OF_TAINT.items() if key in keys), None)
    if known is not None:
        return Obstacle(*known)
    return Obstacle(Cause.TAINTED, f"taint {taints[0].key}:{taints[0].effect}, which the pod does not tolerate")
