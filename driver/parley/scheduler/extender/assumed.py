"""Reservations made by filter and not yet consumed by bind: assumed pods, as kube-scheduler calls them. In memory.

Between a filter call and the bind that follows from it the scheduler asks about other pods. So a pod is assumed on
every node of its filter's answer until its bind has allocated, until its next filter, or for a second: the
scheduler binds within milliseconds, or never. From its bind call on it is assumed on the bind's node only.
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
    """A pod that passed filter: its `demand` is reserved on one of the nodes, it is not known yet on which.

    `units` are what its pending claims use of their classes' limits, by class and claim UID; `named` the UIDs of
    the named claims that are to be allocated for it.
    """

    pod: PodReference
    demand: Demand
    nodes: frozenset[str]
    units: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()


class AssumedPods:
    """All assumed pods. `ended` is called when a reservation ends, so that others may use what was reserved."""

    def __init__(self, ledger: Ledger, ended: Callable[[], None]) -> None:
        self._ledger = ledger
        self._ended = ended
        self._by_pod: dict[PodReference, AssumedPod] = {}
        self._by_node: defaultdict[str, dict[PodReference, AssumedPod]] = defaultdict(dict)
        self._by_claim: defaultdict[str, dict[PodReference, AssumedPod]] = defaultdict(dict)
        self._counted: dict[PodReference, Mapping[str, Mapping[str, int]]] = {}
        self._expiries: dict[PodReference, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def put(self, assumed: AssumedPod) -> None:
        """Assume the pod, replacing what was reserved for it before."""
        user = assumed.pod
        self._remove(user)
        self.uncount(user)
        self._add(assumed)
        self._counted[user] = assumed.units
        for class_name, units in assumed.units.items():
            for uid, count in units.items():
                self._ledger.limits.count(uid, class_name, user.namespace, count)
        self._expiries[user] = asyncio.get_running_loop().call_later(ASSUME_SECONDS, self.drop, user)

    def narrow(self, user: PodReference, node: str) -> None:
        """Reserve only this node, for as long as the pod's bind takes, which has begun."""
        assumed = self._by_pod.get(user)
        if assumed is None:
            return
        self._remove(user)
        self._add(replace(assumed, nodes=assumed.nodes & {node}))
        if len(assumed.nodes) > 1:
            self._ended()

    def uncount(self, user: PodReference) -> None:
        """Stop counting the pod's units in the limits: its allocation counts them from now on."""
        for of_class in self._counted.pop(user, {}).values():
            for claim in of_class:
                self._ledger.stop_counting(claim)

    def drop(self, user: PodReference) -> None:
        """End the pod's reservation: it is bound, or was rejected since. Idempotent."""
        if self._remove(user) is not None:
            self.uncount(user)
            self._ended()

    def of(self, user: PodReference) -> AssumedPod | None:
        """The pod's reservation, if it is assumed."""
        return self._by_pod.get(user)

    def on(self, node: str) -> Mapping[PodReference, AssumedPod]:
        """The pods assumed on the node."""
        return self._by_node.get(node, {})

    def node_of(self, claim_uid: str, *, but: PodReference) -> tuple[AssumedPod, str] | None:
        """The other pod for which the named claim is to be allocated, and the node; None if there is none."""
        for user, assumed in self._by_claim.get(claim_uid, {}).items():
            if user != but:
                return assumed, next(iter(assumed.nodes), "")
        return None

    def _add(self, assumed: AssumedPod) -> None:
        self._by_pod[assumed.pod] = assumed
        for node in assumed.nodes:
            self._by_node[node][assumed.pod] = assumed
        for claim in assumed.named:
            self._by_claim[claim][assumed.pod] = assumed

    def _remove(self, user: PodReference) -> AssumedPod | None:
        if (expiry := self._expiries.pop(user, None)) is not None:
            expiry.cancel()
        assumed = self._by_pod.pop(user, None)
        if assumed is None:
            return None
        for node in assumed.nodes:
            del self._by_node[node][user]
            if not self._by_node[node]:
                del self._by_node[node]
        for claim in assumed.named:
            del self._by_claim[claim][user]
            if not self._by_claim[claim]:
                del self._by_claim[claim]
        return assumed
