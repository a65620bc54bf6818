"""The interface between Parley and the driver of a resource.

Parley decides which nodes to ask about, when to allocate and when to give back; a driver knows what it has
and where. A driver keeps its state in memory: at start Parley calls `restore` for each allocation, later it is
called for its own allocations, for foreign ones (`restore` again) and for changes of the objects it watches.

All methods that are not `async` are called from one event loop and must return at once.

What a method raises concerns the claim or the pod that it was called for: its users see it in an event or
condition, it is called again after a growing pause, and all else goes on (`parley.sdk.embedded`). A `restore` that
raises leaves the driver not knowing what a claim holds: on that claim's node (everywhere, if it has none) it is
asked to allocate nothing, and devices that the record names it can give to nobody, until the claim is released.

A driver whose answers or allocations take longer than a moment is `asynchronous`: it is asked through API
objects (`parley.sdk.standalone`), in the controller as in a process of its own, and nobody else waits for it.
"""

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
    """Base of a driver's parameters: camelCase on the wire; an unknown field is an error, it may be a typo.

    Tenants write them. A text has at most MAX_TEXT characters; give numbers that are computed with a limit, too.
    """

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid", str_max_length=MAX_TEXT
    )

    def newest(self) -> "Parameters":
        """The same in the newest version of the driver's parameters; a model of an older one overrides it."""
        return self


class NoParameters(Parameters):
    """For a driver without parameters."""


P = TypeVar("P", bound=Parameters)
C = TypeVar("C", bound=Parameters)


@dataclass(frozen=True, slots=True)
class PodReference:
    """The pod that a request is for."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ClaimRequest(Generic[P, C]):
    """One pending claim: `name` is the pod's entry for it, `uid` and `claim` the object's UID and name. If
    `generated` it was made from a template for the pod alone, and goes with it."""

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
    """All pending claims of one pod that this driver serves. They are evaluated and allocated together.

    `progress` takes a short sentence about how far an allocation is ("attached, formatting"); an asynchronous
    driver's users read it in the claims' conditions. `prefer` is what the claims' classes prefer: Parley goes by
    it where the driver has no `score` of its own. `seen` is what the pod is like, for a driver that `sees_pods`;
    None for a claim that is allocated without a pod.
    """

    pod: PodReference
    claims: tuple[ClaimRequest[P, C], ...]
    progress: Callable[[str], None] = field(default=_discard, compare=False, repr=False)
    prefer: Prefer = "Spread"
    seen: SeenPod | None = None


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device by the names of its pool and itself: lower-case DNS names, as in ResourceSlices."""

    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class ClassOnNodes(Generic[C]):
    """A class by name, with its typed parameters, and the nodes where it can be had: its `suitableNodes`."""

    name: str
    parameters: C
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of a class there is, and how much of that nobody holds, in what the driver counts."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """Room on a claim's node for the pods that use it: `amounts` as Kubernetes writes them, by resource name
    (`{"cpu": "2", "memory": "4Gi"}`), and so many `pods`.

    `hold` says who is kept out of what is unused: with `Ledger` all pods that Parley judges, with `Nominated` also
    those that only the scheduler judges, by reservation pods.

    `yields_to` are names of at most 16 ResourceClasses, of any driver: a pod with a claim of such a class may use
    what no user of this claim uses, in any namespace, until it ends. So let administrators set it, in the class.
    """

    amounts: Mapping[str, str] = field(default_factory=dict)
    pods: int = 0
    hold: Hold = "Ledger"
    yields_to: tuple[str, ...] = ()

    def thousandths(self) -> dict[str, int]:
        """All of it by resource name, in thousandths, without what is zero. Raises ValueError."""
        found = {name: thousandths(amount) for name, amount in self.amounts.items()}
        return {name: amount for name, amount in {**found, "pods": 1000 * self.pods}.items() if amount}


@dataclass(frozen=True, slots=True)
class Allocation:
    """What was allocated for one claim: at most 32 devices, and `data` for the node part (10 KiB as JSON).

    `available_on` are the nodes where it can be used, at most 128: none named is the node that it was allocated
    for and no other, None is everywhere. `NodeLabels({"topology.kubernetes.io/zone": "a"})` are all nodes that
    have these labels, also those that come later; one that loses them takes no new users. `reserve` is what is
    kept on that node for the claim's users: Parley sets it, from `Driver.reserves`.
    """

    devices: tuple[Device, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    available_on: AvailableOn = ()
    reserve: Reserve | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An allocation that exists in the API. `node` is the one it was allocated for, None if that is not known.

    `data` is what `allocate` gave, or None if it was not made by Parley (ordinary DRA took a device of this
    driver's): then the devices are simply in use.
    """

    uid: str
    node: str | None
    devices: tuple[Device, ...]
    data: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Stranded:
    """What becomes of a named claim whose only node takes no pods, once that has lasted for `after_seconds`.

    Wait: pods wait for the node. Fail: no further pod may use the claim, also if the node comes back. Recreate: if
    the node was deleted or is out of service, and no pod uses the claim, it is deallocated, and allocated anew for
    the next pod; until then pods wait.
    """

    way: Literal["Wait", "Fail", "Recreate"] = "Wait"
    after_seconds: float = 0.0


class PermanentError(Exception):
    """Raise from `allocate` when trying again on this node is of no use for this request.

    The node is excluded for this pod, or the pod is failed: see `onPermanentError` of the class.
    """


class Driver(Generic[P, C]):
    """Base class of drivers; `viable`, `allocate` and `deallocate` are the ones to write."""

    name: ClassVar[str]
    """The driver's name as in `ResourceClass.driverName`: a DNS subdomain of at most 63 characters."""

    parameters: type[P]
    class_parameters: type[C]
    parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {}
    """The models of claims' parameters by `apiVersion`, the oldest first; `parameters` is the newest. What a claim
    without `apiVersion` has is of the oldest. Empty: they have no version."""
    class_parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {}
    """The same for classes' parameters."""
    parameter_kinds: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds of objects whose `spec` may hold parameters, for `parametersRef` to name; ConfigMaps always may."""
    asynchronous: ClassVar[bool] = False
    """Whether questions or allocations may take longer than a moment: then `consider` is asked, not `viable`."""
    node_local: ClassVar[bool] = False
    """Whether what is released on a node changes the answers about that node alone: then pods that can't go
    there are left in peace."""
    leaves_data: ClassVar[bool] = False
    """Whether pods leave something on a node, a directory say, that outlives them. When a named claim ends, its
    node's plugin is asked to remove it (`NodeDriver.remove_data`); then what was allocated is free for others."""
    sees_pods: ClassVar[bool] = False
    """Whether requests say what their pods are like (`Request.seen`). Pods that differ in any of that are never
    taken for alike. In the controller only."""
    watches: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds of objects whose changes `observe` gets, from the first list on."""

    def see(self, cluster: SeenCluster) -> None:
        """Gets the cluster's nodes, to look at whenever it is asked: called once, before anything is restored, in
        the controller only. A change of what it sees there wakes no pod by itself."""

    def observe(self, old: Any | None, new: Any | None) -> bool | Collection[str]:
        """A watched object appeared (old is None), changed, or vanished (new is None).

        Returns whether pods that wait for this driver may now succeed, or the names of the nodes on which they
        may: then only those look again at once for which `has_room` says that one of these may be viable.
        """
        return False

    async def follow(self, changed: Callable[[], None]) -> None:
        """Watch whatever is not in the API (a provider's own events) as long as the driver runs.

        Call `changed` when pods that wait for this driver may now succeed. Starts once everything is restored.
        """

    def restore(self, held: Held) -> None:
        """Count an allocation that exists in the API. Idempotent by `held.uid`."""
        raise NotImplementedError

    def forget(self, uid: str) -> None:
        """A foreign allocation that `restore` counted is gone. Idempotent."""
        raise NotImplementedError

    def viable(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """An answer for each of the request's claims, by `ClaimRequest.name`. Has no side effects."""
        raise NotImplementedError

    def has_room(self, request: Request[P, C], node: str) -> bool:
        """Whether the node may be viable for all of the request's claims. In doubt it is: then `viable` is asked.

        Asked about each node that changed for all that wait, so write one of your own if `viable` takes long.
        """
        return all(node in answer.viable for answer in self.viable(request, (node,)).values())

    def has_room_anywhere(self, request: Request[P, C]) -> bool:
        """Whether any node may be viable for all of the request's claims. In doubt one is: then `viable` is asked.

        Asked for all that wait whenever something that is tied to no node was given back: write one of your own if
        you hand out such things.
        """
        return True

    def alike(self, request: Request[P, C]) -> Hashable:
        """What the answers to the request depend on beside the classes and parameters of its claims, its pod's
        namespace say. Pods whose requests are equal in all of it wait in one line: if the first can't be served,
        the others are not asked about. Has no side effects.
        """
        return None

    def is_local(self, held: Held) -> bool:
        """Whether giving this back changes the answers about its node alone, as `node_local` says of all."""
        return self.node_local

    def viable_without(self, request: Request[P, C], node: str, uids: Collection[str]) -> bool:
        """Whether the node would be viable for all of the request's claims if the claims with these UIDs held
        nothing. Has no side effects.

        Asked before pods are evicted for what they hold (`preemption` of a class); the claims may be several
        pods'. For claims of a driver without this method nobody is evicted.
        """
        raise NotImplementedError

    async def consider(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """As `viable`, for an asynchronous driver that has to ask somebody first. It has 30 s.

        After a restart it is also asked about the node where an immediate claim's allocation was begun, and goes
        on there only if that is viable: what the claim itself holds there by then should count as free.
        """
        return self.viable(request, nodes)

    def units(self, claim: ClaimRequest[P, C]) -> int:
        """How much of a class's `limits[].units` the claim takes up."""
        return 1

    def reserves(self, claim: ClaimRequest[P, C]) -> Reserve | None:
        """What is to be kept on the claim's node for the pods that use it, from its allocation to its end.

        Only nodes that have it are viable; what the users request counts against it first. Asked of drivers in the
        controller, about claims that several pods can name; these must be usable on one node alone. Has no side
        effects.
        """
        return None

    def uses(self, held: Held) -> Sequence[str]:
        """UIDs of named claims of this driver, in the allocation's namespace, that it needs to be there: it shows
        what they have, say. They stay allocated at least as long as this one. Has no side effects. Those of the
        same request must use nothing themselves.

        Asked of drivers in the controller, when something was allocated or is restored, and with the same answer.
        """
        return ()

    def capacity(self, of: ClassOnNodes[C]) -> Capacity | None:
        """What the class has on its nodes; None if that is not known.

        Users read it in the class's status. Asked every few seconds while something changes.
        """
        return None

    def stranded(self, claim: ClaimRequest[P, C], node: str, cause: Cause) -> Stranded:
        """What becomes of a named claim that is allocated on a node that takes no pods. Has no side effects.

        Asked when the node or the claim changes, and when `after_seconds` are over; a driver in a process of its
        own, or an asynchronous one, is not asked. The claim's `name` is that of the object.
        """
        return Stranded()

    def score(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, float]:
        """Preference among viable nodes, 0 (worst) to 1; a node not named counts 0.

        A driver that has none of its own may have `room_left`: then the class's `prefer` decides.
        """
        return {}

    def room_left(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, float]:
        """How much a further request of the kind would find on each of these viable nodes once this one is
        allocated there: 0 or more, in what the driver counts.

        With it, claims are packed unless their class says `prefer: Spread`: see `Request.prefer`.
        """
        return {}

    def fullest(self, request: Request[P, C]) -> Iterable[str]:
        """Nodes that may be viable, those with the least `room_left` first; made as it is iterated over.

        So that packing need not look at every node. Parley asks the other nodes after these, in its own order;
        without such an order it compares the first few viable ones.
        """
        return ()

    async def allocate(self, request: Request[P, C], node: str) -> Mapping[str, Allocation]:
        """Allocate all claims of the request on the node, or none and raise.

        What is allocated must be out of reach for others from the first await on. Raises PermanentError if
        this node will never do; any other exception is tried again. Never called for a claim that holds something.
        It may be cancelled (the pod is gone, the class's `allocationTimeoutSeconds` are over), and `deallocate`
        follows.
        An asynchronous driver may be called again for the same claims and node after a restart: go on from there.
        """
        raise NotImplementedError

    async def deallocate(self, uid: str) -> None:
        """Give back what the claim with that UID holds, or abort its allocation. Idempotent."""
        raise NotImplementedError
