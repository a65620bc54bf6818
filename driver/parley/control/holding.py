"""What is allocated for one claim: what its driver handed out, which pods use it, how far the API shows that."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from parley.negotiation.availability import AvailableOn, KnownNodes, NoNodes, Places, places
from parley.sdk import Allocation, PodReference


class Phase(Enum):
    """How far a holding is from being free.

    HELD -> LEAVING -> gone                            its last pod is done, or its driver takes it back
    HELD -> LEAVING -> RELEASING -> LEAVING -> gone    nodes owe receipts first: a pod was deleted by force, or
                                                       the driver's node part has data of the claim to remove
    HELD -> LEAVING -> RELEASING -> HELD               the same of a claim that stays allocated without users

    A write that fails on the way leads back to where it began. But if a driver fails to deallocate, it may have
    done so: the holding is ENDING until the driver says that it has. And if the answer to the request to a
    standalone driver is lost, the holding stays LEAVING: the driver may have begun. A new leader begins with
    LEAVING where records say that nodes owe receipts and no pod uses the holding.
    """

    HELD = "held"
    """Pods use it, or may come to."""
    LEAVING = "leaving"
    """Its users are being removed from the API; none may come to use it."""
    RELEASING = "releasing"
    """No pod uses it, none may come to, and nodes may still have it prepared, or have data of it."""
    ENDING = "ending"
    """No pod uses it, none may come to, and its driver is asked again to deallocate it."""


class Written(Enum):
    """Whether an object in the API has come to show what a holding is.

    NO -> YES                a write succeeded
    NO -> MAYBE -> NO        one of unknown outcome was overtaken by a newer write
    YES -> UNSETTLED -> YES  the same of a later write
    """

    NO = "no"
    """It never did, or it was cleared since."""
    MAYBE = "maybe"
    """It did not when it was seen last, and a write that may still arrive would show it."""
    YES = "yes"
    """It did. Somebody else may have cleared it."""
    UNSETTLED = "unsettled"
    """It did, and a write that may still arrive would change it."""

    @property
    def is_settled(self) -> bool:
        """Whether no write of ours can arrive any more."""
        return self in (Written.NO, Written.YES)

    @property
    def is_known(self) -> bool:
        """Whether the object is known to have shown it."""
        return self in (Written.YES, Written.UNSETTLED)

    def outcome_unknown(self) -> "Written":
        """After a write whose answer was lost."""
        return Written.MAYBE if self in (Written.NO, Written.MAYBE) else Written.UNSETTLED

    def settled(self) -> "Written":
        """After a write that no earlier one can follow."""
        return Written.NO if self in (Written.NO, Written.MAYBE) else Written.YES


class PreparedOn(NamedTuple):
    """A built-in claim, by its UID, that the kubelet of a node may have prepared."""

    claim_uid: str
    node: str


@dataclass(slots=True)
class Holding:
    """A claim that is allocated: what its driver handed out, which pods use it, and how far the API shows that.

    `uid` is the key towards the driver: the UID of the Parley claim if it is named, otherwise of the claim that
    was generated first (one that is recreated for a running pod keeps the holding). `node` is the one that it was
    allocated for. `standalone` is set if a standalone driver allocated it, `immediate` if it stays
    allocated without users as long as its claim is there, `node_part` if a plugin prepares it on its node.
    `written` is about the allocation in the mirror, `record_written` about a named claim's own record.
    `shown_by` are the built-in claims that may have shown it, names by UID: a node has one of them prepared,
    whichever was there when the pod was started. `offered` is set while the allocation in the API leaves the node
    to the scheduler.
    `lists` are the lists of pods and of built-in claims that had been read when the API began to show the
    allocation, 0 if that was before this process: after another one pods may have used it of which nobody knows.
    `unseen` are pods, by UID, that a scheduler reserved it for and that may have been bound without being seen.
    `used`: a pod may have run with it. `kept_until`: so long it stays allocated without users, by its class.
    `records_units`: what it was allocated by may be gone or another by now, so that `units` are recorded with it.
    Not `counted`: it was taken over, and what it counts for is not known yet.
    `uses` are UIDs of claims that stay allocated as long as this one is.
    `known` are the cluster's nodes, for an allocation that goes by their labels.
    `owed` is what may still be prepared for pods that were deleted by force: for each there is a ClaimRelease, or
    there is about to be one. `removing`: the claim has ended, and what is owed is that its data is removed.
    """

    uid: str
    namespace: str
    claim: str
    entry: str
    named: bool
    driver: str
    node: str
    allocation: Allocation
    pods: dict[str, PodReference]
    class_name: str = ""
    units: int = 1
    counted: bool = True
    records_units: bool = False
    shareable: bool = False
    immediate: bool = False
    standalone: bool = False
    node_part: bool = True
    offered: bool = False
    used: bool = False
    kept_until: datetime | None = None
    written: Written = Written.NO
    record_written: Written = Written.NO
    lists: int = 0
    unseen: dict[str, PodReference] = field(default_factory=dict)
    uses: tuple[str, ...] = ()
    phase: Phase = Phase.HELD
    owed: set[PreparedOn] = field(default_factory=set)
    removing: bool = False
    shown_by: dict[str, str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    known: KnownNodes = field(default_factory=NoNodes, repr=False)

    @property
    def joinable(self) -> bool:
        """Whether pods may come to use it."""
        return self.phase is Phase.HELD

    @property
    def path(self) -> str:
        """The claim as messages name it."""
        return f"{self.namespace}/{self.claim}"

    @property
    def stays_unused(self) -> bool:
        """Whether it may be allocated without users."""
        return self.immediate or self.kept_until is not None

    @property
    def available_on(self) -> AvailableOn:
        """Where the claim can be used, as it is recorded."""
        on = self.allocation.available_on
        return (self.node,) if on == () else on

    @property
    def nodes(self) -> Places:
        """The same by names, as the nodes' labels are now; None is everywhere."""
        return places(self.available_on, self.known)

    @property
    def only_node(self) -> str | None:
        """The node where the claim can be used, if there is and will be one alone."""
        nodes = self.nodes
        return nodes[0] if isinstance(nodes, tuple) and len(nodes) == 1 else None

    @property
    def is_nominated(self) -> bool:
        """Whether reservation pods hold what it reserves on its node."""
        reserve = self.allocation.reserve
        return reserve is not None and reserve.hold == "Nominated"

    @property
    def claim_uids(self) -> tuple[str, ...]:
        """UIDs of the built-in claims that a node may know it by."""
        own = () if self.named else (self.uid,)
        return tuple(dict.fromkeys((*own, *self.shown_by)))

    @property
    def owing_nodes(self) -> tuple[str, ...]:
        """The nodes that have yet to confirm that it is not prepared there any more, by name."""
        return tuple(sorted({one.node for one in self.owed}))

    @contextmanager
    def entering(self, phase: Phase) -> Iterator[None]:
        """The holding is in the phase, and stays there unless the work of getting there fails before the next."""
        before, self.phase = self.phase, phase
        try:
            yield
        except BaseException:
            if self.phase is phase:
                self.phase = before
            raise

    @property
    def yields_to(self) -> tuple[str, ...]:
        """The classes to whose pods it leaves what it reserves and its users don't use."""
        reserve = self.allocation.reserve
        return reserve.yields_to if reserve is not None else ()

    def reaches(self, node: str) -> bool:
        """Whether the claim can be used on the node."""
        nodes = self.nodes
        return nodes is None or node in nodes

    def may_run_on(self, node: str) -> bool:
        """Whether a pod that is bound to the node may run with it: labels of nodes change under those that do."""
        nodes = self.nodes
        return not isinstance(nodes, tuple) or node in nodes
