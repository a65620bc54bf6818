"""What pods were told a moment ago and have not taken yet. In memory.

Between the answer to a filter and the bind that follows from it, other pods are asked about. So each answer
holds, on every node that it named, until the pod's bind has allocated, its next filter, or for a second: the
scheduler binds within milliseconds, or never. Once the bind has come only its node is held.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from parley.control.demand import Demand
from parley.control.limits import Limits
from parley.sdk import PodReference

HOLD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Hold:
    """What one pod was told: `demand` is what it wants on one of the nodes.

    `units` are what its pending claims take up of their classes' limits, by class and claim UID; `named` the UIDs
    of named claims that are to be allocated for it.
    """

    pod: PodReference
    demand: Demand
    nodes: frozenset[str]
    units: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()


class Holds:
    """All holds. `ended` is called when one ends, and others may have what it held."""

    def __init__(self, limits: Limits, ended: Callable[[], None]) -> None:
        self._limits = limits
        self._ended = ended
        self._by_pod: dict[str, Hold] = {}
        self._by_node: defaultdict[str, dict[str, Hold]] = defaultdict(dict)
        self._by_claim: defaultdict[str, dict[str, Hold]] = defaultdict(dict)
        self._counted: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def put(self, hold: Hold) -> None:
        """The pod was told this, instead of what it was told before."""
        self._remove(hold.pod.uid)
        self.uncount(hold.pod.uid)
        self._add(hold)
        self._counted[hold.pod.uid] = hold.units
        for class_name, units in hold.units.items():
            for uid, count in units.items():
                self._limits.count(uid, class_name, hold.pod.namespace, count)
        later = asyncio.get_running_loop().call_later(HOLD_SECONDS, self.drop, hold.pod.uid)
        self._expiries[hold.pod.uid] = later

    def narrow(self, uid: str, node: str) -> None:
        """The pod's bind has come: it is this node, and no time limit but the bind's own."""
        hold = self._by_pod.get(uid)
        if hold is None:
            return
        self._remove(uid)
        self._add(replace(hold, nodes=hold.nodes & {node}))
        if len(hold.nodes) > 1:
            self._ended()

    def uncount(self, uid: str) -> None:
        """What the pod takes up of limits is counted by an allocation from now on."""
        for of_class in self._counted.pop(uid, {}).values():
            for claim in of_class:
                self._limits.forget(claim)

    def drop(self, uid: str) -> None:
        """The pod has what it was told, or does not get it. Idempotent."""
        if self._remove(uid) is not None:
            self.uncount(uid)
            self._ended()

    def of(self, uid: str) -> Hold | None:
        """What the pod was told."""
        return self._by_pod.get(uid)

    def on(self, node: str) -> Mapping[str, Hold]:
        """Those who may get something on the node, by the UID of the pod."""
        return self._by_node.get(node, {})

    def node_of(self, claim_uid: str, *, but: str) -> tuple[Hold, str] | None:
        """Who of the other pods is to have the named claim allocated, and where."""
        for uid, hold in self._by_claim.get(claim_uid, {}).items():
            if uid != but:
                return hold, next(iter(hold.nodes), "")
        return None

    def _add(self, hold: Hold) -> None:
        self._by_pod[hold.pod.uid] = hold
        for node in hold.nodes:
            self._by_node[node][hold.pod.uid] = hold
        for claim in hold.named:
            self._by_claim[claim][hold.pod.uid] = hold

    def _remove(self, uid: str) -> Hold | None:
        if (expiry := self._expiries.pop(uid, None)) is not None:
            expiry.cancel()
        hold = self._by_pod.pop(uid, None)
        if hold is None:
            return None
        for node in hold.nodes:
            del self._by_node[node][uid]
            if not self._by_node[node]:
                del self._by_node[node]
        for claim in hold.named:
            del self._by_claim[claim][uid]
            if not self._by_claim[claim]:
                del self._by_claim[claim]
        return hold
