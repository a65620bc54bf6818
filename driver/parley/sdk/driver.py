"""The interface between Parley and the driver of a resource: `Driver`, and the values that it gets and
returns."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from parley.api.models import Hold
from parley.api.quantity import thousandths
from parley.api.resources import Resource
from parley.negotiation.answers import Answer
from parley.negotiation.availability import AvailableOn
from parley.negotiation.preference import Prefer
from parley.negotiation.stranded import Cause
from parley.sdk.sight import SeenCluster, SeenPod

MAX_TEXT = 1024
"""Characters in a text among a driver's parameters, where its field names no `max_length` of its own."""


class Parameters(BaseModel):
    """Base of the pydantic models of a driver's parameters, those of claims and those of classes.

    Fields are camelCase in YAML (`per_node` is `perNode`), and an unknown field is an error. What does not fit
    the model is refused before the driver is called, with a message that names the claim or class, field and
    value.

    Any user who may create claims writes a claim's parameters. A text has at most 1,024 characters, unless its
    field sets `max_length`; give each number a limit.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", str_max_length=MAX_TEXT
    )

    def newest(self) -> "Parameters":
        """The same parameters in the newest version. Override it in the models of older ones: see
        `Driver.parameter_versions`."""
        return self


class NoParameters(Parameters):
    """For a driver without parameters."""


P = TypeVar("P", bound=Parameters)
C = TypeVar("C", bound=Parameters)


@dataclass(frozen=True, slots=True)
class PodReference:
    """The pod that a request is for. Of a claim that is allocated without a pod (`allocationMode:
    Immediate`) it has only the namespace: name and UID are empty."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ClaimRequest(Generic[P, C]):
    """One pending claim.

    `name` is the pod's entry for it in `spec.resourceClaims`: answers and allocations go by it. `uid` and
    `claim` are the claim's own UID and name: what is held goes by the UID. `class_name` is its class.
    `parameters` and `class_parameters` are of the driver's models. If `generated`, the claim was made from a
    template for this pod alone, and ends with it.
    """

    name: str
    uid: str
    claim: str
    class_name: str
    parameters: P
    class_parameters: C
    generated: bool = False


def _discard(_: str) -> None:
    """Progress of an allocation that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Request(Generic[P, C]):
    """All pending claims of one pod that this driver serves, at most 128. They are evaluated and allocated
    together: two claims of one token each need two tokens.

    `progress` takes, from any thread, a short sentence about how far an allocation is ("attached, formatting").
    Users of an asynchronous or standalone driver read it in the condition `Allocating` of the claims; it is
    written every 5 s at most. `prefer` is "Pack" or "Spread", as the claims' classes say; Parley follows it by
    itself if the driver has no `score`. `seen` describes the pod, for a driver that `sees_pods`; it is None for a
    claim that is allocated without a pod.
    """

    pod: PodReference
    claims: tuple[ClaimRequest[P, C], ...]
    progress: Callable[[str], None] = field(default=_discard, compare=False, repr=False)
    prefer: Prefer = "Spread"
    seen: SeenPod | None = None


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device by the names of its pool and itself, as in ResourceSlices: `device` is a lower-case DNS
    label, `pool` one or more DNS subdomains with slashes in between. Containers get what the node part
    prepares for it."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class ClassOnNodes(Generic[C]):
    """A class by name, with its parameters, and the names of the nodes where it can be allocated: those of its
    `suitableNodes`."""

    name: str
    parameters: C
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a class there is, and how much of that nobody holds. Whole numbers, in what the driver counts
    (devices, tokens): 0 <= `free` <= `total`."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """Room on a claim's node for the pods that use the claim.

    `amounts` are quantities by resource name (`{"cpu": "2", "memory": "4Gi"}`), at most 16 and without `pods`.
    `pods` is the number of pod slots, 0 to 10,000.

    `hold` says who is kept out of what is unused. "Ledger": the pods about which Parley decides. "Nominated":
    also those about which only the scheduler decides, by reservation pods.

    `yields_to` names at most 16 ResourceClasses, of any driver. A pod of any namespace that has a claim of such
    a class may use what no user of this claim uses, until that pod ends. So take it from the class, which
    administrators write, not from the claim.
    """

    amounts: Mapping[str, str] = field(default_factory=dict)
    pods: int = 0
    hold: Hold = "Ledger"
    yields_to: tuple[str, ...] = ()

    def thousandths(self) -> dict[str, int]:
        """All of it by resource name (`pods` too), in thousandths, without what is zero. Raises ValueError if an
        amount is no quantity."""
        found = {name: thousandths(amount) for name, amount in self.amounts.items()}
        return {name: amount for name, amount in {**found, "pods": 1000 * self.pods}.items() if amount}


@dataclass(frozen=True, slots=True)
class Allocation:
    """What was allocated for one claim.

    `devices` are at most 32. `data` is what JSON can represent, at most 10 KiB and nested at most 64 levels deep:
    it is recorded in the claim, the node part gets it as its handle, and `restore` gets it after a restart, as
    JSON has it (a tuple is a list then), perhaps in a newer version of the driver. Who may read the claim can
    read it, so put no secrets into it.

    `available_on` says on which nodes the claim can be used. An empty tuple: only on the node that it was
    allocated for. Up to 128 names: on these nodes, which have to include that one.
    `NodeLabels({"topology.kubernetes.io/zone": "a"})`: on all nodes with these labels (1 to 16), also on nodes
    that get them later; a node that loses them takes no new users. None: everywhere.

    Leave `reserve` alone: Parley sets it, from `Driver.reserves`.
    """

    devices: tuple[Device, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    available_on: AvailableOn = ()
    reserve: Reserve | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An allocation that exists in the API, of the claim with this UID. `node` is the one that it was allocated
    for; None if the record does not say: it can be used everywhere, or on several nodes by their labels. Where
    several nodes are named it may be another of these, on which the pod is.

    `devices` and `data` are what `allocate` returned, `data` as JSON has it. It is None if Parley did not make the
    allocation: ordinary DRA took devices of this driver, which are simply in use.
    """

    uid: str
    node: str | None
    devices: tuple[Device, ...]
    data: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Stranded:
    """What becomes of a named claim whose only node takes no pods, once that has lasted for `after_seconds` (0
    to a year, 31,536,000).

    Wait: pods wait for the node. Fail: no further pod may use the claim, even if the node comes back. Recreate:
    if the node was deleted or is out of service, and no pod uses the claim, it is deallocated, and allocated
    again for the next pod. In all other cases pods wait.
    """

    way: Literal["Wait", "Fail", "Recreate"] = "Wait"
    after_seconds: float = 0.0


class PermanentError(Exception):
    """Raise it in `allocate` if this request can never be allocated on this node. Users read its message.

    The node is excluded for this pod until the class changes, or the pod fails: see `onPermanentError` of the
    class.
    """


class Driver(Generic[P, C]):
    """Base class of drivers.

    Parley decides which nodes to ask about, when to allocate and when to deallocate. A driver knows what it has
    and where. It keeps its state in memory: at start, Parley calls `restore` for each allocation that the API
    has.

    Set `name`, `parameters` and `class_parameters` (the models; NoParameters if there are none), and write
    `viable`, `allocate`, `deallocate`, `restore` and `forget`. Everything else has a default. A class that a
    command names (`module:Class`) is made without arguments, so read its settings from the environment or from
    files.

    All methods are called from one event loop, so a driver needs no locks between two awaits. Methods that are
    not `async` must return at once. If answers or allocations take longer than a moment, the driver is
    `asynchronous`: it is asked through API objects, in the controller as in a process of its own, and nobody
    else waits for it.

    What a method raises concerns only the claim or the pod that it was called for. Their users see the message
    in an event or condition, the call is repeated after a growing pause, and everything else goes on. If
    `restore` raises, nobody knows what the claim holds: until it is released, nothing is allocated on its node
    (nowhere, if it can be used on several), nor any device that its record names.

    Only for drivers in the controller that are not `asynchronous`, Parley uses `see`, `users_changed`,
    `sees_pods`, `leaves_data`, `units`, `viable_without`, `reserves`, `uses`, `stranded`, `alike`, `has_room`,
    `has_room_anywhere` and `is_local`; for all in the controller `capacity`.
    """

    name: ClassVar[str]
    """The driver's name as in `ResourceClass.driverName`: a DNS subdomain of at most 63 characters."""

    parameters: type[P]
    class_parameters: type[C]
    parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {}
    """The models of claims' parameters by `apiVersion`, the oldest first; `parameters` is the newest.
    Parameters without `apiVersion` are of the oldest. The driver gets all of them as the newest
    (`Parameters.newest`). Empty: parameters have no version."""
    class_parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {}
    """The same for classes' parameters."""
    parameter_kinds: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds of objects whose `spec` may hold parameters, for `parametersRef` to name; ConfigMaps always may. For
    example `Resource("disks.example.com", "v1", "sizes", "Size", True, dict[str, Any])`: group, version, plural,
    kind, whether it is namespaced, and its type; `Resource` is in `parley.api.resources`."""
    asynchronous: ClassVar[bool] = False
    """Whether answers or allocations may take longer than a moment: then Parley calls `consider`, not
    `viable`, and `allocate` may take as long as the class's `allocationTimeoutSeconds`."""
    node_local: ClassVar[bool] = False
    """Whether what is released on a node changes the answers about that node alone. Then it wakes no pods
    that can't go there."""
    leaves_data: ClassVar[bool] = False
    """Whether pods leave something on a node that outlives them, such as a directory. When a named claim
    ends, its node's plugin is asked to remove it (`NodeDriver.remove_data`); only then what was allocated is
    free for others."""
    sees_pods: ClassVar[bool] = False
    """Whether requests describe their pods (`Request.seen`). Pods that differ in any of that never wait in
    one line (`alike`)."""
    watches: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds of objects whose changes `observe` gets. All that exist are there before the first question. The
    account of the process has to be allowed to list and watch them; that of `parley driver permissions` may
    do so for Nodes and ResourceSlices."""

    def see(self, cluster: SeenCluster) -> None:
        """Gets the cluster's nodes, to look at in any later call. Called once, before anything is restored.
        A change of what it shows wakes no pod by itself."""

    def users_changed(self, uid: str) -> None:
        """Other pods use what the driver allocated for the claim: one came, or one ended. `SeenCluster.users` (see
        `see`) has those that do now, which may be none where a class keeps claims without users.

        Also called after `allocate`, and at start after `restore`; not when the claim ends, which is `deallocate`.
        """

    def observe(self, old: Any | None, new: Any | None) -> bool | Collection[str]:
        """An object of `watches` appeared (old is None), changed, or vanished (new is None).

        Returns whether pods that wait for this driver may now succeed, or the names of the nodes on which they
        may: then only those pods are woken for which `has_room` says that one of these nodes may be viable.
        """
        return False

    async def follow(self, changed: Callable[[], None]) -> None:
        """Watch whatever is not in the API, such as a provider's own events, as long as the driver runs.

        Call `changed`, from any thread, when pods that wait for this driver may now succeed. Starts once all is
        restored. If it raises, it is called again after a pause of 1 s to 5 minutes; if it returns, it is not.
        """

    def restore(self, held: Held) -> None:
        """Count an allocation that exists in the API. Must be safe to repeat for the same `held.uid`.

        Called for all allocations at start, before any question; later for those that others made, such as
        ordinary DRA. `held.data` may be of an older version of the driver.
        """
        raise NotImplementedError

    def forget(self, uid: str) -> None:
        """An allocation that others made, and `restore` counted, is gone: count it no more. Must be safe to
        repeat."""
        raise NotImplementedError

    def viable(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """An answer for each of the request's claims, by `ClaimRequest.name`; see `Answer`. Has no side
        effects.

        `nodes` are names, in no particular order of the driver's; there may be thousands. Pods are bound only
        where all of their claims are viable, so usually all claims of a request get the same answer.
        """
        raise NotImplementedError

    def has_room(self, request: Request[P, C], node: str) -> bool:
        """Whether the node may be viable for all of the request's claims. In doubt return True: then Parley asks
        `viable`.

        Asked for every pod that waits, about each node that changed: override it if `viable` takes long.
        """
        return all(node in answer.viable for answer in self.viable(request, (node,)).values())

    def has_room_anywhere(self, request: Request[P, C]) -> bool:
        """Whether any node may be viable for all of the request's claims. In doubt return True: then Parley
        asks `viable`.

        Asked for the pods that wait, whenever something is released that is tied to no node: override it if the
        driver allocates such things.
        """
        return True

    def alike(self, request: Request[P, C]) -> Hashable:
        """What the answers depend on besides the classes and parameters of the claims, for example the pod's
        namespace. Has no side effects.

        Pods whose requests are equal in all of this wait in one line: if the first can't be served, Parley does
        not ask about the others.
        """
        return None

    def is_local(self, held: Held) -> bool:
        """Whether releasing this allocation changes the answers about its node alone. Override it if that
        differs between allocations; `node_local` answers for all of them."""
        return self.node_local

    def viable_without(self, request: Request[P, C], node: str, uids: Collection[str]) -> bool:
        """Whether the node would be viable for all of the request's claims if the claims with these UIDs, which
        may be of several pods, held nothing. Has no side effects.

        Asked before pods are evicted for what they hold (`preemption` of a class). If a driver does not
        override it, nobody is evicted for its claims.
        """
        raise NotImplementedError

    async def consider(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """As `viable`, for an asynchronous driver that has to ask somebody else first. It has 30 s.

        After a restart it is also called for an immediate claim and the node where its allocation had begun,
        which continues only if that node is viable. So count what the claim itself already holds there as free.
        """
        return self.viable(request, nodes)

    def units(self, claim: ClaimRequest[P, C]) -> int:
        """How much of a class's `limits[].units` the claim takes up: a whole number, 0 or more."""
        return 1

    def reserves(self, claim: ClaimRequest[P, C]) -> Reserve | None:
        """Room to reserve on the claim's node for the pods that use the claim, from its allocation to its end;
        None for none. Has no side effects.

        Only nodes that have this room are viable, and what the users request counts against it first. Asked
        about named claims, which must then be usable on one node alone (`Allocation.available_on`).
        """
        return None

    def uses(self, held: Held) -> Sequence[str]:
        """UIDs of the named claims that this allocation needs, at most 32: for example, because it shows what
        they have. They are of this driver and of the same namespace. Has no side effects.

        They stay allocated at least as long as this allocation. If one of them is of the same request, it must
        use nothing itself. Asked when something is allocated and when it is restored, and the answer must be
        the same.
        """
        return ()

    def capacity(self, of: ClassOnNodes[C]) -> Capacity | None:
        """What the class has on its nodes; None if that is not known. Has no side effects.

        Users read it in the class's status and in `parley get classes`. Asked every few seconds while something
        changes.
        """
        return None

    def stranded(self, claim: ClaimRequest[P, C], node: str, cause: Cause) -> Stranded:
        """What becomes of a named claim that is allocated on a node that takes no pods, and why the node takes
        none. Has no side effects.

        Asked when the node or the claim changes, and when `after_seconds` are over. `claim.name` is here the
        claim's own name, because no pod asks.
        """
        return Stranded()

    def score(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, float]:
        """Preferences among these viable nodes, each 0 (worst) to 1; a node that is left out counts 0.

        Parley selects the node with the largest sum over the pod's drivers, each times the `scoreWeight` of its
        class. A driver without preferences of its own should rather have `room_left`: then the class's `prefer`
        decides.
        """
        return {}

    def room_left(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, float]:
        """How much a further request of this kind would find on each of these viable nodes once this one is
        allocated there: 0 or more, in what the driver counts. Every node has to be in the result.

        With it, claims are packed unless their class says `prefer: Spread` or is shareable; see
        `Request.prefer`.
        """
        return {}

    def fullest(self, request: Request[P, C]) -> Iterable[str]:
        """All nodes that may be viable, those with the least `room_left` first, generated while Parley iterates.

        With it, packing need not examine every node. Without it, Parley compares the first few viable nodes.
        """
        return ()

    async def allocate(self, request: Request[P, C], node: str) -> Mapping[str, Allocation]:
        """Allocate all claims of the request on the node; what was allocated, by `ClaimRequest.name`. If that
        is not possible, hold nothing and raise.

        Another pod may have been faster since `viable`, so check again, and hold what you allocate before the
        first await. Raise PermanentError if this node will never do. After any other exception Parley tries
        other nodes, and this one again later. Users read the message. `deallocate` follows in either case, in
        case that you were cut off and something is held after all.

        A driver in the controller has 30 s, unless it is `asynchronous`; otherwise the class's
        `allocationTimeoutSeconds` are the limit. Then, and when the pod is gone, the call is cancelled and
        `deallocate` follows. After a restart, an asynchronous driver may be called again for the same claims
        and node: continue there. Apart from that, it is never called for a claim that holds something.
        """
        raise NotImplementedError

    async def deallocate(self, uid: str) -> None:
        """Release what the claim with that UID holds, or abort its allocation. Must be safe to repeat, and
        for a claim that holds nothing. If it raises, nobody may use what the claim holds, and the call is
        repeated after a pause until it returns. A driver in the controller has 30 s, unless it is
        `asynchronous`; then the call is cancelled, and repeated, too."""
        raise NotImplementedError
