"""The interface between Parley and the driver of a resource."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic

from parley.api.resources import Resource
from parley.negotiation.answers import Answer
from parley.negotiation.stranded import Cause
from parley.sdk.sight import SeenCluster
from parley.sdk.values import (
    Allocation,
    C,
    Capacity,
    ClaimRequest,
    ClassOnNodes,
    Held,
    P,
    Parameters,
    Request,
    Reserve,
    Stranded,
)


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
