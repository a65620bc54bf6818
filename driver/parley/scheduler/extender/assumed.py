"""Reservations made by filter and not yet consumed by bind: assumed pods, as kube-scheduler calls them. In memory.

Between the answer to a filter and the bind that follows from it the scheduler asks about other pods. So a pod is
assumed on every node of its answer until its bind has allocated, its next filter, or for a second: the scheduler
binds within milliseconds, or never. Once the bind has come it is assumed on that node alone.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from parley.control.decision.demand import Demand
from parley.control.ledger import Ledger
from parley.sdk import PodReference

ASSUME_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """A pod that passed filter: `demand` is reserved for it on one of the nodes, not known yet which.

    `units` are what its pending claims take up of their classes' limits, by class and claim UID; `named` the UIDs
    of named claims that are to be allocated for it.
    """

    pod: PodReference
    demand: Demand
    nodes: frozenset[str]
    units: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()


class AssumedPods:
    """All assumed pods. `ended` is called when a reservation ends, and others may have what was reserved."""

    def __init__(self, ledger: Ledger, ended: Callable[[], None]) -> None:
        self._ledger = ledger
        self._ended = ended
        self._by_pod: dict[str, AssumedPod] = {}
        self._by_node: defaultdict[str, dict[str, AssumedPod]] = defaultdict(dict)
        self._by_claim: defaultdict[str, dict[str, AssumedPod]] = defaultdict(dict)
        self._counted: dict[str, Mapping[str, Mapping[str, int]]] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def put(self, assumed: AssumedPod) -> None:
        """Reserve this for the pod, instead of what was reserved for it before."""
        self._remove(assumed.pod.uid)
        self.uncount(assumed.pod.uid)
        self._add(assumed)
        self._counted[assumed.pod.uid] = assumed.units
        for class_name, units in assumed.units.items():
            for uid, count in units.items():
                self._ledger.limits.count(uid, class_name, assumed.pod.namespace, count)
        later = asyncio.get_running_loop().call_later(ASSUME_SECONDS, self.drop, assumed.pod.uid)
        self._expiries[assumed.pod.uid] = later

    def narrow(self, uid: str, node: str) -> None:
        """The pod's bind has come: reserved is this node alone, and for as long as the bind takes."""
        assumed = self._by_pod.get(uid)
        if assumed is None:
            return
        self._remove(uid)
        self._add(replace(assumed, nodes=assumed.nodes & {node}))
        if len(assumed.nodes) > 1:
            self._ended()

    def uncount(self, uid: str) -> None:
        """What the pod takes up of limits is counted by its allocation from now on."""
        for of_class in self._counted.pop(uid, {}).values():
            for claim in of_class:
                self._ledger.count_no_more(claim)

    def drop(self, uid: str) -> None:
        """The pod is bound, or was refused since: nothing is reserved for it. Idempotent."""
        if self._remove(uid) is not None:
            self.uncount(uid)
            self._ended()

    def of(self, uid: str) -> AssumedPod | None:
        """What is reserved for the pod."""
        return self._by_pod.get(uid)

    def on(self, node: str) -> Mapping[str, AssumedPod]:
        """The pods assumed on the node, by UID."""
        return self._by_node.get(node, {})

    def node_of(self, claim_uid: str, *, but: str) -> tuple[AssumedPod, str] | None:
        """The other pod for which the named claim is to be allocated, and where."""
        for uid, assumed in self._by_claim.get(claim_uid, {}).items():
            if uid != but:
                return assumed, next(iter(assumed.nodes), "")
        return None

    def _add(self, assumed: AssumedPod) -> None:
        self._by_pod[assumed.pod.uid] = assumed
        for node in assumed.nodes:
            self._by_node[node][assumed.pod.uid] = assumed
        for claim in assumed.named:
            self._by_claim[claim][assumed.pod.uid] = assumed

    def _remove(self, uid: str) -> AssumedPod | None:
        if (expiry := self._expiries.pop(uid, None)) is not None:
            expiry.cancel()
        assumed = self._by_pod.pop(uid, None)
        if assumed is None:
            return None
        for node in assumed.nodes:
            del self._by_node[node][uid]
            if not self._by_node[node]:
                del self._by_node[node]
        for claim in assumed.named:
            del self._by_claim[claim][uid]
            if not self._by_claim[claim]:
                del self._by_claim[claim]
        return assumed
