"""The workspace driver: directories on nodes that pods use one after the other, or side by side.

The driver selects the node of a workspace by how much of each node's disk is promised. The node part
(`parley_kubelet.driver.workspaces`) publishes the size of the disk in a ResourceSlice, creates the directory,
mounts it, and removes it when the claim ends. See docs/workspaces.md.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from secrets import token_hex
from typing import Any, ClassVar, Final, NamedTuple

from parley.api.builtin import DeviceAttribute, Node, ResourceSlice
from parley.api.quantity import parse
from parley.api.resources import NODES, RESOURCE_SLICES, Resource
from parley.drivers.disks import Disks, PublishedDisk
from parley.drivers.groups import Group, GroupRule, Groups, record, recorded
from parley.drivers.reserves import excess
from parley.drivers.views import Named, ViewRule, Views, misused, name_record, source_of, sources
from parley.drivers.workspace_parameters import WorkspaceClass, WorkspaceParameters
from parley.drivers.workspace_search import WorkspaceSearch
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
"""The name of a node's one device: the disk that has its workspaces, with the capacity `size`."""

IMAGES = "images"
"""The device's attribute that says whether the node can limit a workspace to its size."""

IDENTITY = "identity"
"""The device's attribute that identifies the disk: another disk does not have the data that pods left."""

_MI = 1024**2
_GI = 1024**3

SMALLEST_IMAGE: Final = 16 * _MI
"""Bytes: a smaller file system would need much of its space for itself."""


class _Promise(NamedTuple):
    """The bytes of a node's disk that are promised to a claim."""

    node: str
    bytes: int


class NoRoom(Exception):
    """Raised when the room that was free when the driver was asked has been promised to others since."""


WorkspaceRequest = Request[WorkspaceParameters, WorkspaceClass]
WorkspaceClaim = ClaimRequest[WorkspaceParameters, WorkspaceClass]


class WorkspaceDriver(Driver[WorkspaceParameters, WorkspaceClass]):
    """Counts the bytes promised on each node. The class says whether a workspace may grow beyond its size."""

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
        """The disks in each node's slices, by the slices' names."""
        self._enforcing: set[str] = set()
        """Nodes that can limit a workspace to its size."""
        self._held: dict[str, _Promise] = {}
        self._groups = Groups()
        self._views = Views()

    def observe(self, old: ResourceSlice | Node | None, new: ResourceSlice | Node | None) -> bool:
        """Takes over the sizes of the nodes' disks, and the labels of nodes, which decide about groups."""
        if isinstance(old, Node) or isinstance(new, Node):
            changed = self._groups.observe(
                old if isinstance(old, Node) else None, new if isinstance(new, Node) else None
            )
            if changed:
                self._disks.forget_most_free()
            return changed
        return self._observe_disk(old, new)

    def _observe_disk(self, old: ResourceSlice | None, new: ResourceSlice | None) -> bool:
        """A node may publish its own disk only. Of two slices, as in an update of the plugin, the newer counts."""
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
        """Counts a workspace that exists."""
        data = held.data or {}
        if held.node is not None and isinstance(data.get("bytes"), int):
            self._hold(held.uid, held.node, data, restored=True)

    def forget(self, uid: str) -> None:
        """Forgets an allocation of the disk by ordinary DRA."""
        self._release(uid)

    def viable(self, request: WorkspaceRequest, nodes: Sequence[str]) -> Mapping[str, Answer]:
        """A node is viable if its disk has room for all claims together, and their groups allow it."""
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
        return self._search(request).has_room_anywhere()

    def alike(self, request: WorkspaceRequest) -> Hashable:
        """The groups and the sources of views: both are those of the pod's namespace."""
        return request.once(_asked).groups, request.once(sources)

    def is_local(self, held: Held) -> bool:
        """False for members of groups: when the last one is released, the next one may use any node."""
        return recorded(held.data or {}) is None

    def uses(self, held: Held) -> Sequence[str]:
        """A view needs its source."""
        source = source_of(held.data or {})
        return () if source is None else (source,)

    async def follow(self, changed: Callable[[], None]) -> None:
        """Wakes pods with views when the workspaces that these show are allocated."""
        await self._views.follow(changed)

    def viable_without(self, request: WorkspaceRequest, node: str, uids: Collection[str]) -> bool:
        """Whether the node would be viable if the claims with these UIDs held nothing."""
        return not self._search(request, uids).lacking(node)

    def capacity(self, of: ClassOnNodes[WorkspaceClass]) -> Capacity:
        """The size and the free space of these nodes' disks, in MiB."""
        total = sum(self._disks.size(node) for node in of.nodes)
        free = sum(max(self._disks.free(node), 0) for node in of.nodes)
        return Capacity(total // _MI, free // _MI)

    def stranded(self, claim: WorkspaceClaim, node: str, cause: Cause) -> Stranded:  # noqa: ARG002 - on any node
        """The treatment that the class says."""
        class_ = claim.class_parameters
        return Stranded(class_.on_node_unavailable, class_.unavailable_seconds)

    def units(self, claim: WorkspaceClaim) -> int:
        """The size in MiB: the limits of a class count these."""
        return -(-_bytes(claim) // _MI)

    def reserves(self, claim: WorkspaceClaim) -> Reserve | None:
        """The room that the claim says, held as its class says."""
        asked = claim.parameters.reserve
        class_ = claim.class_parameters
        return asked.reserve(class_.hold, class_.yields_to) if asked is not None else None

    def room_left(self, request: WorkspaceRequest, nodes: Sequence[str]) -> Mapping[str, float]:
        """The free space that is left, in GiB."""
        return {node: max(self._disks.free(node) - request.once(_asked).wanted, 0) / _GI for node in nodes}

    def fullest(self, request: WorkspaceRequest) -> Iterator[str]:
        """The nodes with enough room, those with the least first."""
        return self._search(request).fullest()

    async def allocate(self, request: WorkspaceRequest, node: str) -> Mapping[str, Allocation]:
        """Promises the room. Raises NoRoom if another request was faster."""
        if why := self._search(request).lacking(node):
            raise NoRoom(f"node {node}: {why}")
        in_order = sorted(request.claims, key=lambda claim: claim.parameters.source is not None)
        return {claim.name: self._allocation(request.pod.namespace, claim, node) for claim in in_order}

    async def deallocate(self, uid: str) -> None:
        """Frees the room: the node has removed the directory."""
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
                "workspace": f"{claim.uid}-{token_hex(4)}",  # a lost node may still have an earlier directory
                "bytes": _bytes(claim),
                **everywhere,
                **(record(Group(namespace, name)) if name else {}),
                **({} if claim.generated else name_record(Named(namespace, claim.claim))),
                **_node_instructions(claim, self._newest(node).identity),
            }
        self._hold(claim.uid, node, handle)
        return Allocation((Device(node, DISK),), handle)

    def _hold(self, uid: str, node: str, handle: Mapping[str, Any], *, restored: bool = False) -> None:
        self._release(uid)
        if source_of(handle) is not None:
            return  # the source holds the room
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

    def _search(self, request: WorkspaceRequest, without: Collection[str] = ()) -> WorkspaceSearch:
        """A search for viable nodes, as if the claims with the UIDs `without` held nothing."""
        asked = request.once(_asked)
        near = (self._groups.rule(group, key, without) for group, key in asked.groups)
        rules: list[GroupRule | ViewRule] = [*near, *self._views.rules(request)]
        freed: defaultdict[str, int] = defaultdict(int)
        for promise in (self._held[uid] for uid in without if uid in self._held):
            freed[promise.node] += promise.bytes
        only = self._enforcing if asked.enforced else None
        return WorkspaceSearch(self._disks, asked.fault, asked.wanted, rules, freed, only)


class _Asked(NamedTuple):
    """What a request needs, independent of nodes. With a `fault` no node can ever be viable."""

    fault: str
    wanted: int
    groups: tuple[tuple[Group, str], ...]
    enforced: bool


def _asked(request: WorkspaceRequest) -> _Asked:
    wanted, enforced = sum(map(_bytes, request.claims)), any(map(_is_enforced, request.claims))
    return _Asked(_fault(request), wanted, tuple(dict.fromkeys(_groups(request))), enforced)


def _node(slice_: ResourceSlice | None) -> str:
    """The node whose disk the slice is about, "" if it is not a slice of this driver."""
    return slice_.spec.node_name if slice_ is not None and slice_.spec.driver == WorkspaceDriver.name else ""


def _published(slice_: ResourceSlice) -> PublishedDisk:
    generation = slice_.spec.pool.generation
    for device in slice_.spec.devices:
        if device.name == DISK and "size" in device.capacity:
            size, attributes = int(parse(device.capacity["size"].value)), device.attributes
            enforces, identity = (attributes.get(name, DeviceAttribute()) for name in (IMAGES, IDENTITY))
            return PublishedDisk(generation, size, bool(enforces.bool_), identity.string or "")
    return PublishedDisk(generation)


def _groups(request: WorkspaceRequest) -> Iterator[tuple[Group, str]]:
    """The groups of the request's claims, each with the topology key of its claim's class."""
    for claim in request.claims:
        if claim.parameters.group:
            yield Group(request.pod.namespace, claim.parameters.group), claim.class_parameters.topology_key


def _fault(request: WorkspaceRequest) -> str:
    """Why no node can ever be viable for the request, "" if nodes can."""
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


def _node_instructions(claim: WorkspaceClaim, identity: str) -> Mapping[str, Any]:
    """The optional fields of the handle. A claim that may start over on any node may also use another disk."""
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
    """The room that the claim needs; 0 for a view."""
    if claim.parameters.source is not None:
        return 0
    return -int(-parse(claim.parameters.size or claim.class_parameters.default_size) // 1)


def _is_enforced(claim: WorkspaceClaim) -> bool:
    return claim.class_parameters.enforce == "Image" and claim.parameters.source is None


def _variable(claim: WorkspaceClaim) -> str:
    """The environment variable that has the path in containers."""
    name = claim.name if claim.generated else claim.claim
    return claim.parameters.variable or f"WORKSPACE_{re.sub('[^A-Z0-9]', '_', name.upper())}_PATH"
