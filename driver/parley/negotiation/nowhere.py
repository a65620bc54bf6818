"""Why no node is available, as a reason code and a message that names nodes and a remedy. Pure."""

from collections.abc import Collection, Iterable, Mapping, Set

from parley.api import reasons
from parley.api.wording import counted
from parley.negotiation.answers import by_reason
from parley.negotiation.availability import Places, SelectedNodes, intersection

_MISFIT_REMEDY = "change what rules out one of these nodes, or add a node"


def no_node_available(
    total: int,
    misfits: Mapping[str, str],
    refused: Mapping[str, str],
    *,
    asked: bool,
    on_nodes: bool = True,
    bound_to: str = "",
) -> tuple[str, str]:
    """Reason code and message: none of `total` nodes is available, or not the node that the pod is bound to.

    `misfits` has the reason for each node that was not eligible, `refused` the drivers' reasons against others;
    `asked`: a driver was asked about a node; `on_nodes`: the requested resource belongs to nodes.
    """
    code = reasons.NOTHING_VIABLE if asked else reasons.NO_CANDIDATES
    if (causes := by_reason({**misfits, **refused})) and bound_to:
        remedy = _bound_remedy(refused=bool(refused), on_nodes=on_nodes)
        return code, f"the pod is bound to {causes}. Remedy: {remedy}"
    remedy = _remedy(on_nodes=on_nodes) if refused else _MISFIT_REMEDY
    if not causes:
        causes, remedy = _without_reasons(total)
    nodes = f"{counted(total, 'node')} {'is' if total == 1 else 'are'}"
    return code, f"0 of {nodes} available: {causes}. Remedy: {remedy}"


def no_common_node(claims: Mapping[str, Places]) -> str:
    """The message if no node has all of the claims, each of which can be used on these nodes (None: every node);
    "" if one has. Also "" where all claims select the same labels: a node that has them may still be added."""
    limits = set(_limits(claims.values()))
    if len(limits) < 2 or intersection(list(limits)):
        return ""
    each = "; ".join(f"claim {name} is {where(nodes)}" for name, nodes in claims.items() if nodes is not None)
    return f"no node has all claims of the pod: {each}. Remedy: delete those on one of the nodes to start over"


def _remedy(*, on_nodes: bool) -> str:
    """The remedy for refusals: more nodes don't help where the requested resource belongs to the whole cluster."""
    if on_nodes:
        return "free resources, request less, or add nodes that have what is requested"
    return "delete pods that hold some, request less, or enlarge the pool of the class"


def _bound_remedy(*, refused: bool, on_nodes: bool) -> str:
    """The remedy for a bound pod: no other node helps it."""
    if refused and not on_nodes:
        return _remedy(on_nodes=False)
    here = "free resources on that node" if refused else "change what rules that node out"
    return f"{here}, or recreate the pod, and let its scheduler choose the node"


def _without_reasons(total: int) -> tuple[str, str]:
    """Causes and remedy for a message if there is no reason for any node."""
    if total:
        return "no driver gave a reason", "see the logs of the claims' drivers, or add a node"
    return "the cluster has no nodes", "add a node"


def in_common(places: Iterable[Places]) -> Set[str] | None:
    """The nodes that are in all of the places; None is every node."""
    limits = _limits(places)
    return intersection(limits) if limits else None


def _limits(places: Iterable[Places]) -> list[frozenset[str] | SelectedNodes]:
    limited = (nodes for nodes in places if nodes is not None)
    return [nodes if isinstance(nodes, SelectedNodes) else frozenset(nodes) for nodes in limited]


def where(nodes: Collection[str] | None) -> str:
    """Where an allocated claim can be used, in words: "allocated on nodes a, b"; None is every node."""
    if nodes is None:
        return "allocated and usable on every node"
    if isinstance(nodes, SelectedNodes):
        return f"allocated on {nodes}"
    return f"allocated on node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
