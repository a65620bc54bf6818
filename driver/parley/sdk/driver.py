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

    Parley decides which nodes to ask about, when to allocate and when to deallocate. A driver knows which
    resources it has, and on which nodes. It keeps its state in memory: at start, Parley calls `restore` for each
    allocation that the API has.

    Set `name`, `parameters` and `class_parameters` (the models; NoParameters if there are none), and write
    `viable`, `allocate`, `deallocate`, `restore` and `forget`. Everything else has a default. A class that a
    command names (`module:Class`) is instantiated without arguments, so read its settings from the environment or
    from files.

    All methods are called from one event loop, so a driver needs no locks between two awaits. Methods that are
    not `async` must return at once. If answers or allocations take longer than a moment, make the driver
    `asynchronous`: it is asked through API objects, in the controller as in a process of its own, and other
    pods don't wait for it.

    An exception from a method affects only the claim or the pod that it was called for. Their users see the
    message in an event or condition, the call is repeated with back-off, and everything else goes on. If `restore`
    raises, it is unknown what the claim holds: until the claim is released, nothing is allocated on its node
    (nowhere, if it can be used on several), nor any device that its record names.

    Parley uses these only for drivers in the controller that are not `asynchronous`: `see`, `users_changed`,
    `sees_pods`, `leaves_data`, `units`, `viable_without`, `reserves`, `uses`, `stranded`, `alike`, `has_room`,
    `has_room_anywhere` and `is_local`. It uses `capacity` for all drivers in the controller.
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
    """Whether a release on a node changes the answers about that node alone. Then it wakes no pods that can't go
    there."""
    leaves_data: ClassVar[bool] = False
    """Whether pods leave data on a node that outlives them, such as a directory. When a named claim ends, its
    node's plugin is asked to remove the data (`NodeDriver.remove_data`); only then the allocation is free for
    others."""
    sees_pods: ClassVar[bool] = False
    """Whether requests describe their pods (`Request.seen`). Pods that differ in any of that never wait in
    one line (`alike`)."""
    watches: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds of objects whose changes `observe` gets. It gets all that exist before the first call of `viable`. The
    account of the process has to be allowed to list and watch them; that of `parley driver permissions` may
    do so for Nodes and ResourceSlices."""

    def see(self, cluster: SeenCluster) -> None:
        """Gets a view of the cluster's nodes, to read in any later call. Called once, before anything is restored.
        A change in the view wakes no pod by itself."""

    def users_changed(self, uid: str) -> None:
        """A pod began to use what the driver allocated for the claim, or a user ended. `SeenCluster.users` (see
        `see`) has the users now, which may be none where a class keeps claims without users.

        Also called after `allocate`, and at start after `restore`; not when the claim ends, which is `deallocate`.
        """

    def observe(self, old: Any | None, new: Any | None) -> bool | Collection[str]:
        """An object of `watches` appeared (old is None), changed, or vanished (new is None).

        Returns whether pods that wait for this driver may now succeed, or the names of the nodes on which they
        may: then only those pods are woken for which `has_room` says that one of these nodes may be viable.
        """
        return False

    async def follow(self, changed: Callable[[], None]) -> None:
        """Watch sources outside the API, such as a provider's own events, as long as the driver runs.

        Call `changed`, from any thread, when pods that wait for this driver may now succeed. Starts after all
        restoring. If it raises, it is called again after a pause of 1 s to 5 minutes; if it returns, it is not.
        """

    def restore(self, held: Held) -> None:
        """Count an allocation that exists in the API. Must be safe to repeat for the same `held.uid`.

        Called for all allocations at start, before any other question; later for allocations that others made,
        such as ordinary DRA. `held.data` may be of an older version of the driver.
        """
        raise NotImplementedError

    def forget(self, uid: str) -> None:
        """Stop counting an allocation that others made, and `restore` counted: it is gone. Must be safe to
        repeat."""
        raise NotImplementedError

    def viable(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """An answer for each of the request's claims, by `ClaimRequest.name`; see `Answer`. Has no side
        effects.

        `nodes` are names, in no particular order; there may be thousands. Pods are bound only where all of their
        claims are viable, so usually all claims of a request get the same answer.
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

        Asked for the pods that wait, whenever an allocation is released that is tied to no node: override it if
        the driver makes such allocations.
        """
        return True

    def alike(self, request: Request[P, C]) -> Hashable:
        """A key of all that the answers depend on besides the classes and parameters of the claims, for example
        the pod's namespace. Has no side effects.

        Pods whose requests are equal in all of this wait in one line: if the first can't be served, Parley does
        not ask about the others.
        """
        return None

    def is_local(self, held: Held) -> bool:
        """Whether releasing this allocation changes the answers about its node alone. Override it if that
        differs between allocations; by default `node_local` holds for all of them."""
        return self.node_local

    def viable_without(self, request: Request[P, C], node: str, uids: Collection[str]) -> bool:
        """Whether the node would be viable for all of the request's claims if the claims with these UIDs, which
        may be of several pods, held nothing. Has no side effects.

        Asked before pods are evicted to free their claims (`preemption` of a class). If a driver does not
        override it, no pod is evicted for its claims.
        """
        raise NotImplementedError

    async def consider(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, Answer]:
        """The same as `viable`, for an asynchronous driver that has to ask another system first. It has 30 s.

        After a restart it is also called for an immediate claim and the node where its allocation had begun,
        which continues only if that node is viable. So count what the claim itself already holds there as free.

        If no node is viable and you give no alternatives, it is called for the pod's other nodes too, at most 128
        at a time, whenever something has changed while the pod waits.
        """
        return self.viable(request, nodes)

    def units(self, claim: ClaimRequest[P, C]) -> int:
        """How much of a class's `limits[].units` the claim uses: a whole number, 0 or more."""
        return 1

    def reserves(self, claim: ClaimRequest[P, C]) -> Reserve | None:
        """Room to reserve on the claim's node for the pods that use the claim, from its allocation to its end;
        None for none. Has no side effects.

        Only nodes that have this room are viable, and the users' requests count against it first. Asked about
        named claims, which must then be usable on one node alone (`Allocation.available_on`).
        """
        return None

    def uses(self, held: Held) -> Sequence[str]:
        """UIDs of the named claims that this allocation needs, at most 32: for example, because it gives access to
        their data. They are of this driver and of the same namespace. Has no side effects.

        They stay allocated at least as long as this allocation. If one of them is of the same request, it must
        use nothing itself. Asked when something is allocated and when it is restored, and the answer must be
        the same.
        """
        return ()

    def capacity(self, of: ClassOnNodes[C]) -> Capacity | None:
        """How much of the class there is on its nodes, and how much is free; None if unknown. Has no side effects.

        Users read it in the class's status and in `parley get classes`. Asked every few seconds while something
        changes.
        """
        return None

    def stranded(self, claim: ClaimRequest[P, C], node: str, cause: Cause) -> Stranded:
        """How to treat a named claim that is allocated on a node that takes no pods; `cause` says why the node
        takes none. Has no side effects.

        Asked when the node or the claim changes, and when `after_seconds` are over. `claim.name` is here the
        claim's own name, because the call is not for a pod.
        """
        return Stranded()

    def score(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, float]:
        """Preferences among these viable nodes, each 0 (worst) to 1; a node that is left out counts 0.

        Parley selects the node with the largest sum over the pod's drivers, each times the `scoreWeight` of its
        class. A driver without preferences of its own should override `room_left` instead: then the class's
        `prefer` decides.
        """
        return {}

    def room_left(self, request: Request[P, C], nodes: Sequence[str]) -> Mapping[str, float]:
        """How much would be left on each of these viable nodes, for further requests of this kind, once this one
        is allocated there: 0 or more, in the driver's own unit. Every node has to be in the result.

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
        """Allocate all claims of the request on the node. Returns the allocations by `ClaimRequest.name`. If that
        is not possible, hold nothing and raise.

        Another pod may have been faster since `viable`, so check again, and hold what you allocate before the
        first await. Raise PermanentError if the request can never be allocated on this node. After any other
        exception Parley tries other nodes, and this one again later. Users read the message. `deallocate` follows
        in either case, because the call may have been cut off while it held something.

        A driver in the controller has 30 s, unless it is `asynchronous`; otherwise the class's
        `allocationTimeoutSeconds` are the limit. Then, and when the pod is gone, the call is cancelled and
        `deallocate` follows. After a restart, an asynchronous driver may be called again for the same claims
        and node: continue there. Apart from that, it is never called for a claim that holds something.
        """
        raise NotImplementedError

    async def deallocate(self, uid: str) -> None:
        """Release what the claim with that UID holds, or abort its allocation. Must be safe to repeat, and
        for a claim that holds nothing. If it raises, the claim's resources stay in use, and the call is
        repeated after a pause until it returns. A driver in the controller has 30 s, unless it is
        `asynchronous`; after that the call is cancelled, and repeated, too."""
        raise NotImplementedError
