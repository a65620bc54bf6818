"""The workspace driver: directories on nodes that pods use one after the other, or side by side.

Here is decided on which node a workspace is, by how much of each node's disk is promised. How large that disk is,
the node part publishes in a ResourceSlice (`parley_kubelet.driver.workspaces`), which also makes the directory,
mounts it, and removes it when the claim ends. See docs/workspaces.md.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from secrets import token_hex
from typing import Any, ClassVar, Final, NamedTuple

from parley.api.builtin import DeviceAttribute, Node, ResourceSlice
from parley.api.quantity import parse
from parley.api.resources import NODES, RESOURCE_SLICES, Resource
from parley.api.wording import bytes_text
from parley.drivers.disks import Disks, PublishedDisk
from parley.drivers.groups import Group, GroupRule, Groups, record, recorded
from parley.drivers.reserves import excess
from parley.drivers.views import Named, ViewRule, Views, misused, name_record, source_of, sources
from parley.drivers.workspace_parameters import WorkspaceClass, WorkspaceParameters
from parley.sdk import (
    Allocation,
    Answer,
    Capacity,
    Cause,
    ClaimRequest,
    ClassOnNodes,
    Device,
    Driver,
    Held,
    Parameters,
    Request,
    Reserve,
    Stranded,
)
from parley.sdk.checks import MAX_ALTERNATIVES

DISK = "workspaces"
"""The one device of a node: the disk that its workspaces are on, with the capacity `size`."""

IMAGES = "images"
"""Its attribute: whether the node can keep a workspace to its size."""

IDENTITY = "identity"
"""The same: which disk it is. Another one does not have what pods left."""

_MI = 1024**2
_GI = 1024**3

SMALLEST_IMAGE: Final = 16 * _MI
"""Bytes: of a smaller file system much would be its own."""


class _Promise(NamedTuple):
    """So many bytes of the node's disk."""

    node: str
    bytes: int


class NoRoom(Exception):
    """Raised when the room that was there at the question is promised to others since."""


WorkspaceRequest = Request[WorkspaceParameters, WorkspaceClass]
WorkspaceClaim = ClaimRequest[WorkspaceParameters, WorkspaceClass]


class WorkspaceDriver(Driver[WorkspaceParameters, WorkspaceClass]):
    """Counts the bytes promised on each node. Whether a workspace may grow beyond its size, its class says."""

    name: ClassVar[str] = "workspace.parley.dev"
    parameters = WorkspaceParameters
    class_parameters = WorkspaceClass
    parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {
        "workspace.parley.dev/v1alpha1": WorkspaceParameters
    }
    class_parameter_versions: ClassVar[Mapping[str, type[Parameters]]] = {
        "workspace.parley.dev/v1alpha1": WorkspaceClass
    }
    node_local: ClassVar[bool] = True
    leaves_data: ClassVar[bool] = True
    watches: ClassVar[tuple[Resource[Any], ...]] = (RESOURCE_SLICES, NODES)

    def __init__(self) -> None:
        self._disks = Disks()
        self._published: defaultdict[str, dict[str, PublishedDisk]] = defaultdict(dict)
        """What each node's slices say, by their names."""
        self._enforcing: set[str] = set()
        """Nodes that can keep a workspace to its size."""
        self._held: dict[str, _Promise] = {}
        self._groups = Groups()
        self._views = Views()

    def observe(self, old: ResourceSlice | Node | None, new: ResourceSlice | Node | None) -> bool:
        """Learn how large the nodes' disks are, and which nodes are near each other."""
        if isinstance(old, Node) or isinstance(new, Node):
            return self._groups.observe(
                old if isinstance(old, Node) else None, new if isinstance(new, Node) else None
            )
        return self._observe_disk(old, new)

    def _observe_disk(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """A node may speak for itself only. Two plugins of an update may make a slice each: the newer counts."""
        before = {node: self._known(node) for node in map(_node, (old, new)) if node}
        for node in before:
            for slice_ in (old, new):
                self._published[node].pop(slice_.metadata.name if slice_ is not None else "", None)
        if new is not None and (node := _node(new)) and new.spec.pool.name == node:
            self._published[node][new.metadata.name] = _published(new)
        for node in before:
            self._take_over(node)
        return before != {node: self._known(node) for node in before}

    def _take_over(self, node: str) -> None:
        newest = self._newest(node)
        self._disks.resize(node, newest.size if newest.size >= 0 else None)
        if newest.enforces:
            self._enforcing.add(node)
        else:
            self._enforcing.discard(node)
        if not self._published.get(node):
            del self._published[node]

    def _newest(self, node: str) -> PublishedDisk:
        return max(self._published.get(node, {}).values(), default=PublishedDisk(-1))

    def _known(self, node: str) -> tuple[int, bool]:
        return self._disks.size(node), node in self._enforcing

    def restore(self, held: Held) -> None:
        """Count a workspace that exists."""
        data = held.data or {}
        if held.node is not None and isinstance(data.get("bytes"), int):
            self._hold(held.uid, held.node, data, restored=True)

    def forget(self, uid: str) -> None:
        """Ordinary DRA took the disk, and gave it back."""
        self._release(uid)

    def viable(self, request: WorkspaceRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        """Where the disk has room for all claims together, near the groups that they are of."""
        search, asked = self._search(request), frozenset(nodes)
        lacking = {node: reason for node in nodes if (reason := search.lacking(node))}
        viable = tuple(node for node in nodes if node not in lacking)
        others = (node for node in search.fullest() if node not in asked)
        answer = Answer(viable, None if viable else tuple(islice(others, MAX_ALTERNATIVES)), lacking)
        return {claim.name: answer for claim in request.claims}

    def has_room(self, request: WorkspaceRequest, node: str) -> bool:
        """Whether the node is viable for all claims."""
        return not self._search(request).lacking(node)

    def has_room_anywhere(self, request: WorkspaceRequest) -> bool:
        """Whether a node is viable for all claims."""
        return next(self.fullest(request), None) is not None

    def alike(self, request: WorkspaceRequest) -> Hashable:
        """A group of another namespace is another one, and so is a claim that is shown."""
        return request.once(_asked).groups, request.once(sources)

    def is_local(self, held: Held) -> bool:
        """When the last member of a group goes, the next one may go to any node."""
        return recorded(held.data or {}) is None

    def uses(self, held: Held) -> Sequence[str]:
        """A view needs what it shows."""
        source = source_of(held.data or {})
        return () if source is None else (source,)

    async def follow(self, changed: Callable[[], None]) -> None:
        """Pods that wait for a view hear when what it is to show is there."""
        await self._views.follow(changed)

    def viable_without(self, request: WorkspaceRequest, node: str, uids: Collection[str]) -> bool:
        """Whether there would be room if the claims with these UIDs had none."""
        return not self._search(request, uids).lacking(node)

    def capacity(self, of: ClassOnNodes[WorkspaceClass]) -> Capacity:
        """In MiB."""
        total = sum(self._disks.size(node) for node in of.nodes)
        free = sum(max(self._disks.free(node), 0) for node in of.nodes)
        return Capacity(total // _MI, free // _MI)

    def stranded(self, claim: WorkspaceClaim, node: str, cause: Cause) -> Stranded:  # noqa: ARG002 - on any node
        """As the class says."""
        class_ = claim.class_parameters
        return Stranded(class_.on_node_unavailable, class_.unavailable_seconds)

    def units(self, claim: WorkspaceClaim) -> int:
        """Limits of a class are in MiB."""
        return -(-_bytes(claim) // _MI)

    def reserves(self, claim: WorkspaceClaim) -> Reserve | None:
        """As the claim says."""
        asked = claim.parameters.reserve
        class_ = claim.class_parameters
        return asked.reserve(class_.hold, class_.yields_to) if asked is not None else None

    def room_left(self, request: WorkspaceRequest, nodes: Sequence[str]) -> Mapping[str, float]:
        """The GiB that are left."""
        return {node: max(self._disks.free(node) - request.once(_asked).wanted, 0) / _GI for node in nodes}

    def fullest(self, request: WorkspaceRequest) -> Iterator[str]:
        """The nodes with the least room that is enough."""
        return self._search(request).fullest()

    async def allocate(self, request: WorkspaceRequest, node: str) -> Mapping[str, Allocation]:
        """Promise the room. Raises NoRoom if another request was faster."""
        if why := self._search(request).lacking(node):
            raise NoRoom(f"node {node}: {why}")
        in_order = sorted(request.claims, key=lambda claim: claim.parameters.source is not None)
        return {claim.name: self._allocation(request.pod.namespace, claim, node) for claim in in_order}

    async def deallocate(self, uid: str) -> None:
        """The room is free: the node has removed the directory."""
        self._release(uid)

    def _allocation(self, namespace: str, claim: WorkspaceClaim, node: str) -> Allocation:
        everywhere = {
            "mountPath": claim.parameters.mount_path,
            "variable": _variable(claim),
            "generated": claim.generated,
        }
        if claim.parameters.source is not None:
            handle = {**everywhere, **self._views.shown(Named(namespace, claim.parameters.source.claim))}
        else:
            name = claim.parameters.group
            handle = {
                "workspace": f"{claim.uid}-{token_hex(4)}",  # a node that was lost may have an earlier one
                "bytes": _bytes(claim),
                **everywhere,
                **(record(Group(namespace, name)) if name else {}),
                **({} if claim.generated else name_record(Named(namespace, claim.claim))),
                **_asked_of_the_node(claim, self._newest(node).identity),
            }
        self._hold(claim.uid, node, handle)
        return Allocation((Device(node, DISK),), handle)

    def _hold(self, uid: str, node: str, handle: Mapping[str, Any], *, restored: bool = False) -> None:
        self._release(uid)
        if source_of(handle) is not None:
            return  # the room is the other's
        promise = self._held[uid] = _Promise(node, handle["bytes"])
        self._disks.promise(node, promise.bytes)
        self._views.hold(uid, node, handle, restored=restored)
        if (group := recorded(handle)) is not None:
            self._groups.hold(uid, group, node)

    def _release(self, uid: str) -> None:
        self._groups.release(uid)
        self._views.release(uid)
        if (promise := self._held.pop(uid, None)) is not None:
            self._disks.promise(promise.node, -promise.bytes)

    def _search(self, request: WorkspaceRequest, without: Collection[str] = ()) -> "_Search":
        """For nodes that will do, as if the claims with the UIDs `without` held nothing."""
        asked = request.once(_asked)
        near = (self._groups.rule(group, key, without) for group, key in asked.groups)
        rules: list[GroupRule | ViewRule] = [*near, *self._views.rules(request)]
        freed: defaultdict[str, int] = defaultdict(int)
        for promise in (self._held[uid] for uid in without if uid in self._held):
            freed[promise.node] += promise.bytes
        only = self._enforcing if asked.enforced else None
        return _Search(self._disks, asked.fault, asked.wanted, rules, freed, only)


class _Asked(NamedTuple):
    """What a request comes to, whatever nodes have. With a `fault` no node will ever do."""

    fault: str
    wanted: int
    groups: tuple[tuple[Group, str], ...]
    enforced: bool


def _asked(request: WorkspaceRequest) -> _Asked:
    wanted, enforced = sum(map(_bytes, request.claims)), any(map(_is_enforced, request.claims))
    return _Asked(_fault(request), wanted, tuple(dict.fromkeys(_groups(request))), enforced)


@dataclass(frozen=True, slots=True)
class _Search:
    """Where a request finds so much room, near its groups. `fault` is why it never will; `freed` is free, too. If
    `enforcing` are given, no other nodes will do."""

    disks: Disks
    fault: str
    wanted: int
    rules: Sequence[GroupRule | ViewRule]
    freed: Mapping[str, int]
    enforcing: Collection[str] | None

    def lacking(self, node: str) -> str:
        """What the node lacks, "" if nothing."""
        near = (why for rule in self.rules if (why := rule.broken_by(node)))
        return self.fault or next(near, "") or self._lacking_room(node)

    def fullest(self) -> Iterator[str]:
        """The nodes that lack nothing, those with the least room first."""
        few = [rule.only for rule in self.rules if rule.only is not None]
        nodes = iter(few[0]) if few else self.disks.fullest(self.wanted)
        return (node for node in (() if self.fault else nodes) if not self.lacking(node))

    def _lacking_room(self, node: str) -> str:
        if node not in self.disks:
            return "has no disk for workspaces: its node plugin publishes none"
        if self.enforcing is not None and node not in self.enforcing:
            return "can't keep workspaces to their sizes (enforce=Image): its node plugin has no loop devices"
        free = max(self.disks.free(node) + self.freed.get(node, 0), 0)
        if self.wanted <= free:
            return ""
        left, size = bytes_text(free), bytes_text(self.disks.size(node))
        return f"{left} of {size} free for workspaces, {bytes_text(self.wanted)} wanted"


def _node(slice_: ResourceSlice | None) -> str:
    """Which node's disk it is about, "" if none's."""
    return slice_.spec.node_name if slice_ is not None and slice_.spec.driver == WorkspaceDriver.name else ""


def _published(slice_: ResourceSlice) -> PublishedDisk:
    generation = slice_.spec.pool.generation
    for device in slice_.spec.devices:
        if device.name == DISK and "size" in device.capacity:
            size, told = int(parse(device.capacity["size"].value)), device.attributes
            enforces, identity = (told.get(name, DeviceAttribute()) for name in (IMAGES, IDENTITY))
            return PublishedDisk(generation, size, bool(enforces.bool_), identity.string or "")
    return PublishedDisk(generation)


def _groups(request: WorkspaceRequest) -> Iterator[tuple[Group, str]]:
    """The groups that the request's claims are of, each with the topology key of its claim's class."""
    for claim in request.claims:
        if claim.parameters.group:
            yield Group(request.pod.namespace, claim.parameters.group), claim.class_parameters.topology_key


def _fault(request: WorkspaceRequest) -> str:
    """Why no node will ever do, "" if that is not so."""
    for claim in request.claims:
        if fault := misused(claim, request):
            return fault
        most = claim.class_parameters.max_size
        if most is not None and _bytes(claim) > parse(most):
            asked = claim.parameters.size or claim.class_parameters.default_size
            return f"size={asked} of claim {claim.claim} is more than maxSize={most} of class {claim.class_name}"
        if _is_enforced(claim) and _bytes(claim) < SMALLEST_IMAGE:
            asked = claim.parameters.size or claim.class_parameters.default_size
            return f"size={asked} of claim {claim.claim} is too small for a file system: request 16Mi or more"
        if fault := excess(claim.parameters.reserve, claim.class_parameters.max_reserve, claim):
            return fault
        if claim.parameters.reclaim == "Retain" and not claim.class_parameters.retain_at_most:
            return (
                f"reclaim=Retain of claim {claim.claim}: class {claim.class_name} retains nothing: set "
                "retainAtMost in the class, or leave reclaim out"
            )
    paths = (("mountPath", claim.parameters.mount_path, claim.claim) for claim in request.claims)
    variables = (("variable", _variable(claim), claim.claim) for claim in request.claims)
    taken: dict[tuple[str, str], str] = {}
    for field, value, name in (*paths, *variables):
        if (other := taken.setdefault((field, value), name)) != name:
            return f"claims {other} and {name} have the same {field}={value}: change that of one of them"
    return ""


def _asked_of_the_node(claim: WorkspaceClaim, identity: str) -> Mapping[str, Any]:
    """What the handle has beside what every handle has. What may start over anywhere may do so on another disk."""
    wanted, class_ = claim.parameters, claim.class_parameters
    stays = identity and not claim.generated and class_.on_node_unavailable != "Recreate"
    return {
        **({"disk": identity} if stays else {}),
        **({"owner": class_.owner.model_dump()} if class_.owner is not None else {}),
        **({"readOnly": True} if wanted.read_only else {}),
        **({"retain": class_.retain_at_most} if wanted.reclaim == "Retain" else {}),
        **({"enforce": class_.enforce} if class_.enforce != "Watch" else {}),
    }


def _bytes(claim: WorkspaceClaim) -> int:
    """A view needs none: it shows another's."""
    if claim.parameters.source is not None:
        return 0
    return -int(-parse(claim.parameters.size or claim.class_parameters.default_size) // 1)


def _is_enforced(claim: WorkspaceClaim) -> bool:
    return claim.class_parameters.enforce == "Image" and claim.parameters.source is None


def _variable(claim: WorkspaceClaim) -> str:
    """The variable that has the path in containers."""
    name = claim.name if claim.generated else claim.claim
    return claim.parameters.variable or f"WORKSPACE_{re.sub('[^A-Z0-9]', '_', name.upper())}_PATH"
