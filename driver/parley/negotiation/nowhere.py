"""Why no node is available, as a reason code and a message that names nodes and a remedy. Pure."""

from collections.abc import Collection, Iterable, Mapping, Set

from parley.api import reasons
from parley.api.wording import counted
from parley.negotiation.answers import by_reason
from parley.negotiation.availability import Places, SelectedNodes, in_all

_OF_MISFITS = "change what rules out one of these nodes, or add a node"


def nowhere(
    total: int,
    misfits: Mapping[str, str],
    refused: Mapping[str, str],
    *,
    asked: bool,
    on_nodes: bool = True,
    bound_to: str = "",
) -> tuple[str, str]:
    """Code and message about a cluster of so many nodes, or about the one that a pod is bound to.

    `misfits` has the reason for each node that was not eligible, `refused` the drivers' reasons against others;
    `asked` is whether any driver was asked about any, `on_nodes` whether what is asked for belongs to nodes.
    """
    code = reasons.NOTHING_VIABLE if asked else reasons.NO_CANDIDATES
    causes = by_reason({**misfits, **refused})
    if bound_to and causes:
        return code, f"the pod is bound to {causes}. Remedy: {_of_bound(refused=bool(refused), on_nodes=on_nodes)}"
    remedy = _remedy(on_nodes=on_nodes) if refused else _OF_MISFITS
    if not causes:
        causes, remedy = _without_reasons(total)
    nodes = f"{counted(total, 'node')} {'is' if total == 1 else 'are'}"
    return code, f"0 of {nodes} available: {causes}. Remedy: {remedy}"


def apart(claims: Mapping[str, Places]) -> str:
    """What is wrong if no node has all of the claims, which are allocated on these nodes (None: everywhere);
    "" if one has. Where all go by the same labels, a node that has them may still come."""
    limits = set(_limits(claims.values()))
    if len(limits) < 2 or in_all(list(limits)):
        return ""
    each = "; ".join(f"claim {name} is {where(nodes)}" for name, nodes in claims.items() if nodes is not None)
    return f"no node has all claims of the pod: {each}. Remedy: delete those on one of the nodes to start over"


def _remedy(*, on_nodes: bool) -> str:
    """More nodes don't help where what is asked for is the whole cluster's."""
    if on_nodes:
        return "free resources, request less, or add nodes that have what is requested"
    return "delete pods that hold some, request less, or enlarge the pool of the class"


def _of_bound(*, refused: bool, on_nodes: bool) -> str:
    """No other node helps a pod that has one."""
    if refused and not on_nodes:
        return _remedy(on_nodes=False)
    here = "free resources on that node" if refused else "change what rules that node out"
    return f"{here}, or recreate the pod, and let its scheduler choose the node"


def _without_reasons(total: int) -> tuple[str, str]:
    """What is said if nothing is known about any node, and the remedy."""
    if total:
        return "no driver gave a reason", "see the logs of the claims' drivers, or add a node"
    return "the cluster has no nodes", "add a node"


def in_common(places: Iterable[Places]) -> Set[str] | None:
    """The nodes that are in all of the places; None is everywhere."""
    limits = _limits(places)
    return in_all(limits) if limits else None


def _limits(places: Iterable[Places]) -> list[frozenset[str] | SelectedNodes]:
    some = (nodes for nodes in places if nodes is not None)
    return [nodes if isinstance(nodes, SelectedNodes) else frozenset(nodes) for nodes in some]


def where(nodes: Collection[str] | None) -> str:
    """Where an allocated claim can be used: "allocated on nodes a, b"; None is everywhere."""
    if nodes is None:
        return "allocated and usable on every node"
    if isinstance(nodes, SelectedNodes):
        return f"allocated on {nodes}"
    return f"allocated on node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
