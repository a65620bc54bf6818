"""The ledger: the controller's memory of all allocated claims, and of the pods that use them.

It holds nothing that the API does not have, and is rebuilt from claims at start. It is needed because informers
show an allocation only some time after the driver has made it. A holding is dropped only when its last pod is
terminal, or when the allocation was taken back before any pod was bound.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from parley.control.holding import Holding, Phase
from parley.control.limits import Limits
from parley.sdk import PodReference


def _ignore_room(_: str) -> None:
    """There are no reservation pods."""


def _ignore_users(_: Holding) -> None:
    """No driver is told about users."""


class Ledger:
    """All allocated claims (holdings), indexed by claim, by pod and by node, and counted for the limits of their
    classes."""

    def __init__(
        self,
        limits: Limits | None = None,
        room_changed: Callable[[str], None] = _ignore_room,
        users_changed: Callable[[Holding], None] = _ignore_users,
    ) -> None:
        """`room_changed` is called with a node on which reservation pods may have to hold more or less room now,
        `users_changed` with a holding that has other users now, but not when it is dropped."""
        self.limits = limits or Limits()
        self.allocating: dict[str, str] = {}
        """The claims that embedded drivers are allocating for pods now, which are not in the ledger yet: the pods'
        UIDs by the claims'."""
        self._room_changed = room_changed
        self._users_changed = users_changed
        self._expected: dict[tuple[str, str], tuple[PodReference, str]] = {}
        self._expecting: dict[PodReference, dict[tuple[str, str], None]] = {}
        self._undone_later: dict[tuple[str, str], str] = {}
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

    def allocates(self, claim_uid: str, *, but: str) -> bool:
        """Whether an embedded driver is allocating the claim for another pod than that one."""
        return self.allocating.get(claim_uid, but) != but

    def add(self, holding: Holding) -> None:
        """Add a new holding, for all its pods."""
        if (former := self._by_uid.get(holding.uid)) is not None:
            self._remove_from_node(former)
        self._by_uid[holding.uid] = holding
        for used in holding.uses:
            self._used_by[used][holding.uid] = holding
        if holding.only_node is not None:
            self._by_node[holding.only_node][holding.uid] = holding
            if holding.allocation.reserve is not None:
                self._reserving[holding.only_node][holding.uid] = holding
            if self.displaces_reservation_pods(holding):
                self._room_changed(holding.only_node)
        if holding.class_name:
            self.limits.count(holding.uid, holding.class_name, holding.namespace, holding.units)
        self._index_by_name(holding)
        for pod in holding.pods.values():
            self._by_pod[pod.namespace, pod.name][holding.uid] = holding
        if holding.pods:
            self._users_changed(holding)

    def _index_by_name(self, holding: Holding) -> None:
        """Another claim may have the name by now: of a claim that is being released, or whose object was removed
        by force, the holding is superseded."""
        key = (holding.namespace, holding.claim)
        known = self._by_claim.get(key)
        if known is None or known.uid == holding.uid or holding.phase is Phase.HELD:
            self._by_claim[key], superseded = holding, known
        else:
            superseded = holding
        if superseded is not None and superseded.uid != self._by_claim[key].uid:
            self._superseded[key][superseded.uid] = superseded

    def join(self, holding: Holding, pod: PodReference) -> None:
        """Add the pod to the holding's users."""
        is_new = pod.uid not in holding.pods
        holding.pods[pod.uid] = pod
        self._by_pod[pod.namespace, pod.name][holding.uid] = holding
        if is_new:
            self._users_changed(holding)

    def leave(self, holding: Holding, pod: PodReference) -> None:
        """Remove the pod from the holding's users."""
        was_user = holding.pods.pop(pod.uid, None) is not None
        key = (pod.namespace, pod.name)
        if not any((p.namespace, p.name) == key for p in holding.pods.values()):
            self._by_pod[key].pop(holding.uid, None)
            if not self._by_pod[key]:
                del self._by_pod[key]
        if was_user and holding.uid in self._by_uid:
            self._users_changed(holding)

    def release(self, holding: Holding) -> None:
        """Remove all users of the holding. It is dropped later, when its driver has deallocated."""
        for pod in list(holding.pods.values()):
            self.leave(holding, pod)
        if holding.is_nominated and (node := holding.only_node) is not None:
            self._room_changed(node)

    def drop(self, holding: Holding) -> None:
        """Remove the holding, with all its users."""
        known = self._by_uid.pop(holding.uid, None)
        self.release(holding)
        self.limits.forget(holding.uid)
        if known is not None:
            self._remove_from_node(known)
        for used in holding.uses:
            self._used_by[used].pop(holding.uid, None)
            if not self._used_by[used]:
                del self._used_by[used]
        key = (holding.namespace, holding.claim)
        if self._by_claim.get(key) is holding:
            del self._by_claim[key]
        if self._superseded.get(key, {}).pop(holding.uid, None) is not None and not self._superseded[key]:
            del self._superseded[key]

    def _remove_from_node(self, holding: Holding) -> None:
        if (node := holding.only_node) is not None:
            del self._by_node[node][holding.uid]
            if not self._by_node[node]:
                del self._by_node[node]
            if self._reserving.get(node, {}).pop(holding.uid, None) is not None and not self._reserving[node]:
                del self._reserving[node]
            if self.displaces_reservation_pods(holding):
                self._room_changed(node)

    def used_by(self, holding: Holding) -> Collection[Holding]:
        """The holdings that use this one: it stays allocated as long as they are."""
        return self._used_by[holding.uid].values() if holding.uid in self._used_by else ()

    def nodes(self) -> Collection[str]:
        """The nodes that are the only one for some holding."""
        return self._by_node.keys()

    def on(self, node: str) -> Collection[Holding]:
        """The holdings that can be used on this node only."""
        return self._by_node[node].values() if node in self._by_node else ()

    @property
    def reserves(self) -> bool:
        """Whether any holding reserves room on its node."""
        return bool(self._reserving)

    def reserving(self, node: str) -> Collection[Holding]:
        """The holdings that reserve room on the node; not those of which only data is left to be removed."""
        if node not in self._reserving:
            return ()
        return [holding for holding in self._reserving[node].values() if holding.reserves]

    def count_reserving(self, nodes: Collection[str] | None) -> int:
        """The number of holdings that reserve room on these nodes: the cost of a question about the nodes."""
        return sum(len(self.reserving(node)) for node in nodes or () if node in self._reserving)

    def displaces_reservation_pods(self, holding: Holding) -> bool:
        """Whether reservation pods on the holding's node give way to its pods."""
        if holding.is_nominated:
            return True
        reserving = self.reserving(holding.node) if self._reserving else ()
        return any(other.is_nominated and holding.class_name in other.yields_to for other in reserving)

    def get(self, uid: str) -> Holding | None:
        """The holding of a claim, by the claim's UID."""
        return self._by_uid.get(uid)

    def of_claim(self, namespace: str, name: str) -> Holding | None:
        """The holding of the claim of that name."""
        return self._by_claim.get((namespace, name))

    def all_of_claim(self, namespace: str, name: str) -> list[Holding]:
        """That holding, and those of earlier claims of the name that were removed by force before they ended."""
        key = (namespace, name)
        current = [self._by_claim[key]] if key in self._by_claim else []
        return [*current, *self._superseded.get(key, {}).values()]

    def expect(self, pod: PodReference, claim: str, uid: str, class_name: str) -> None:
        """Note that a standalone driver was asked to allocate the claim for the pod: no other pod may have it. Of
        several pods that an earlier leader asked for, the last one counts."""
        key = (pod.namespace, claim)
        former, former_uid = self._expected.get(key, (pod, uid))
        if former != pod:
            self._expecting[former].pop(key)
            if not self._expecting[former]:
                del self._expecting[former]
        for other in {former_uid, self._undone_later.pop(key, uid)} - {uid}:
            self.stop_counting(other)
        self._expected[key] = (pod, uid)
        self._expecting.setdefault(pod, {})[key] = None
        if uid not in self._by_uid:
            self.limits.count(uid, class_name, pod.namespace, 1)

    def expected_for(self, namespace: str, claim: str) -> PodReference | None:
        """The pod for which a standalone driver is allocating the claim."""
        expecting = self._expected.get((namespace, claim))
        return expecting[0] if expecting is not None else None

    def expects(self, pod: PodReference) -> bool:
        """Whether standalone drivers were asked to allocate claims for the pod, which does not use them yet."""
        return pod in self._expecting

    def end_expected(
        self, pod: PodReference, has_begun: Callable[[tuple[str, str]], bool] = lambda _: False
    ) -> list[tuple[str, str]]:
        """End all that is expected for the pod. Returns the claims that are available to other pods now. Those of
        which `has_begun` says that their driver has begun with them count for limits until it has undone that."""
        claims = self._expecting.pop(pod, {})
        for claim in claims:
            _, uid = self._expected.pop(claim)
            if uid not in self._by_uid and has_begun(claim):
                self._undone_later[claim] = uid
            else:
                self.stop_counting(uid)
        return list(claims)

    def count_begun(self, claim: tuple[str, str], uid: str, class_name: str) -> None:
        """Count a claim that a standalone driver has begun to allocate, and has yet to undo that."""
        self._undone_later[claim] = uid
        self.limits.count(uid, class_name, claim[0], 1)

    @property
    def undone_later(self) -> Collection[tuple[str, str]]:
        """The claims that standalone drivers have begun to allocate, and have yet to undo that."""
        return list(self._undone_later)

    def undone(self, claim: tuple[str, str]) -> None:
        """Note that the claim's driver holds nothing for it. Idempotent."""
        if (uid := self._undone_later.pop(claim, None)) is not None:
            self.stop_counting(uid)

    def stop_counting(self, uid: str) -> None:
        """Stop counting the claim for limits, unless it is allocated: an attempt to allocate it has ended."""
        if uid not in self._by_uid:
            self.limits.forget(uid)

    def of_pod_name(self, namespace: str, name: str) -> list[Holding]:
        """The holdings of all pods of that name, including a pod that another one of the name has replaced."""
        return list(self._by_pod.get((namespace, name), {}).values())

    def of_pod(self, pod: PodReference) -> list[Holding]:
        """The holdings that the pod uses."""
        holdings = self._by_pod.get((pod.namespace, pod.name), {})
        return [holding for holding in holdings.values() if pod.uid in holding.pods]

    def of_entry(self, pod: PodReference, entry: str) -> Holding | None:
        """The pod's holding for a generated claim, even if the claim's object was recreated since."""
        return next((h for h in self.of_pod(pod) if h.entry == entry and not h.named), None)
