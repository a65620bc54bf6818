"""Holdings: one allocated claim each, with its allocation, its users, and how far the API shows them."""

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

    HELD -> UNRESERVING -> gone        its last pod is terminal, or its driver takes it back
    HELD -> UNRESERVING -> RELEASING -> UNRESERVING -> gone
                                       nodes owe receipts first: a pod was deleted by force, or the driver's node
                                       part has data of the claim to remove
    HELD -> UNRESERVING -> RELEASING -> HELD
                                       the same of a claim that stays allocated without users

    A write that fails on the way leads back to where it began. But if a driver fails to deallocate, it may have
    done so: the holding is ENDING until the driver says that it has. And if the answer to the request to a
    standalone driver is lost, the holding stays UNRESERVING: the driver may have begun. A new leader begins with
    UNRESERVING where records say that nodes owe receipts and no pod uses the holding.
    """

    HELD = "held"
    """Pods use it, or may begin to."""
    UNRESERVING = "unreserving"
    """Its users are being removed from the API (`reservedFor`), and no pod may begin to use it."""
    RELEASING = "releasing"
    """No pod uses it or may begin to, and nodes may still have it prepared, or have data of it."""
    ENDING = "ending"
    """No pod uses it or may begin to, and its driver is asked again to deallocate it."""


class Written(Enum):
    """Whether an object in the API shows a holding's allocation, as far as the writes of it are answered.

    NO -> YES                a write succeeded
    NO -> MAYBE -> NO        a write of unknown outcome was overtaken by a newer one
    YES -> UNSETTLED -> YES  the same for a later write
    """

    NO = "no"
    """The object never showed it, or was cleared since."""
    MAYBE = "maybe"
    """The object did not show it when it was last read, but a write of it may still arrive."""
    YES = "yes"
    """The object has shown it. Another client may have cleared it."""
    UNSETTLED = "unsettled"
    """The object has shown it, and a write that changes it may still arrive."""

    @property
    def is_settled(self) -> bool:
        """Whether no write of ours can arrive any more."""
        return self in (Written.NO, Written.YES)

    @property
    def is_known(self) -> bool:
        """Whether the object is known to have shown the allocation."""
        return self in (Written.YES, Written.UNSETTLED)

    def outcome_unknown(self) -> "Written":
        """The state after a write whose answer was lost."""
        return Written.MAYBE if self in (Written.NO, Written.MAYBE) else Written.UNSETTLED

    def settled(self) -> "Written":
        """The state after a write that was answered, and after which no earlier one can arrive."""
        return Written.NO if self in (Written.NO, Written.MAYBE) else Written.YES


class PreparedOn(NamedTuple):
    """A built-in claim, by its UID, that the kubelet of a node may have prepared."""

    claim_uid: str
    node: str


@dataclass(slots=True)
class Holding:
    """An allocated claim: its driver's allocation, the pods that use it, and how far the API shows both.

    `uid` identifies it to the driver: the UID of the Parley claim if it is named, otherwise of the built-in claim
    that was generated first (one that is recreated for a running pod keeps the holding). `node` is the node that
    it was allocated for. `standalone` is set if a standalone driver allocated it, `immediate` if it stays
    allocated without users as long as its claim exists, `node_part` if a plugin prepares it on its node. `written`
    is about the allocation in the mirror, `record_written` about a named claim's own record. `shown_by` are the
    built-in claims that may have shown it, names by UID: a node has the one prepared that existed when the pod was
    started. `offered` is set while the allocation in the API leaves the node to the scheduler. `lists_read` counts
    the lists of pods and of built-in claims that had been read when the API began to show the allocation, 0 if
    that was before this process: after a further list, pods unknown to us may have used it. `unseen_users` are
    pods, by UID, that a scheduler reserved it for and that may have been bound unseen. `used`: a pod may have run
    with it. `kept_until`: until then it stays allocated without users, by its class. `records_units`: the
    parameters that it was allocated by may change or go, so `units` are recorded with it. `counted` is False if it
    was restored, and its units are not known yet. `uses` are UIDs of claims that stay allocated as long as this
    one is. `known_nodes` are the cluster's nodes, for an allocation that selects nodes by labels. `owed` is what
    may still be prepared for pods that were deleted by force: each has a ClaimRelease, or is about to get one.
    `removing`: the claim has ended, and the nodes in `owed` have to remove its data. `only_data`: a ClaimRelease
    shows that, so that nothing is reserved any more, for a new leader either.
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
    lists_read: int = 0
    unseen_users: dict[str, PodReference] = field(default_factory=dict)
    uses: tuple[str, ...] = ()
    phase: Phase = Phase.HELD
    owed: set[PreparedOn] = field(default_factory=set)
    removing: bool = False
    only_data: bool = False
    shown_by: dict[str, str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    known_nodes: KnownNodes = field(default_factory=NoNodes, repr=False)

    @property
    def joinable(self) -> bool:
        """Whether further pods may use it."""
        return self.phase is Phase.HELD

    @property
    def path(self) -> str:
        """The claim's name in messages, NAMESPACE/NAME."""
        return f"{self.namespace}/{self.claim}"

    @property
    def stays_unused(self) -> bool:
        """Whether it may be allocated without users."""
        return self.immediate or self.kept_until is not None

    @property
    def available_on(self) -> AvailableOn:
        """The nodes where the claim can be used, as recorded: names, or labels."""
        on = self.allocation.available_on
        return (self.node,) if on == () else on

    @property
    def nodes(self) -> Places:
        """The nodes where the claim can be used, by name, as their labels are now; None is everywhere."""
        return places(self.available_on, self.known_nodes)

    @property
    def only_node(self) -> str | None:
        """The only node where the claim can be used; None if there are others, or labels may add some."""
        nodes = self.nodes
        return nodes[0] if isinstance(nodes, tuple) and len(nodes) == 1 else None

    @property
    def reserves(self) -> bool:
        """Whether it reserves room on its nodes, which it does not if only its data is left to be removed."""
        return self.allocation.reserve is not None and not self.only_data

    @property
    def is_nominated(self) -> bool:
        """Whether reservation pods hold the room that it reserves on its node."""
        reserve = self.allocation.reserve
        return reserve is not None and reserve.hold == "Nominated"

    @property
    def claim_uids(self) -> tuple[str, ...]:
        """UIDs of the built-in claims under which a node may have it prepared."""
        own = () if self.named else (self.uid,)
        return tuple(dict.fromkeys((*own, *self.shown_by)))

    @property
    def owing_nodes(self) -> tuple[str, ...]:
        """The nodes that have yet to confirm that it is not prepared there any more, by name."""
        return tuple(sorted({prepared.node for prepared in self.owed}))

    def owe_removal(self) -> None:
        """Note that it has ended, and its nodes have to remove its data."""
        self.removing = True
        self.owed |= {self.data_on(node) for node in self.nodes or ()}

    def data_on(self, node: str) -> PreparedOn:
        """Its data on the node, which is removed under the UID of one of its built-in claims."""
        return PreparedOn(next(iter(self.claim_uids), self.uid), node)

    @contextmanager
    def entering(self, phase: Phase) -> Iterator[None]:
        """Enter the phase for the work in the context. If that fails, go back to the phase before, unless the work
        has gone on to another one."""
        before, self.phase = self.phase, phase
        try:
            yield
        except BaseException:
            if self.phase is phase:
                self.phase = before
            raise

    @property
    def yields_to(self) -> tuple[str, ...]:
        """The classes whose pods may use the part of its reservation that its users do not use."""
        reserve = self.allocation.reserve
        return reserve.yields_to if reserve is not None else ()

    def usable_on(self, node: str) -> bool:
        """Whether the claim can be used on the node."""
        nodes = self.nodes
        return nodes is None or node in nodes

    def may_run_on(self, node: str) -> bool:
        """Whether a pod that is bound to the node may run with it. Always if nodes are selected by labels: these
        may have changed since the pod was bound."""
        nodes = self.nodes
        return not isinstance(nodes, tuple) or node in nodes
