"""What Parley has allocated, for whom, and how far that is recorded in the API.

The ledger is the controller's memory of the API, never more: it is rebuilt from claims at start. It lives for
one reason, the time between a driver's allocation and the moment when watches show it. A holding goes only
when its last pod is done or gone, or when it was taken back before any pod was bound.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from parley.control.holding import Holding, Phase
from parley.control.limits import Limits
from parley.sdk import PodReference


def _unheard(_: str) -> None:
    """There are no reservation pods."""


def _nobody_hears(_: Holding) -> None:
    """No driver hears of users."""


class Ledger:
    """All allocated claims (holdings), found by claim, by pod and by node, and what they use up of the classes'
    limits."""

    def __init__(
        self,
        limits: Limits | None = None,
        held: Callable[[str], None] = _unheard,
        users_changed: Callable[[Holding], None] = _nobody_hears,
    ) -> None:
        """`held` is called with a node when what reservation pods are to hold there may have changed,
        `users_changed` with a holding that other pods use now, but not when it is dropped."""
        self.limits = limits or Limits()
        self._held = held
        self._users_changed = users_changed
        self._expected: dict[tuple[str, str], tuple[PodReference, str]] = {}
        self._expecting: dict[PodReference, dict[tuple[str, str], None]] = {}
        self._by_uid: dict[str, Holding] = {}
        self._by_claim: dict[tuple[str, str], Holding] = {}
        self._superseded: defaultdict[tuple[str, str], dict[str, Holding]] = defaultdict(dict)
        self._by_pod: defaultdict[tuple[str, str], dict[str, Holding]] = defaultdict(dict)
        self._by_node: defaultdict[str, dict[str, Holding]] = defaultdict(dict)
        self._reserving: defaultdict[str, dict[str, Holding]] = defaultdict(dict)
        self._used_by: defaultdict[str, dict[str, Holding]] = defaultdict(dict)

    def __iter__(self) -> Iterator[Holding]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    def add(self, holding: Holding) -> None:
        """Record a new holding for all its pods."""
        if (former := self._by_uid.get(holding.uid)) is not None:
            self._leave_node(former)
        self._by_uid[holding.uid] = holding
        for used in holding.uses:
            self._used_by[used][holding.uid] = holding
        if holding.only_node is not None:
            self._by_node[holding.only_node][holding.uid] = holding
            if holding.allocation.reserve is not None and not holding.standalone:
                self._reserving[holding.only_node][holding.uid] = holding
            if self.is_let_in(holding):
                self._held(holding.only_node)
        if holding.class_name:
            self.limits.count(holding.uid, holding.class_name, holding.namespace, holding.units)
        self._name(holding)
        for pod in holding.pods.values():
            self._by_pod[pod.namespace, pod.name][holding.uid] = holding
        if holding.pods:
            self._users_changed(holding)

    def _name(self, holding: Holding) -> None:
        """A released claim's name may be another's by now, and so may that of a claim that was forced away."""
        key = (holding.namespace, holding.claim)
        known = self._by_claim.get(key)
        if known is None or known.uid == holding.uid or holding.phase is Phase.HELD:
            self._by_claim[key], superseded = holding, known
        else:
            superseded = holding
        if superseded is not None and superseded.uid != self._by_claim[key].uid:
            self._superseded[key][superseded.uid] = superseded

    def join(self, holding: Holding, pod: PodReference) -> None:
        """One more pod uses the holding."""
        is_new = pod.uid not in holding.pods
        holding.pods[pod.uid] = pod
        self._by_pod[pod.namespace, pod.name][holding.uid] = holding
        if is_new:
            self._users_changed(holding)

    def leave(self, holding: Holding, pod: PodReference) -> None:
        """A pod does not use it any more."""
        was_user = holding.pods.pop(pod.uid, None) is not None
        key = (pod.namespace, pod.name)
        if not any((p.namespace, p.name) == key for p in holding.pods.values()):
            self._by_pod[key].pop(holding.uid, None)
            if not self._by_pod[key]:
                del self._by_pod[key]
        if was_user and holding.uid in self._by_uid:
            self._users_changed(holding)

    def release(self, holding: Holding) -> None:
        """Nobody uses the holding any more; it is gone when its driver has deallocated."""
        for pod in list(holding.pods.values()):
            self.leave(holding, pod)

    def drop(self, holding: Holding) -> None:
        """The holding is gone, with all its users."""
        known = self._by_uid.pop(holding.uid, None)
        self.release(holding)
        self.limits.forget(holding.uid)
        if known is not None:
            self._leave_node(known)
        for used in holding.uses:
            self._used_by[used].pop(holding.uid, None)
            if not self._used_by[used]:
                del self._used_by[used]
        key = (holding.namespace, holding.claim)
        if self._by_claim.get(key) is holding:
            del self._by_claim[key]
        if self._superseded.get(key, {}).pop(holding.uid, None) is not None and not self._superseded[key]:
            del self._superseded[key]

    def _leave_node(self, holding: Holding) -> None:
        if (node := holding.only_node) is not None:
            del self._by_node[node][holding.uid]
            if not self._by_node[node]:
                del self._by_node[node]
            if self._reserving.get(node, {}).pop(holding.uid, None) is not None and not self._reserving[node]:
                del self._reserving[node]
            if self.is_let_in(holding):
                self._held(node)

    def used_by(self, holding: Holding) -> Collection[Holding]:
        """The holdings that need this one to be there."""
        return self._used_by[holding.uid].values() if holding.uid in self._used_by else ()

    def nodes(self) -> Collection[str]:
        """Those on which alone some holding can be used."""
        return self._by_node.keys()

    def on(self, node: str) -> Collection[Holding]:
        """The holdings that can be used on that node alone."""
        return self._by_node[node].values() if node in self._by_node else ()

    @property
    def reserves(self) -> bool:
        """Whether any holding reserves room on its node."""
        return bool(self._reserving)

    def reserving(self, node: str) -> Collection[Holding]:
        """The holdings that reserve room on the node: until they end, or only their data is left."""
        if node not in self._reserving:
            return ()
        return [holding for holding in self._reserving[node].values() if not holding.removing]

    def count_reserving(self, nodes: Collection[str] | None) -> int:
        """How many these are on all of the nodes: whoever is asked about the nodes has to compare so many."""
        return sum(len(self.reserving(node)) for node in nodes or () if node in self._reserving)

    def is_let_in(self, holding: Holding) -> bool:
        """Whether reservation pods on its node give way to the holding's pods."""
        if holding.is_nominated:
            return True
        held = self.reserving(holding.node) if self._reserving else ()
        return any(one.is_nominated and holding.class_name in one.yields_to for one in held)

    def get(self, uid: str) -> Holding | None:
        """The holding of a claim, by the claim's UID."""
        return self._by_uid.get(uid)

    def of_claim(self, namespace: str, name: str) -> Holding | None:
        """The holding of the claim of that name."""
        return self._by_claim.get((namespace, name))

    def all_of_claim(self, namespace: str, name: str) -> list[Holding]:
        """That one, and those of earlier claims of the name, which were forced away and have not ended."""
        key = (namespace, name)
        current = [self._by_claim[key]] if key in self._by_claim else []
        return [*current, *self._superseded.get(key, {}).values()]

    def expect(self, pod: PodReference, claim: str, uid: str, class_name: str) -> None:
        """A standalone driver was asked to allocate the claim for the pod; nobody else may have it meanwhile."""
        self._expected[pod.namespace, claim] = (pod, uid)
        self._expecting.setdefault(pod, {})[pod.namespace, claim] = None
        if uid not in self._by_uid:
            self.limits.count(uid, class_name, pod.namespace, 1)

    def expected_for(self, namespace: str, claim: str) -> PodReference | None:
        """The pod for which a standalone driver is allocating the claim."""
        expecting = self._expected.get((namespace, claim))
        return expecting[0] if expecting is not None else None

    def expect_no_more(self, pod: PodReference) -> list[tuple[str, str]]:
        """The pod waits for no driver any more. Returns the claims that others may have now."""
        claims = self._expecting.pop(pod, {})
        for claim in claims:
            _, uid = self._expected.pop(claim)
            self.count_no_more(uid)
        return list(claims)

    def count_no_more(self, uid: str) -> None:
        """Nothing came of what was begun for the claim: it does not count for limits, unless it is allocated
        anyway."""
        if uid not in self._by_uid:
            self.limits.forget(uid)

    def of_pod_name(self, namespace: str, name: str) -> list[Holding]:
        """Holdings of any pod of that name, also of one that was replaced since."""
        return list(self._by_pod.get((namespace, name), {}).values())

    def of_pod(self, pod: PodReference) -> list[Holding]:
        """What the pod uses."""
        holdings = self._by_pod.get((pod.namespace, pod.name), {})
        return [holding for holding in holdings.values() if pod.uid in holding.pods]

    def of_entry(self, pod: PodReference, entry: str) -> Holding | None:
        """What a pod holds for a generated claim, whichever object stands for it today."""
        return next((h for h in self.of_pod(pod) if h.entry == entry and not h.named), None)
