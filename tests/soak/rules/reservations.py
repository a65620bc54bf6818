"""What must hold of room that claims reserve on nodes, in worlds where the driver says so.

    reserved twice   what the claims on a node reserve there, by their records, is never more than the node has
    room taken       a pod to which nothing yields is bound only where there is room beside what is reserved
    room not held    at rest, reservation pods hold just what claims reserve with `hold: Nominated`

They reserve a resource that pods request only where the room yields to some of them, and users never: so claims
are in each other's way, and in that of such pods. Whether one finds it is judged from the records (`Room`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from tests.soak.cluster.observed import Step
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS, BORROWER
from tests.soak.kinds.pods import ALL_POD_KINDS
from tests.soak.rules.kept_claims import allocation
from tests.soak.rules.mirrors import Json, Record

from parley.api.models import Hold
from parley.kube.memory.watch_cache import Change
from parley.sdk import Reserve
from parley.simulate.anti_affinity import Pod

RESOURCE = "example.com/room"
ON_A_NODE = 4
"""So much of it has each node."""

RESERVED: Mapping[str, int] = {
    "disk": 3,
    "tape": 2,
    "common": 2,
    "cache": 3,
    "workspace": 2,
    "standing": 1,
    "run-1": 2,
    "task-1": 1,
}
"""What named claims reserve, by their names."""

REMOVING = ("Releasing", "True", "RemovingData")
HOME = "parley-system"
"""Where reservation pods are."""


def reserve(claim: str, hold: Hold) -> Reserve | None:
    """What the driver says of a claim of that name."""
    return Reserve({RESOURCE: str(RESERVED[claim])}, hold=hold) if claim in RESERVED else None


def not_held(
    claims: Iterable[Json],
    pods: Iterable[Json],
    nodes: Collection[str],
    forced_away: Set[str],
    room: "Room | None",
) -> Iterator[str]:
    """Claims whose room is not held on their node, or not as they reserve it; pods that hold anything else. Those
    `forced_away`, by UID, may hold theirs while pods use them. Which claims have yielded to the pods in their room
    is not judged."""
    if room is not None and room.has_borrowers:
        yield from _too_little_or_too_much([*claims], pods, nodes, forced_away, room)
        return
    reserved = Counter[tuple[str, str, str]]()
    for uid, node, amount in _nominated(claims, nodes):
        reserved[uid, node, str(amount)] += 1
    for pod in pods:
        if pod["metadata"]["namespace"] == HOME:
            (container,) = pod["spec"]["containers"]
            held = container["resources"]["requests"][RESOURCE]
            uid = pod["metadata"]["labels"]["parley.dev/reserved-claim"]
            reserved[uid, pod["status"].get("nominatedNodeName", ""), held] -= 1
    for (uid, node, held), missing in reserved.items():
        if missing > 0 or (missing and uid not in forced_away):
            yield f"{'nothing' if missing > 0 else 'a pod'} holds {held} on node {node!r} for claim {uid}"


def _too_little_or_too_much(
    claims: Sequence[Json], pods: Iterable[Json], nodes: Collection[str], forced_away: Set[str], room: "Room"
) -> Iterator[str]:
    """Nodes where something else is held than what borrowers leave of all reservations, as far as it is known
    whose room they are in."""
    known = {claim["metadata"]["uid"] for claim in claims}
    held, reserved = Counter[str](), Counter[str]()
    for _, node, amount in _nominated(claims, nodes):
        reserved[node] += amount
    for pod in pods:
        uid = (pod["metadata"].get("labels") or {}).get("parley.dev/reserved-claim", "")
        if pod["metadata"]["namespace"] == HOME and uid not in forced_away:
            node = pod["status"].get("nominatedNodeName", "")
            held[node] += requested(pod["spec"])
            if uid not in known:
                yield f"a pod holds room on node {node!r} for claim {uid}, which is gone"
    for node in {*held, *reserved}:
        least, most = room.left_by_borrowers(node, reserved[node])
        if not least <= held[node] <= most:
            yield f"{held[node]} is held on node {node!r}, not {least} to {most} of {reserved[node]}"


def requested(spec: Json) -> int:
    """What a pod requests of the resource."""
    found = (container.get("resources") or {} for container in spec["containers"])
    return sum(int((one.get("requests") or {}).get(RESOURCE, 0)) for one in found)


def is_borrower(labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels has a claim of the class to which rooms yield."""
    return BORROWER in [ALL_TEMPLATE_KINDS[one][0] for one in ALL_POD_KINDS.get(labels.get("kind", ""), _NONE)[1]]


_NONE: tuple[int, Sequence[str], Sequence[str], Json] = (0, (), (), {})


def _nominated(claims: Iterable[Json], nodes: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """The UID of each claim whose room reservation pods hold on one of the nodes, the node, and how much."""
    for claim in claims:
        node, amount = _recorded(claim)
        body = claim.get("status", {}).get("allocation") or {}
        if amount and node in nodes and body["reserve"].get("hold") == "Nominated":
            yield claim["metadata"]["uid"], node, amount


def only_data_is_left(claim: Json) -> bool:
    """Whether the claim has ended, and its node has yet to remove what pods left there: it reserves nothing."""
    conditions = (claim.get("status") or {}).get("conditions") or ()
    return any((one["type"], one["status"], one["reason"]) == REMOVING for one in conditions)


def _recorded(claim: Json) -> tuple[str, int]:
    """Where it reserves how much, by its record."""
    found, body = allocation(claim), (claim.get("status") or {}).get("allocation") or {}
    amounts: dict[str, Any] = (body.get("reserve") or {}).get("amounts") or {}
    return (found[0][0], int(amounts.get(RESOURCE, 0))) if found is not None and found[0] else ("", 0)


class Room:
    """How much of each node the claims reserve, by their records. Those `forced_away`, by name and node, may
    reserve theirs while pods use them. `pods` are those that have not ended. A borrower has what it requests of
    that room once one of its claims is allocated on its node by the `records`."""

    def __init__(
        self,
        claims: Iterable[Json],
        forced_away: Iterable[tuple[str, str]],
        pods: Iterable[Pod],
        records: Iterable[Record],
    ) -> None:
        self._by_name = {claim["metadata"]["name"]: _recorded(claim) for claim in claims}
        self._left = [(node, RESERVED.get(name, 0)) for name, node in forced_away]
        self._used, self._borrowers, self._at_most = Counter[str](), Counter[str](), Counter[str]()
        allocated = {(uid, node) for record in records for uid in record.users for node in record.nodes}
        for pod in pods:
            amount, node = _asked(pod), pod.spec.node_name
            self._used[node] += amount if node else 0
            if amount and is_borrower(pod.metadata.labels):
                self._borrowers[node] += amount if (pod.metadata.uid, node) in allocated else 0
                where = {node} if node else {node for uid, node in allocated if uid == pod.metadata.uid}
                self._at_most.update(dict.fromkeys(where, amount))

    @property
    def has_borrowers(self) -> bool:
        """Whether any pod may be in the room of a claim."""
        return bool(self._at_most)

    def left_by_borrowers(self, node: str, reserved: int) -> tuple[int, int]:
        """The least and the most that they leave of that."""
        left = sum(amount for on, amount in self._left if on == node)
        most = min(reserved, max(reserved + left - self._borrowers[node], 0))
        return max(reserved - self._at_most[node], 0), most

    def serves(self, pod: Pod | None, claims: Iterable[str], node: str) -> bool:
        """Whether the pod and these claims of it would find on the node what they request and reserve; None are
        claims without a pod."""
        wanted = set(claims)
        others = [found for name, found in self._by_name.items() if name not in wanted]
        reserved = sum(amount for on, amount in (*others, *self._left) if on == node)
        asked = _asked(pod) if pod is not None else 0
        borrows = pod is not None and is_borrower(pod.metadata.labels)
        borrowers = self._borrowers[node] + (asked if borrows else 0)
        kept = max(reserved - borrowers, 0)
        return asked + self._used[node] + kept + sum(RESERVED.get(name, 0) for name in wanted) <= ON_A_NODE


def _asked(pod: Pod) -> int:
    return sum(int(container.resources.requests.get(RESOURCE, 0)) for container in pod.spec.containers)


class Reservations:
    """Follows the records of named claims, and pods that are bound. `fault` takes a rule and what was found."""

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        self._fault = fault
        self._by_claim: dict[str, tuple[str, int]] = {}
        self._ended: dict[str, str] = {}
        """UIDs of claims whose data a node is asked to remove, by the names of these ClaimReleases: by them a new
        leader knows that nothing is reserved any more, before the claim's own record says so."""
        self._by_pod: dict[str, tuple[str, int, bool]] = {}

    def observe(self, step: Step) -> None:
        """Look at one change."""
        kind = (step.resource.group, step.resource.plural)
        if kind == ("parley.dev", "resourceclaims"):
            self._claim(step.change)
        elif kind == ("parley.dev", "claimreleases"):
            self._release(step.change)
        elif kind == ("", "pods"):
            self._pod(step.change)

    def _claim(self, change: Change) -> None:
        uid = change.last.meta["uid"]
        self._by_claim.pop(uid, None)
        if change.new is None or only_data_is_left(change.new.body) or uid in self._ended.values():
            return
        node, amount = self._by_claim[uid] = _recorded(change.new.body)
        if amount and self._reserved(node) > ON_A_NODE:
            name = change.last.meta["name"]
            told = f"claim {name} reserves {amount} on node {node}: {self._reserved(node)} in all"
            self._fault("reserved twice", told)

    def _release(self, change: Change) -> None:
        name, spec = change.last.meta["name"], change.last.body["spec"]
        self._ended.pop(name, None)
        if change.new is not None and spec.get("removeData"):
            self._ended[name] = spec["holdingUid"]
            self._by_claim.pop(spec["holdingUid"], None)

    def _reserved(self, node: str) -> int:
        return sum(amount for on, amount in self._by_claim.values() if on == node)

    def _pod(self, change: Change) -> None:
        """One that was put on its node by its creator has asked nobody, and does not count."""
        old, new, meta = change.old, change.new, change.last.meta
        if new is None or new.body["status"].get("phase") in ("Succeeded", "Failed"):
            self._by_pod.pop(meta["uid"], None)
            return
        node, amount = new.body["spec"].get("nodeName", ""), requested(new.body["spec"])
        if not node or not amount or old is None or old.body["spec"].get("nodeName"):
            return
        borrower = is_borrower(meta["labels"])
        self._by_pod[meta["uid"]] = node, amount, borrower
        if borrower:
            return
        there = [(amount, borrower) for on, amount, borrower in self._by_pod.values() if on == node]
        others = sum(amount for amount, borrower in there if not borrower)
        borrowers, reserved = sum(amount for amount, borrower in there if borrower), self._reserved(node)
        # where nothing is left of what is reserved, two schedulers may take the same room as anywhere
        if reserved > borrowers and others + reserved > ON_A_NODE:
            told = f"pod {meta['name']} is bound to {node}, where {reserved} is reserved and pods have {others}"
            self._fault("room taken", f"{told} beside {borrowers} of borrowers")
