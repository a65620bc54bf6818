"""Data that only the page shows: all pods with claims, and details of a class and a node. No I/O.

The rest is what `parley explain` and `parley get` show.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parley.api.builtin import Pod, Taint
from parley.api.models import Limit, ResourceClass
from parley.api.wording import counted
from parley.control.claims.gathering import gather
from parley.control.holding import Holding
from parley.control.objects.mirror import is_mirror
from parley.explain import overview
from parley.explain.explaining import state_of
from parley.explain.overview import ClassRow, UseRow, WaitRow
from parley.explain.snapshot import Snapshot
from parley.sdk import Device

STATES = ("waits", "gated", "deleting", "bound", "ended")
"""Of pods, in the order in which they are listed."""


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod with claims of Parley's. `code` and `message` are of its wait, `ahead` how many wait longer for one of
    the same classes, `since` when it was made."""

    namespace: str
    name: str
    state: str
    code: str
    message: str
    node: str
    since: str
    classes: tuple[str, ...]
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device of a node. `holders` are pods that use it, or "" for claims that no pod uses now; `claims` are
    their claims."""

    driver: str
    pool: str
    device: str
    holders: tuple[str, ...]
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """A node: whether it takes pods, its published devices, and the users of claims there."""

    name: str
    unschedulable: bool
    taints: tuple[str, ...]
    devices: tuple[DeviceRow, ...]
    uses: tuple[UseRow, ...]


@dataclass(frozen=True, slots=True)
class ClassDetails:
    """A class: its overview row, the users of its claims, and the pods that wait for it, oldest first."""

    row: ClassRow
    shareable: bool
    limits: tuple[str, ...]
    uses: tuple[UseRow, ...]
    waiting: tuple[WaitRow, ...]


def pods(snapshot: Snapshot, line: list[WaitRow]) -> list[PodRow]:
    """All pods with claims, waiting ones first, oldest first. `line` has the waiting ones, of all namespaces."""
    waiting = {(row.namespace, row.pod): row for row in line}
    rows = []
    for key, pod in snapshot.pods.items():
        if not pod.spec.resource_claims:
            continue
        wait, holdings = waiting.get(key), snapshot.state.ledger.of_pod_name(*key)
        if wait is None and not holdings and not snapshot.is_negotiated(key) and not _ours(snapshot, pod):
            continue
        rows.append(_row(pod, wait, holdings))
    return sorted(rows, key=_place)


def _ours(snapshot: Snapshot, pod: Pod) -> bool:
    return bool(gather(snapshot.state, pod))


def _row(pod: Pod, wait: WaitRow | None, holdings: list[Holding]) -> PodRow:
    held = {holding.class_name for holding in holdings if holding.class_name}
    return PodRow(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        state=state_of(pod),
        code=wait.code if wait else "",
        message=wait.message if wait else "",
        node=pod.spec.node_name,
        since=pod.metadata.creation_timestamp or "",
        classes=tuple(sorted(held | set(wait.classes if wait else ()))),
        ahead=wait.ahead if wait else 0,
    )


def _place(row: PodRow) -> tuple[int, str, str, str]:
    """The sort key: waiting pods by age, others by name."""
    return STATES.index(row.state), row.since if row.state == "waits" else "", row.namespace, row.name


def class_details(snapshot: Snapshot, name: str) -> ClassDetails | None:
    """The details of a class; None if it does not exist."""
    found = overview.class_row(snapshot, name)
    class_ = snapshot.state.cluster.class_(name)
    if found is None or class_ is None:
        return None
    uses = tuple(row for row in overview.uses(snapshot, None) if row.class_name == name)
    waiting = tuple(row for row in overview.waits(snapshot, None) if name in row.classes)
    return ClassDetails(found, class_.shareable, tuple(_limits(class_)), uses, waiting)


def _limits(class_: ResourceClass) -> Iterator[str]:
    for limit in class_.limits:
        most = [counted(limit.claims, "claim")] if limit.claims is not None else []
        most += [counted(limit.units, "unit")] if limit.units is not None else []
        yield f"{_whom(limit)}: at most {' and '.join(most) or 'nothing'}"


def _whom(limit: Limit) -> str:
    if limit.namespaces:
        return f"namespaces {', '.join(limit.namespaces)}"
    if limit.namespace_selector is None:
        return "every other namespace"
    labels = str(limit.namespace_selector)
    return f"each namespace with the labels {labels}" if labels else "each namespace"


def node_details(snapshot: Snapshot, name: str) -> NodeDetails | None:
    """The details of a node; None if it does not exist."""
    node = snapshot.state.cluster.node(name)
    if node is None:
        return None
    taints = tuple(_taint(taint) for taint in node.spec.taints)
    uses = tuple(row for row in overview.uses(snapshot, None) if row.node == name)
    return NodeDetails(name, node.spec.unschedulable, taints, tuple(_devices(snapshot, name)), uses)


def _taint(taint: Taint) -> str:
    """The taint as kubectl prints it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _devices(snapshot: Snapshot, node: str) -> Iterator[DeviceRow]:
    holders = _holders(snapshot)
    for slice_ in snapshot.slices:
        if slice_.spec.node_name == node:
            for listed in slice_.spec.devices:
                held = holders[slice_.spec.driver, Device(slice_.spec.pool.name, listed.name)]
                by, claims = tuple(pod for pod, _ in held), tuple(dict.fromkeys(claim for _, claim in held))
                yield DeviceRow(slice_.spec.driver, slice_.spec.pool.name, listed.name, by, claims)


def _holders(snapshot: Snapshot) -> Mapping[tuple[str, Device], list[tuple[str, str]]]:
    """The pods ("" if no pod uses the claim now) and claims, by driver and device; also of ordinary DRA claims."""
    found: defaultdict[tuple[str, Device], list[tuple[str, str]]] = defaultdict(list)
    for holding in snapshot.state.ledger:
        claim = holding.path
        for device in holding.allocation.devices:
            users = [f"{pod.namespace}/{pod.name}" for pod in holding.pods.values()] or [""]
            found[holding.driver, device] += [(user, claim) for user in users]
    for (namespace, name), mirror in snapshot.mirrors.items():
        if not is_mirror(mirror) and mirror.status.allocation is not None:
            users = [f"{namespace}/{user.name}" for user in mirror.status.reserved_for] or [""]
            for result in mirror.status.allocation.devices.results:
                device = Device(result.pool, result.device)
                found[result.driver, device] += [(user, f"{namespace}/{name}") for user in users]
    return found
