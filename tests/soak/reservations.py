"""What must hold of room that claims reserve on nodes, in worlds where the driver says so.

    reserved twice   what the claims on a node reserve there, by their records, is never more than the node has
    room not held    at rest, reservation pods hold just what claims reserve with `hold: Nominated`

They reserve a resource that no pod requests: so they are in each other's way alone, and whether a claim finds it
is judged from the records (`Room`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from typing import Any

from tests.soak.keeping import allocation
from tests.soak.mirrors import Json
from tests.soak.observed import Step

from parley.api.models import Hold
from parley.sdk import Reserve

RESOURCE = "example.com/room"
ON_A_NODE = 4
"""So much of it has each node."""

RESERVED: Mapping[str, int] = {"disk": 3, "tape": 2, "common": 2, "cache": 3, "workspace": 2}
"""What named claims reserve, by their names."""


HOME = "parley-system"
"""Where reservation pods are."""


def reserve(claim: str, hold: Hold) -> Reserve | None:
    """What the driver says of a claim of that name."""
    return Reserve({RESOURCE: str(RESERVED[claim])}, hold=hold) if claim in RESERVED else None


def not_held(
    claims: Iterable[Json], pods: Iterable[Json], nodes: Collection[str], forced_away: Set[str]
) -> Iterator[str]:
    """Claims whose room is not held on their node, or not as they reserve it; pods that hold anything else. Those
    `forced_away`, by UID, may hold theirs while pods use them."""
    reserved = Counter[tuple[str, str, str]]()
    for claim in claims:
        node, amount = _recorded(claim)
        body = claim.get("status", {}).get("allocation") or {}
        if amount and node in nodes and body["reserve"].get("hold") == "Nominated":
            reserved[claim["metadata"]["uid"], node, str(amount)] += 1
    for pod in pods:
        if pod["metadata"]["namespace"] == HOME:
            (container,) = pod["spec"]["containers"]
            held = container["resources"]["requests"][RESOURCE]
            uid = pod["metadata"]["labels"]["parley.dev/reserved-claim"]
            reserved[uid, pod["status"].get("nominatedNodeName", ""), held] -= 1
    for (uid, node, held), missing in reserved.items():
        if missing > 0 or (missing and uid not in forced_away):
            yield f"{'nothing' if missing > 0 else 'a pod'} holds {held} on node {node!r} for claim {uid}"


def _recorded(claim: Json) -> tuple[str, int]:
    """Where it reserves how much, by its record."""
    found, body = allocation(claim), (claim.get("status") or {}).get("allocation") or {}
    amounts: dict[str, Any] = (body.get("reserve") or {}).get("amounts") or {}
    return (found[0][0], int(amounts.get(RESOURCE, 0))) if found is not None and found[0] else ("", 0)


class Room:
    """How much of each node the claims reserve, by their records. Those `forced_away`, by name and node, may
    reserve theirs while pods use them."""

    def __init__(self, claims: Iterable[Json], forced_away: Iterable[tuple[str, str]]) -> None:
        self._by_name = {claim["metadata"]["name"]: _recorded(claim) for claim in claims}
        self._left = [(node, RESERVED.get(name, 0)) for name, node in forced_away]

    def serves(self, claims: Iterable[str], node: str) -> bool:
        """Whether these claims would find on the node what they reserve."""
        wanted = set(claims)
        others = [found for name, found in self._by_name.items() if name not in wanted]
        taken = sum(amount for on, amount in (*others, *self._left) if on == node)
        return taken + sum(RESERVED.get(name, 0) for name in wanted) <= ON_A_NODE


class Reservations:
    """Follows the records of named claims. `fault` takes a rule and what was found."""

    def __init__(self, fault: Callable[[str, str], None]) -> None:
        self._fault = fault
        self._by_claim: dict[str, tuple[str, int]] = {}

    def observe(self, step: Step) -> None:
        """Look at one change."""
        if (step.resource.group, step.resource.plural) != ("parley.dev", "resourceclaims"):
            return
        uid = step.change.last.meta["uid"]
        self._by_claim.pop(uid, None)
        if step.change.new is None:
            return
        node, amount = self._by_claim[uid] = _recorded(step.change.new.body)
        total = Counter[str]()
        for on, reserved in self._by_claim.values():
            total[on] += reserved
        if amount and total[node] > ON_A_NODE:
            name = step.change.last.meta["name"]
            self._fault("reserved twice", f"claim {name} reserves {amount} on node {node}: {total[node]} in all")
