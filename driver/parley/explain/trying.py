"""Which pods' end, or which other change, would let a waiting pod go on: tried out, node by node.

Each node is evaluated as if other pods were gone (`feasibility`), so what is said comes true.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from parley.api.wording import counted, listed, noun_for
from parley.control.decision.kept import KEPT
from parley.control.holding import Holding
from parley.control.release.receipts import waits_for
from parley.explain.claims import held
from parley.explain.feasibility import PodFeasibility, is_unasked
from parley.explain.matrix import ReportedAnswers, kept_for_others
from parley.explain.model import Remedy
from parley.explain.snapshot import Snapshot
from parley.explain.times import span
from parley.kube.clock import rfc3339
from parley.negotiation.answers import by_reason, refusals
from parley.sdk import PodReference

MOST = 5
"""So many remedies of a kind are shown."""

_TRIED = 64
"""So many nodes are searched closely: with one call for each pod on a node."""

_SPARED = 128
"""Of so many pods those that need not end are looked for, with one call for each that lets all others end."""


@dataclass(frozen=True, slots=True)
class _Way:
    node: str
    pods: tuple[PodReference, ...]


def by_trying(snapshot: Snapshot, feasibility: PodFeasibility, reported: ReportedAnswers) -> Iterator[Remedy]:
    """What would help a pod for which the drivers find no node; `reported` is what standalone ones answered."""
    if feasibility.problem or not feasibility.pending:
        return
    kept_from_it = kept_for_others(reported)
    own = feasibility.pod.spec.node_name
    names = [node.metadata.name for node in snapshot.nodes if own in ("", node.metadata.name)]
    nodes = [name for name in names if name not in kept_from_it]
    if kept_from_it:
        yield Remedy(
            "node", f"wait for {name_nodes(sorted(kept_from_it))}: {KEPT}", (), tuple(sorted(kept_from_it))
        )
        if not nodes:
            return
    now = feasibility.doing(nodes)
    if feasibility.drivers:
        yield from _free_now(feasibility, nodes, now)
    ways = list(_ways(feasibility, nodes, now))
    yield from _ends_of(snapshot, feasibility, ways, reported)
    kept = list(_kept(feasibility, nodes, now))
    yield from kept[:MOST]
    released = list(_released(feasibility))
    yield from released
    changed = list(_changed_nodes(feasibility, nodes))
    yield from changed
    if feasibility.is_tied:
        if nodes and not (kept or ways or now or released):
            yield _nowhere(feasibility, nodes, eligible=not changed)
    elif kept and not ways:
        yield Remedy("addNode", f"another node like {kept[0].nodes[0]} would help", (), kept[0].nodes)
    else:
        yield from _another_node(snapshot, feasibility, nodes, ways, now, eligible=not changed)


def freeing(snapshot: Snapshot, feasibility: PodFeasibility, nodes: Sequence[str]) -> Iterator[Remedy]:
    """Whose end would let the pod go on on one of these nodes."""
    return _ends_of(snapshot, feasibility, list(_ways(feasibility, nodes, frozenset())), {})


def _ends_of(
    snapshot: Snapshot, feasibility: PodFeasibility, ways: Sequence[_Way], reported: ReportedAnswers
) -> Iterator[Remedy]:
    """The ways that take the least, and how many others there are."""
    yield from (_ends(snapshot, feasibility, way, reported) for way in sorted(ways, key=_effort)[:MOST])
    if len(ways) > MOST:
        more, least = tuple(way.node for way in ways), "at least " if len(ways) == _TRIED else ""
        yield Remedy(
            "podEnds", f"{least}{counted(len(ways) - MOST, 'more node')} can be freed in the same way", (), more
        )


def _kept(feasibility: PodFeasibility, nodes: Sequence[str], now: frozenset[str]) -> Iterator[Remedy]:
    """Nodes that would do if one claim were released that does not end with its pods."""
    for holding in feasibility.staying()[:_TRIED]:
        tried = [node for node in nodes if node not in now and holding.reaches(node)]
        with feasibility.freed([holding]):
            with_room = feasibility.doing(tried)
        doing = [node for node in tried if node in with_room]
        if doing and (until := _until(feasibility, holding)):
            which = f"claim {holding.path} ends (holds {', '.join(held(holding.allocation))})"
            verb, pods = "is" if len(doing) == 1 else "are", tuple(map(name_pod, holding.pods.values()))
            yield Remedy("claimEnds", f"{name_nodes(doing)} {verb} free when {which}: {until}", pods, tuple(doing))


def _released(feasibility: PodFeasibility) -> Iterator[Remedy]:
    """Nodes that would do if a claim that the pod is to share were released with the last pod that uses it."""
    uid = feasibility.pod.metadata.uid
    for claim in islice((c for c in feasibility.claims if c.holding and c.holding.pods.keys() - {uid}), MOST):
        holding = claim.holding
        if holding is None or uid in holding.pods or not holding.named or feasibility.outlives_its_pods(holding):
            continue
        if doing := feasibility.would_start_over(claim):
            pods, nodes = [name_pod(pod) for pod in holding.pods.values()], tuple(sorted(doing))
            who = f"{noun_for(len(pods), 'pod')} {listed(pods, MOST)} {'ends' if len(pods) == 1 else 'end'}"
            verb = "is" if len(nodes) == 1 else "are"
            text = f"{name_nodes(nodes)} {verb} free when {who}, with which claim {holding.path} is released"
            yield Remedy("podEnds", text, tuple(pods), nodes)


def _until(feasibility: PodFeasibility, holding: Holding) -> str:
    """Why a claim stays allocated, and what ends it; "" if that is not known."""
    if holding.owed:
        return waits_for(holding)
    if holding.pods:
        pods = [name_pod(pod) for pod in holding.pods.values()]
        who = f"{noun_for(len(pods), 'pod')} {listed(pods, MOST)} {'uses' if len(pods) == 1 else 'use'} it"
        if holding.immediate:
            return f"{who}, and it stays allocated after that until it is deleted"
        return f"{who}, and it is kept for {feasibility.kept_for(holding)} s after that unless it is deleted"
    if holding.kept_until is not None:
        return f"no pod uses it, and it is kept until {rfc3339(holding.kept_until)} unless it is deleted"
    return "no pod uses it, and it stays allocated until it is deleted" if holding.immediate else ""


def _free_now(feasibility: PodFeasibility, nodes: Sequence[str], now: frozenset[str]) -> Iterator[Remedy]:
    """Nodes that would do already: the controller was not as far when it wrote."""
    if feasibility.standalone:
        return
    free = [node for node in nodes if node in now]
    if free:
        later = "check again in a moment, and, if it still waits, whether a controller leads (parley doctor)"
        if is_unasked(feasibility.pod):
            later = "its scheduler checks more than Parley does, such as anti-affinity: see its message"
        text = f"{name_nodes(free)} would be viable now: {later}"
        yield Remedy("node", text, (), tuple(free[:MOST]))


def _effort(way: _Way) -> tuple[int, str]:
    return len(way.pods), way.node


def _ways(feasibility: PodFeasibility, nodes: Sequence[str], now: frozenset[str]) -> Iterator[_Way]:
    """Nodes that would do if some pods ended, each with as few of those as were found."""
    everybody = feasibility.all_holders()
    with feasibility.without(feasibility.in_the_way()):
        with_room, doing = feasibility.with_room(nodes), feasibility.doing(nodes)
    tried = (node for node in nodes if node in with_room and node not in now)
    promising = (node for node in tried if _with_all_gone(feasibility, node))
    on_nodes = [_fewest(feasibility, node, feasibility.holders(node)) for node in islice(promising, _TRIED)]
    if on_nodes:
        yield from on_nodes
        return
    node = next((node for node in nodes if node in doing), None)
    if node is not None and everybody:
        yield _fewest(feasibility, node, everybody)


def _with_all_gone(feasibility: PodFeasibility, node: str) -> bool:
    pods = feasibility.holders(node)
    return bool(pods) and _is_enough(feasibility, node, pods)


def _fewest(feasibility: PodFeasibility, node: str, pods: Sequence[PodReference]) -> _Way:
    """One pod if one is enough; otherwise the last ones that are enough, without those that need not end."""
    for pod in pods:
        if _is_enough(feasibility, node, [pod]):
            return _Way(node, (pod,))
    first = bisect_left(range(len(pods)), True, key=lambda start: not _is_enough(feasibility, node, pods[start:]))
    needed = list(pods[max(first - 1, 0) :])
    for pod in needed if len(needed) <= _SPARED else ():
        rest = [other for other in needed if other != pod]
        if _is_enough(feasibility, node, rest):
            needed = rest
    return _Way(node, tuple(needed))


def _is_enough(feasibility: PodFeasibility, node: str, pods: Sequence[PodReference]) -> bool:
    with feasibility.without(pods):
        return feasibility.would_do(node)


def _ends(snapshot: Snapshot, feasibility: PodFeasibility, way: _Way, reported: ReportedAnswers) -> Remedy:
    names = tuple(name_pod(pod) for pod in way.pods)
    about = [_holds(snapshot, feasibility, pod) for pod in way.pods[:MOST]]
    which = f"when pod {names[0]} ends{about[0]}"
    if len(names) > 1:
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        shown = (f"{name}{what}" for name, what in zip(names, about, strict=False))
        which = f"when these pods end: {', '.join(shown)}{more}"
    others = "".join(_if_others_agree(feasibility, way.node, reported))
    if any(_holds_everywhere(snapshot, feasibility, pod) for pod in way.pods):
        return Remedy("podEnds", f"enough is free on any node {which}{others}", names)
    return Remedy("podEnds", f"node {way.node} is free {which}{others}", names, (way.node,))


def _if_others_agree(feasibility: PodFeasibility, node: str, reported: ReportedAnswers) -> Iterator[str]:
    """What drivers that can't be asked here answered about the node, where they don't find it viable."""
    for entry, driver in feasibility.standalone.items():
        viable, why = reported.get(entry, (frozenset(), {}))
        if node not in viable:
            now = f"now: {why[node]}" if node in why else "it was not asked about this node"
            yield f", if driver {driver} has room for claim {entry} there ({now})"


def _holds(snapshot: Snapshot, feasibility: PodFeasibility, pod: PodReference) -> str:
    held = [
        h for h in snapshot.state.ledger.of_pod_name(pod.namespace, pod.name) if h.driver in feasibility.drivers
    ]
    devices = [device.device for holding in held for device in holding.allocation.devices]
    others = [
        f"{holding.units} of class {holding.class_name}" for holding in held if not holding.allocation.devices
    ]
    what = f"holds {', '.join([*devices, *others])}" if held else ""
    started = snapshot.pods.get((pod.namespace, pod.name))
    since = started.metadata.creation_timestamp if started is not None else None
    if since and (seconds := snapshot.seconds_since(since)) is not None:
        what = f"{what}, created {span(seconds)} ago" if what else f"created {span(seconds)} ago"
    return f" ({what})" if what else ""


def _changed_nodes(feasibility: PodFeasibility, nodes: Sequence[str]) -> Iterator[Remedy]:
    """Nodes that have what is asked for, but that the pod may not use, whatever ends there."""
    found, misfits = 0, feasibility.misfits(nodes)
    with_room = feasibility.with_room(list(misfits))
    for node, why in misfits.items():
        if found == MOST or node not in with_room:
            continue
        with feasibility.without(feasibility.holders(node)):
            stays = feasibility.misfits([node])
        if stays:
            found += 1
            message = f"node {node} has what the claims request, but is not eligible: {why}"
            yield Remedy("node", message, (), (node,))


def _another_node(
    snapshot: Snapshot,
    feasibility: PodFeasibility,
    nodes: Sequence[str],
    ways: Sequence[_Way],
    now: frozenset[str],
    *,
    eligible: bool,
) -> Iterator[Remedy]:
    """A node of which there is one already, unless what lacks is not the nodes'; or that no node would do."""
    local = [way for way in ways if not any(_holds_everywhere(snapshot, feasibility, pod) for pod in way.pods)]
    if local:
        yield Remedy("addNode", f"another node like {local[0].node} would help", (), (local[0].node,))
    elif not nodes:
        yield Remedy("addNode", "the cluster has no nodes: add one")
    elif not ways and not now:
        yield _nowhere(feasibility, nodes, eligible=eligible)


def _holds_everywhere(snapshot: Snapshot, feasibility: PodFeasibility, pod: PodReference) -> bool:
    held = snapshot.state.ledger.of_pod_name(pod.namespace, pod.name)
    return any(holding.nodes is None and holding.driver in feasibility.drivers for holding in held)


def _nowhere(feasibility: PodFeasibility, nodes: Sequence[str], *, eligible: bool) -> Remedy:
    """Unless `eligible`, there are nodes that have what is requested and are ruled out."""
    shown = nodes[:_TRIED]
    with feasibility.without(feasibility.in_the_way()):
        reasons_ = {**refusals(feasibility.answers(shown)), **feasibility.misfits(shown)}
    why = by_reason(reasons_)
    text = "no node would be viable even if all other pods ended"
    advice = "Request something else" if eligible else "Change what rules a node out, request something else"
    other = "" if feasibility.is_tied else ", or add a node that has it"
    return Remedy("noNode", f"{text}: {why}. {advice}{other}" if why else text)


def name_nodes(nodes: Sequence[str]) -> str:
    return f"{noun_for(len(nodes), 'node')} {listed(nodes, MOST)}"


def name_pod(pod: PodReference) -> str:
    return f"{pod.namespace}/{pod.name}"
