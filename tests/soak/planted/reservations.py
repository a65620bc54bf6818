"""Planted bugs of room that claims reserve."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from tests.soak.kinds.classes import BORROWER
from tests.soak.planted.bug import Bug, nothing

from parley.control import room
from parley.control.decision.eligible import SuitableNodes
from parley.control.holding import Holding
from parley.control.ledger import Ledger
from parley.control.reservation_pods import ReservationPods


def _ever_reserving() -> Callable[[Ledger, str], Collection[Holding]]:
    """What once reserved room goes on doing so."""
    ever: defaultdict[Ledger, dict[tuple[str, str], Holding]] = defaultdict(dict)

    def reserving(self: Ledger, node: str) -> Collection[Holding]:
        ever[self].update({(node, holding.uid): holding for holding in _RESERVING(self, node)})
        return [holding for (on, _), holding in ever[self].items() if on == node]

    return reserving


_RESERVING = Ledger.reserving

OF_RESERVATIONS: Mapping[str, Bug] = {
    "two claims reserve the same room": Bug(
        ((room, "reservation_shortage", lambda *_: ""),),
        ("reserved twice",),
        reserved_room="Ledger",
        kept_claims=True,
    ),
    "a yielded reservation is counted as free for everybody": Bug(
        ((room, "_classes", lambda *_: [BORROWER]),),
        ("room taken",),
        reserved_room="Ledger",
        room_yields=True,
        kept_claims=True,
    ),
    "what was reserved stays reserved": Bug(
        ((Ledger, "reserving", _ever_reserving()),), ("waits in vain",), reserved_room="Ledger", kept_claims=True
    ),
    "immediate claims find no room where others reserve": Bug(
        ((SuitableNodes, "room_shortage", lambda *_: "full"),),
        ("waits in vain: immediate claim",),
        reserved_room="Ledger",
        immediate_claims=True,
    ),
    "room is held for claims that have ended": Bug(
        ((ReservationPods, "_give_up", nothing),),
        ("room not held", "left over"),
        reserved_room="Nominated",
        kept_claims=True,
    ),
    "reservation pods are not nominated": Bug(
        ((ReservationPods, "_nominate", nothing),), ("room not held",), reserved_room="Nominated", kept_claims=True
    ),
}
