"""What would help a waiting pod: which pods' end, which node if something about it changed, or none.

Tried out rather than guessed: each node is evaluated as if other pods were gone. Where drivers can't be asked
there are only their own proposals and the advice that belongs to the reason code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from parley.api import reasons
from parley.api.models import ClaimScheduling, PodScheduling
from parley.api.wording import counted, listed, noun_for
from parley.control.decision.kept import KEPT
from parley.control.ledger import Holding
from parley.control.release.receipts import waits_for
from parley.explain.claims import held
from parley.explain.feasibility import PodFeasibility, is_unasked
from parley.explain.matrix import ReportedAnswers, answered, kept_for_others
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

ADVICE: Mapping[str, str] = {
    reasons.CLASS_NOT_FOUND: "create the ResourceClass, or recreate the claim or template with the right name",
    reasons.WAITING_FOR_DRIVERS: "nothing to do for 30 s: standalone drivers are being asked",
    reasons.DRIVER_NOT_ANSWERING: "start the driver, or correct driverName of the class",
    reasons.DRIVER_MOVED: "wait for the pods that use what it allocated there, or delete them",
    reasons.OTHER_SCHEDULER: "recreate the pod without schedulerName, for the cluster's own scheduler",
    reasons.LIMIT_REACHED: "delete pods or claims that hold some, or raise `limits` of the class",
    reasons.PARAMETERS_INVALID: "correct the class or what parametersRef names, or recreate the claim or template",
    reasons.PARAMETERS_NOT_FOUND: "create the object that parametersRef names; Parley finds it within a minute",
    reasons.PARAMETERS_FORBIDDEN: "grant what the message names: value `parameters` of the chart, or a Role",
    reasons.PARAMETERS_NOT_READ: "nothing to do: Parley tries again, after pauses of up to a minute",
    reasons.CLAIM_NOT_FOUND: "create the claim or template in the pod's namespace",
    reasons.CLAIM_NOT_MADE: "set the label that the message names, or create the claim",
    reasons.NAME_TAKEN: "delete the built-in object of that name, or rename yours",
    reasons.CLAIM_PENDING: "see `kubectl describe prclaim`: the claim is Immediate, and not allocated yet",
    reasons.CLAIM_IN_USE: "use a template, so that each pod has a claim of its own, or a shareable class",
    reasons.CLAIM_FULL: "wait until a pod that uses the claim ends, or create another claim for some of them",
    reasons.CONFLICTING_ALLOCATIONS: "delete the claims on one of the nodes and create them again",
    reasons.DRIVER_FAILED: "report it to the driver's vendor; the controller's log has the stack trace",
    reasons.WRITE_REFUSED: "change what the API server's message names: a label, a quota, a policy",
    reasons.RELEASING: "bring the node back; if it is shut down, taint it node.kubernetes.io/out-of-service",
    reasons.CLAIM_STRANDED: "bring the claim's node back, or delete the claim to start over elsewhere",
    reasons.CLAIM_FAILED: "delete the claim and create it again: it has failed with its node",
    reasons.CLAIM_BEING_DELETED: "name another claim, or recreate it once it is gone",
    reasons.ALLOCATING: "nothing to do: drivers are allocating on the selected node",
    reasons.ALLOCATION_FAILED: "see the driver's message; the allocation is retried with a backoff",
    reasons.PERMANENTLY_FAILED: "see the driver's message, and recreate the pod once the cause is gone",
    reasons.SCHEDULER_REFUSED: "see the scheduler's message: it checks more than Parley does, such as "
    "anti-affinity",
    reasons.SCHEDULER_CHOOSES: "nothing to do: the scheduler checks every 5 s",
    reasons.PREEMPTING: "nothing to do, if the terminating pods end within their grace periods",
    reasons.EVICTION_FORBIDDEN: "install the chart with preemption.enabled=true, or change the class",
    reasons.BINDING: "if it takes longer, see the pod's condition PodScheduled",
}
"""For codes whose remedy does not depend on nodes; as in docs/reasons.md."""


@dataclass(frozen=True, slots=True)
class _Way:
    node: str
    pods: tuple[PodReference, ...]


def remedies(
    snapshot: Snapshot, feasibility: PodFeasibility, code: str, scheduling: PodScheduling | None
) -> tuple[Remedy, ...]:
    """The best first."""
    found = [*_in_use(snapshot, feasibility), *_within_limit(snapshot, feasibility, code)]
    stranded: list[Remedy] = []
    if snapshot.complete:
        found += _tied(feasibility, code)
        found += _preemption(feasibility)
        stranded = list(_stranded(snapshot, feasibility))
        found += stranded
        if code in (reasons.NO_CANDIDATES, reasons.NOTHING_VIABLE, ""):
            found += _by_trying(snapshot, feasibility, answered(scheduling))
    found += _proposals(snapshot, feasibility, scheduling)
    if code in ADVICE and not (code == reasons.CLAIM_STRANDED and stranded):
        found.append(Remedy("advice", ADVICE[code]))
    return tuple(found)


def _in_use(snapshot: Snapshot, feasibility: PodFeasibility) -> Iterator[Remedy]:
    """Named claims that other pods use."""
    for claim in feasibility.claims:
        if claim.problem is None or claim.problem.code not in (reasons.CLAIM_IN_USE, reasons.CLAIM_FULL):
            continue
        namespace = claim.problem.topics[0][1]
        holding = snapshot.state.ledger.of_claim(namespace, claim.name)
        first = feasibility.before((namespace, claim.name))
        who = f"{noun_for(len(first), 'pod')} {listed(list(map(_name, first)), MOST)}"
        verbs = ("waits", "is") if len(first) == 1 else ("wait", "are")
        then = f"; {who} {verbs[0]} for it, too, and {verbs[1]} served first" if first else ""
        for pod in list(holding.pods.values())[:MOST] if holding is not None else ():
            yield Remedy("podEnds", f"claim {claim.name} is free when pod {_name(pod)} ends{then}", (_name(pod),))


def _within_limit(snapshot: Snapshot, feasibility: PodFeasibility, code: str) -> Iterator[Remedy]:
    """What the namespace holds of the classes whose limits are reached, and when that is released."""
    if code != reasons.LIMIT_REACHED:
        return
    classes, namespace = feasibility.limited, feasibility.namespace
    counted_ = [h for h in snapshot.state.ledger if h.class_name in classes and h.namespace == namespace]
    for holding in counted_[:MOST]:
        pods = tuple(map(_name, holding.pods.values()))
        what = f"{holding.units} of class {holding.class_name}"
        if not pods or feasibility.outlives_its_pods(holding):
            last = ", and its pods have ended" if pods else ""
            yield Remedy(
                "claimEnds", f"claim {holding.path} holds {what}, released when it is deleted{last}", pods
            )
        else:
            verbs = ("holds", "it ends") if len(pods) == 1 else ("hold", "they end")
            who = f"{noun_for(len(pods), 'pod')} {listed(pods, MOST)}"
            yield Remedy("podEnds", f"{who} {verbs[0]} {what}, released when {verbs[1]}", pods)
    if len(counted_) > MOST:
        more = counted(len(counted_) - MOST, "more claim")
        yield Remedy(
            "advice", f"{more} of the namespace count for the limit: see `parley get uses -n {namespace}`"
        )


def _stranded(snapshot: Snapshot, feasibility: PodFeasibility) -> Iterator[Remedy]:
    """The nodes where claims of the pod are, and what keeps it away from there."""
    found = feasibility.stranded()
    if found is None:
        return
    which = f"{noun_for(len(found.claims), 'claim')} {listed(found.claims, MOST)}"
    for node, obstacle in found.obstacles.items():
        yield Remedy("node", f"node {node} has {which}, but is not eligible: {obstacle.text}", (), (node,))
    yield from _ends_of(snapshot, feasibility, list(_ways(feasibility, list(found.obstacles), frozenset())), {})
    yield Remedy("advice", found.remedy)


def _tied(feasibility: PodFeasibility, code: str) -> Iterator[Remedy]:
    """Claims of the pod that are kept on their nodes, where it can't run now, though it could elsewhere."""
    if code not in (reasons.NO_CANDIDATES, reasons.NOTHING_VIABLE, reasons.CLAIM_STRANDED):
        return
    for claim in feasibility.claims:
        holding = claim.holding
        nodes = tuple(holding.nodes or ()) if holding is not None else ()
        if holding is None or holding.kept_until is None or holding.pods or not nodes:
            continue
        if not feasibility.would_start_over(claim) <= frozenset(nodes):
            text = (
                f"claim {holding.path} is kept on {_nodes(nodes)} until {rfc3339(holding.kept_until)}, "
                "though no pod uses it: recreate it to start over on another node"
            )
            yield Remedy("claimEnds", text, (), nodes)


def _preemption(feasibility: PodFeasibility) -> Iterator[Remedy]:
    """Whom the controller would have evicted, or waits for."""
    plan = feasibility.preemption()
    if plan is None or not plan.victims:
        return
    names = tuple(f"{victim.metadata.namespace}/{victim.metadata.name}" for victim in plan.victims)
    text = (
        f"the controller evicts {noun_for(len(names), 'pod')} {listed(names, MOST)} of lower priority from node "
        f"{plan.node} for it as soon as it may: the class has preemption: LowerPriority"
    )
    if plan.scheduler_evicts:
        text += "; then the scheduler has to evict others of lower priority there"
    yield Remedy("preemption", text, names, (plan.node,))


def _by_trying(snapshot: Snapshot, feasibility: PodFeasibility, reported: ReportedAnswers) -> Iterator[Remedy]:
    if feasibility.problem or not feasibility.pending:
        return
    kept_from_it = kept_for_others(reported)
    own = feasibility.pod.spec.node_name
    names = [node.metadata.name for node in snapshot.nodes if own in ("", node.metadata.name)]
    nodes = [name for name in names if name not in kept_from_it]
    if kept_from_it:
        yield Remedy("node", f"wait for {_nodes(sorted(kept_from_it))}: {KEPT}", (), tuple(sorted(kept_from_it)))
        if not nodes:
            return
    now = feasibility.doing(nodes)
    if feasibility.drivers:
        yield from _free_now(feasibility, nodes, now)
    ways = list(_ways(feasibility, nodes, now))
    yield from _ends_of(snapshot, feasibility, ways, reported)
    kept = list(_kept(feasibility, nodes, now))
    yield from kept[:MOST]
    yield from _changed_nodes(feasibility, nodes)
    if feasibility.is_tied:
        if nodes and not (kept or ways or now):
            yield _nowhere(feasibility, nodes)
    elif kept and not ways:
        yield Remedy("addNode", f"another node like {kept[0].nodes[0]} would help", (), kept[0].nodes)
    else:
        yield from _another_node(snapshot, feasibility, nodes, ways, now)


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
            verb, pods = "is" if len(doing) == 1 else "are", tuple(map(_name, holding.pods.values()))
            yield Remedy("claimEnds", f"{_nodes(doing)} {verb} free when {which}: {until}", pods, tuple(doing))


def _until(feasibility: PodFeasibility, holding: Holding) -> str:
    """Why a claim stays allocated, and what ends it; "" if that is not known."""
    if holding.owed:
        return waits_for(holding)
    if holding.pods:
        pods = [_name(pod) for pod in holding.pods.values()]
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
        text = f"{_nodes(free)} would be viable now: {later}"
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
    if not pods:
        return False
    with feasibility.without(pods):
        return feasibility.would_do(node)


def _fewest(feasibility: PodFeasibility, node: str, pods: Sequence[PodReference]) -> _Way:
    """One pod if one is enough; otherwise all without those that need not end."""
    for pod in pods:
        with feasibility.without([pod]):
            if feasibility.would_do(node):
                return _Way(node, (pod,))
    needed = list(pods)
    for pod in pods:
        rest = [other for other in needed if other != pod]
        with feasibility.without(rest):
            if feasibility.would_do(node):
                needed = rest
    return _Way(node, tuple(needed))


def _ends(snapshot: Snapshot, feasibility: PodFeasibility, way: _Way, reported: ReportedAnswers) -> Remedy:
    names = tuple(_name(pod) for pod in way.pods)
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
) -> Iterator[Remedy]:
    """A node of which there is one already, unless what lacks is not the nodes'; or that no node would do."""
    local = [way for way in ways if not any(_holds_everywhere(snapshot, feasibility, pod) for pod in way.pods)]
    if local:
        yield Remedy("addNode", f"another node like {local[0].node} would help", (), (local[0].node,))
    elif not nodes:
        yield Remedy("addNode", "the cluster has no nodes: add one")
    elif not ways and not now:
        yield _nowhere(feasibility, nodes)


def _holds_everywhere(snapshot: Snapshot, feasibility: PodFeasibility, pod: PodReference) -> bool:
    held = snapshot.state.ledger.of_pod_name(pod.namespace, pod.name)
    return any(holding.nodes is None and holding.driver in feasibility.drivers for holding in held)


def _nowhere(feasibility: PodFeasibility, nodes: Sequence[str]) -> Remedy:
    shown = nodes[:_TRIED]
    with feasibility.without(feasibility.in_the_way()):
        reasons_ = {**refusals(feasibility.answers(shown)), **feasibility.misfits(shown)}
    why = by_reason(reasons_)
    text = "no node would be viable even if all other pods ended"
    other = "" if feasibility.is_tied else ", or add a node that has it"
    return Remedy("noNode", f"{text}: {why}. Request something else{other}" if why else text)


def _proposals(
    snapshot: Snapshot, feasibility: PodFeasibility, scheduling: PodScheduling | None
) -> Iterator[Remedy]:
    """What drivers that can't be asked here proposed instead."""
    for answer in scheduling.status.claims if scheduling is not None else ():
        asked = feasibility.standalone.get(answer.name) == answer.driver_name
        if not asked or answer.alternatives is None or answer.viable_nodes:
            continue
        text, nodes = _proposal(snapshot, feasibility, answer)
        yield Remedy("alternative", f"driver {answer.driver_name}, for claim {answer.name}: {text}", (), nodes)


def _proposal(
    snapshot: Snapshot, feasibility: PodFeasibility, answer: ClaimScheduling
) -> tuple[str, tuple[str, ...]]:
    alternatives = answer.alternatives
    assert alternatives is not None
    if alternatives.node_selector is None:
        if not alternatives.nodes:
            return "no other node is viable either", ()
        nodes = alternatives.nodes
        objections = _against(snapshot, feasibility, nodes)
        return f"{_nodes(nodes)} would be viable{f', but {objections}' if objections else ''}", nodes
    nodes = tuple(snapshot.matching(alternatives.node_selector))
    if not nodes:
        return "a node with other labels would be viable, but no node of the cluster has them", ()
    objections = _against(snapshot, feasibility, nodes)
    return f"{_nodes(nodes)} would be viable by label{f', but {objections}' if objections else ''}", nodes


def _against(snapshot: Snapshot, feasibility: PodFeasibility, nodes: Sequence[str]) -> str:
    """Why the nodes are not viable for the scheduler's filters or for other drivers, if that is known."""
    if not snapshot.complete:
        return ""
    return by_reason({**refusals(feasibility.answers(nodes)), **feasibility.misfits(nodes)})


def _nodes(nodes: Sequence[str]) -> str:
    return f"{noun_for(len(nodes), 'node')} {listed(nodes, MOST)}"


def _name(pod: PodReference) -> str:
    return f"{pod.namespace}/{pod.name}"
