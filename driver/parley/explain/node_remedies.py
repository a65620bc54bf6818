"""Which pods would have to end, or what else would have to change, for a node to become feasible for a pod.

Each node is evaluated as if other pods were gone (`feasibility`): following a remedy does help.
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
"""The most remedies of a kind that are shown."""

_MOST_NODES = 64
"""The most nodes that are searched closely: with one call of the drivers for each pod on a node."""

_MOST_PODS = 128
"""The most pods among which those that need not end are searched, with one call of the drivers for each."""


@dataclass(frozen=True, slots=True)
class _Freeable:
    """A node that would be feasible if these pods ended."""

    name: str
    pods: tuple[PodReference, ...]


def node_remedies(snapshot: Snapshot, feasibility: PodFeasibility, reported: ReportedAnswers) -> Iterator[Remedy]:
    """What would help a pod for which the drivers find no node; `reported` are standalone drivers' answers."""
    if feasibility.problem or not feasibility.pending:
        return
    reserved = kept_for_others(reported)
    own = feasibility.pod.spec.node_name
    names = [node.metadata.name for node in snapshot.nodes if own in ("", node.metadata.name)]
    nodes = [name for name in names if name not in reserved]
    if reserved:
        yield Remedy("node", f"wait for {name_nodes(sorted(reserved))}: {KEPT}", (), tuple(sorted(reserved)))
        if not nodes:
            return
    now = feasibility.feasible_nodes(nodes)
    if feasibility.drivers:
        yield from _viable_now(feasibility, nodes, now)
    freeable = list(_freeable_nodes(feasibility, nodes, now))
    yield from _pods_to_end(snapshot, feasibility, freeable, reported)
    kept = list(_kept_by_claims(feasibility, nodes, now))
    yield from kept[:MOST]
    released = list(_kept_by_shared_claims(feasibility))
    yield from released
    changed = list(_changed_nodes(feasibility, nodes))
    yield from changed
    if feasibility.is_pinned:
        if nodes and not (kept or freeable or now or released):
            yield _no_node(feasibility, nodes, eligible=not changed)
    elif kept and not freeable:
        yield Remedy("addNode", f"another node like {kept[0].nodes[0]} would help", (), kept[0].nodes)
    else:
        yield from _another_node(snapshot, feasibility, nodes, freeable, now, eligible=not changed)


def freeing(snapshot: Snapshot, feasibility: PodFeasibility, nodes: Sequence[str]) -> Iterator[Remedy]:
    """The pods whose end would make one of these nodes feasible."""
    return _pods_to_end(snapshot, feasibility, list(_freeable_nodes(feasibility, nodes, frozenset())), {})


def _pods_to_end(
    snapshot: Snapshot, feasibility: PodFeasibility, freeable: Sequence[_Freeable], reported: ReportedAnswers
) -> Iterator[Remedy]:
    """The freeable nodes with the fewest pods to end, and how many others there are. Those come first that no
    standalone driver refused."""

    def order(node: _Freeable) -> tuple[bool, int, str]:
        return any(_if_others_agree(feasibility, node.name, reported)), len(node.pods), node.name

    yield from (_pod_ends(snapshot, feasibility, node, reported) for node in sorted(freeable, key=order)[:MOST])
    if len(freeable) > MOST:
        more, least = tuple(node.name for node in freeable), "at least " if len(freeable) == _MOST_NODES else ""
        yield Remedy(
            "podEnds",
            f"{least}{counted(len(freeable) - MOST, 'more node')} can be freed in the same way",
            (),
            more,
        )


def _kept_by_claims(feasibility: PodFeasibility, nodes: Sequence[str], now: frozenset[str]) -> Iterator[Remedy]:
    """Nodes that would be feasible if one claim were released that outlives its pods."""
    for holding in feasibility.outliving_holdings()[:_MOST_NODES]:
        candidates = [node for node in nodes if node not in now and holding.usable_on(node)]
        with feasibility.as_if_released([holding]):
            with_room = feasibility.feasible_nodes(candidates)
        feasible = [node for node in candidates if node in with_room]
        if feasible and (until := _why_allocated(feasibility, holding)):
            which = f"claim {holding.path} ends (holds {', '.join(held(holding.allocation))})"
            verb, pods = "is" if len(feasible) == 1 else "are", tuple(map(name_pod, holding.pods.values()))
            yield Remedy(
                "claimEnds", f"{name_nodes(feasible)} {verb} free when {which}: {until}", pods, tuple(feasible)
            )


def _kept_by_shared_claims(feasibility: PodFeasibility) -> Iterator[Remedy]:
    """Nodes that would be feasible if a claim that the pod is to share were released with the last of its pods."""
    uid = feasibility.pod.metadata.uid
    for claim in islice((c for c in feasibility.claims if c.holding and c.holding.pods.keys() - {uid}), MOST):
        holding = claim.holding
        if holding is None or uid in holding.pods or not holding.named or feasibility.outlives_its_pods(holding):
            continue
        if feasible := feasibility.feasible_if_recreated(claim):
            pods, nodes = [name_pod(pod) for pod in holding.pods.values()], tuple(sorted(feasible))
            who = f"{noun_for(len(pods), 'pod')} {listed(pods, MOST)} {'ends' if len(pods) == 1 else 'end'}"
            verb = "is" if len(nodes) == 1 else "are"
            text = f"{name_nodes(nodes)} {verb} free when {who}, with which claim {holding.path} is released"
            yield Remedy("podEnds", text, tuple(pods), nodes)


def _why_allocated(feasibility: PodFeasibility, holding: Holding) -> str:
    """Why a claim stays allocated, and until when; "" if that is not known."""
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


def _viable_now(feasibility: PodFeasibility, nodes: Sequence[str], now: frozenset[str]) -> Iterator[Remedy]:
    """Nodes that are feasible now: the controller may not have noticed yet."""
    if feasibility.standalone_drivers:
        return
    free = [node for node in nodes if node in now]
    if free:
        later = "check again in a moment, and, if it still waits, whether a controller leads (parley doctor)"
        if is_unasked(feasibility.pod):
            later = "its scheduler checks more than Parley does, such as anti-affinity: see its message"
        text = f"{name_nodes(free)} would be viable now: {later}"
        yield Remedy("node", text, (), tuple(free[:MOST]))


def _freeable_nodes(feasibility: PodFeasibility, nodes: Sequence[str], now: frozenset[str]) -> Iterator[_Freeable]:
    """Nodes that would be feasible if some pods ended, each with the fewest such pods that were found."""
    holders = feasibility.all_holders()
    with feasibility.as_if_gone(feasibility.possible_blockers()):
        with_room, feasible = feasibility.viable_nodes(nodes), feasibility.feasible_nodes(nodes)
    candidates = (node for node in nodes if node in with_room and node not in now)
    promising = (node for node in candidates if _with_all_gone(feasibility, node))
    on_nodes = [
        _fewest_pods(feasibility, node, feasibility.holders(node)) for node in islice(promising, _MOST_NODES)
    ]
    if on_nodes:
        yield from on_nodes
        return
    node = next((node for node in nodes if node in feasible), None)
    if node is not None and holders:
        yield _fewest_pods(feasibility, node, holders)


def _with_all_gone(feasibility: PodFeasibility, node: str) -> bool:
    pods = feasibility.holders(node)
    return bool(pods) and _is_enough(feasibility, node, pods)


def _fewest_pods(feasibility: PodFeasibility, node: str, pods: Sequence[PodReference]) -> _Freeable:
    """One pod if one is enough; otherwise the shortest tail of `pods` that is enough, without pods that need not
    end."""
    for pod in pods:
        if _is_enough(feasibility, node, [pod]):
            return _Freeable(node, (pod,))
    first = bisect_left(range(len(pods)), True, key=lambda start: not _is_enough(feasibility, node, pods[start:]))
    needed = list(pods[max(first - 1, 0) :])
    for pod in needed if len(needed) <= _MOST_PODS else ():
        rest = [other for other in needed if other != pod]
        if _is_enough(feasibility, node, rest):
            needed = rest
    return _Freeable(node, tuple(needed))


def _is_enough(feasibility: PodFeasibility, node: str, pods: Sequence[PodReference]) -> bool:
    with feasibility.as_if_gone(pods):
        return feasibility.is_feasible(node)


def _pod_ends(
    snapshot: Snapshot, feasibility: PodFeasibility, node: _Freeable, reported: ReportedAnswers
) -> Remedy:
    names = tuple(name_pod(pod) for pod in node.pods)
    about = [_holding_text(snapshot, feasibility, pod) for pod in node.pods[:MOST]]
    which = f"when pod {names[0]} ends{about[0]}"
    if len(names) > 1:
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        shown = (f"{name}{what}" for name, what in zip(names, about, strict=False))
        which = f"when these pods end: {', '.join(shown)}{more}"
    others = "".join(_if_others_agree(feasibility, node.name, reported))
    if any(_holds_everywhere(snapshot, feasibility, pod) for pod in node.pods):
        return Remedy("podEnds", f"enough is free on any node {which}{others}", names)
    return Remedy("podEnds", f"node {node.name} is free {which}{others}", names, (node.name,))


def _if_others_agree(feasibility: PodFeasibility, node: str, reported: ReportedAnswers) -> Iterator[str]:
    """The answers about the node of standalone drivers that do not find it viable."""
    for entry, driver in feasibility.standalone_drivers.items():
        answer = reported.get(entry)
        if answer is None or node not in answer.viable:
            why = answer.reasons.get(node) if answer is not None else None
            now = f"now: {why}" if why else "it was not asked about this node"
            yield f", if driver {driver} has room for claim {entry} there ({now})"


def _holding_text(snapshot: Snapshot, feasibility: PodFeasibility, pod: PodReference) -> str:
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
    """Nodes that have what the claims request but are ruled out otherwise, also if all pods on them ended."""
    found, misfits = 0, feasibility.misfits(nodes)
    with_room = feasibility.viable_nodes(list(misfits))
    for node, why in misfits.items():
        if found == MOST or node not in with_room:
            continue
        with feasibility.as_if_gone(feasibility.holders(node)):
            stays = feasibility.misfits([node])
        if stays:
            found += 1
            message = f"node {node} has what the claims request, but is not eligible: {why}"
            yield Remedy("node", message, (), (node,))


def _another_node(
    snapshot: Snapshot,
    feasibility: PodFeasibility,
    nodes: Sequence[str],
    freeable: Sequence[_Freeable],
    now: frozenset[str],
    *,
    eligible: bool,
) -> Iterator[Remedy]:
    """Suggests one more node like a freeable one, unless what is missing is not local to nodes; or reports that no
    node would be feasible."""
    local = [
        node for node in freeable if not any(_holds_everywhere(snapshot, feasibility, pod) for pod in node.pods)
    ]
    if local:
        yield Remedy("addNode", f"another node like {local[0].name} would help", (), (local[0].name,))
    elif not nodes:
        yield Remedy("addNode", "the cluster has no nodes: add one")
    elif not freeable and not now:
        yield _no_node(feasibility, nodes, eligible=eligible)


def _holds_everywhere(snapshot: Snapshot, feasibility: PodFeasibility, pod: PodReference) -> bool:
    held = snapshot.state.ledger.of_pod_name(pod.namespace, pod.name)
    return any(holding.nodes is None and holding.driver in feasibility.drivers for holding in held)


def _no_node(feasibility: PodFeasibility, nodes: Sequence[str], *, eligible: bool) -> Remedy:
    """Reports that no node would be feasible. Unless `eligible`, some have what is requested but are ruled out."""
    shown = nodes[:_MOST_NODES]
    with feasibility.as_if_gone(feasibility.possible_blockers()):
        reasons_ = {**refusals(feasibility.answers(shown)), **feasibility.misfits(shown)}
    why = by_reason(reasons_)
    text = "no node would be viable even if all other pods ended"
    advice = "Request something else" if eligible else "Change what rules a node out, request something else"
    other = "" if feasibility.is_pinned else ", or add a node that has it"
    return Remedy("noNode", f"{text}: {why}. {advice}{other}" if why else text)


def name_nodes(nodes: Sequence[str]) -> str:
    return f"{noun_for(len(nodes), 'node')} {listed(nodes, MOST)}"


def name_pod(pod: PodReference) -> str:
    return f"{pod.namespace}/{pod.name}"
