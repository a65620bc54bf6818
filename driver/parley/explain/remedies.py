"""What would help a waiting pod: pods that end, a change to a node, another node, or advice for its reason code.

Remedies are evaluated rather than guessed: each node is evaluated as if other pods were gone (`node_remedies`).
Drivers that can't be asked here have only their own proposals and the advice of the reason code.
"""

from collections.abc import Iterator, Mapping, Sequence

from parley.api import reasons
from parley.api.models import ClaimScheduling, PodScheduling
from parley.api.wording import counted, listed, noun_for
from parley.drivers.workspace import WorkspaceDriver
from parley.explain.feasibility import PodFeasibility
from parley.explain.matrix import answered
from parley.explain.model import Remedy
from parley.explain.node_remedies import MOST, freeing, name_nodes, name_pod, node_remedies
from parley.explain.snapshot import Snapshot
from parley.kube.clock import rfc3339
from parley.negotiation.answers import by_reason, refusals
from parley.scheduler.attempts import NOMINATED_SECONDS

ADVICE: Mapping[str, str] = {
    reasons.CLASS_NOT_FOUND: "create the ResourceClass, or recreate the claim, or the template and then the pod, "
    "with the right name",
    reasons.WAITING_FOR_DRIVERS: "nothing to do for 30 s: standalone drivers are being asked",
    reasons.DRIVER_NOT_ANSWERING: "start the driver, or correct driverName of the class",
    reasons.DRIVER_MOVED: "wait for the pods that use what it allocated there, or delete them",
    reasons.OTHER_SCHEDULER: "recreate the pod without schedulerName, for the cluster's own scheduler",
    reasons.LIMIT_REACHED: "delete pods or claims that hold some, or raise `limits` of the class",
    reasons.PARAMETERS_INVALID: "correct the class or what parametersRef names, or recreate the claim, or the "
    "template and then the pod",
    reasons.PARAMETERS_NOT_FOUND: "create the object that parametersRef names; Parley finds it within a minute",
    reasons.PARAMETERS_FORBIDDEN: "grant what the message names: value `parameters` of the chart, or a Role",
    reasons.PARAMETERS_NOT_READ: "nothing to do: Parley tries again, after pauses of up to a minute",
    reasons.CLAIM_NOT_FOUND: "create the claim or template in the pod's namespace",
    reasons.CLAIM_NOT_MADE: "set the label that the message names, or create the claim",
    reasons.NAME_TAKEN: "delete the built-in object of that name (and recreate the pod, if the message says so), "
    "or rename yours",
    reasons.CLAIM_PENDING: "see `kubectl describe prclaim`: the claim is Immediate, and not allocated yet",
    reasons.CLAIM_IN_USE: "use a template, so that each pod has a claim of its own, or a shareable class",
    reasons.CLAIM_FULL: "wait until a pod that uses the claim ends, or create another claim for some of them",
    reasons.CONFLICTING_ALLOCATIONS: "delete the claims on one of the nodes and create them again",
    reasons.DRIVER_FAILED: "report it to the driver's vendor; the log of the controller, or of a standalone "
    "driver, has the stack trace",
    reasons.WRITE_REFUSED: "change what the API server's message names: a label, a quota, a policy",
    reasons.RELEASING: "bring the node back; if it is shut down, taint it node.kubernetes.io/out-of-service",
    reasons.CLAIM_STRANDED: "bring the claim's node back, or delete the claim to start over elsewhere",
    reasons.CLAIM_FAILED: "delete the claim and create it again: it has failed with its node",
    reasons.CLAIM_BEING_DELETED: "recreate the claim once it is gone, or the pod with another claim",
    reasons.ALLOCATING: "nothing to do: drivers are allocating on the selected node",
    reasons.ALLOCATION_FAILED: "see the driver's message; the allocation is retried with a backoff",
    reasons.PERMANENTLY_FAILED: "see the driver's message, and recreate the pod once the cause is gone",
    reasons.SCHEDULER_REFUSED: "see the scheduler's message: it checks more than Parley does, such as "
    "anti-affinity",
    reasons.SCHEDULER_CHOOSES: "nothing to do: the scheduler checks every 5 s; if it goes on, see its message",
    reasons.PREEMPTING: "nothing to do, if the terminating pods end within their grace periods",
    reasons.EVICTION_FORBIDDEN: "install the chart with preemption.enabled=true, or change the class",
    reasons.BINDING: "if it takes longer, see the pod's condition PodScheduled",
}
"""The advice for codes whose remedy does not depend on nodes; as in docs/reasons.md."""


_SILENT_SECONDS = 30.0
"""Seconds after which a scheduler that has not reported on a pod is presumed not to run."""

_OFF_BY_DEFAULT = {
    WorkspaceDriver.name: " and has --driver workspaces (the chart's nodePlugin.workspaces.enabled)"
}
"""How to enable drivers that are off in the node plugin by default."""

_USED_BY_OTHERS = frozenset({reasons.CLAIM_IN_USE, reasons.CLAIM_FULL, reasons.CLAIM_BEING_DELETED})


def remedies(
    snapshot: Snapshot, feasibility: PodFeasibility, code: str, scheduling: PodScheduling | None
) -> tuple[Remedy, ...]:
    """All remedies, best first."""
    found = [*_in_use(snapshot, feasibility), *_within_limit(snapshot, feasibility, code)]
    stranded: list[Remedy] = []
    if snapshot.complete:
        found += _pinned(feasibility, code)
        found += _preemption(feasibility)
        stranded = list(_stranded(snapshot, feasibility))
        found += stranded
        if code in (reasons.NO_CANDIDATES, reasons.NOTHING_VIABLE, ""):
            found += _without_plugins(feasibility)
            found += node_remedies(snapshot, feasibility, answered(scheduling))
    found += _proposals(snapshot, feasibility, scheduling)
    found += _idle_scheduler(snapshot, feasibility, code)
    if (
        code in ADVICE
        and not (code == reasons.CLAIM_STRANDED and stranded)
        and not _says_remedy(snapshot, feasibility, code)
    ):
        found.append(Remedy("advice", ADVICE[code]))
    return tuple(found)


def _says_remedy(snapshot: Snapshot, feasibility: PodFeasibility, code: str) -> bool:
    """Whether the message, or another remedy, says what helps here, so that the code's general advice is left
    out."""
    too_much = code == reasons.LIMIT_REACHED and feasibility.never_within_limits
    return too_much or _has_lost_claim(feasibility, code) or _has_idle_scheduler(snapshot, feasibility, code)


def _idle_scheduler(snapshot: Snapshot, feasibility: PodFeasibility, code: str) -> Iterator[Remedy]:
    """Advises to check the scheduler that has to bind the pod, if it has not reported on it."""
    if _has_idle_scheduler(snapshot, feasibility, code):
        name = feasibility.pod.spec.scheduler_name
        text = (
            f"scheduler {name} has not said anything about the pod: check whether a scheduler of that name "
            "(spec.schedulerName) runs, and recreate the pod if the name is wrong"
        )
        yield Remedy("advice", text)


def _has_idle_scheduler(snapshot: Snapshot, feasibility: PodFeasibility, code: str) -> bool:
    pod = feasibility.pod
    silent = all(condition.type != "PodScheduled" for condition in pod.status.conditions)
    age = snapshot.seconds_since(pod.metadata.creation_timestamp or "")
    return code == reasons.BINDING and silent and age is not None and age > _SILENT_SECONDS


def _has_lost_claim(feasibility: PodFeasibility, code: str) -> bool:
    """Whether somebody deleted a claim that was created for the pod: its message says what to do."""
    lost = any(claim.problem is not None and claim.problem.reported_after for claim in feasibility.claims)
    return lost and code == reasons.CLAIM_NOT_FOUND


def _without_plugins(feasibility: PodFeasibility) -> Iterator[Remedy]:
    """Advises to check node plugins of drivers that have no ResourceSlice."""
    for driver in feasibility.unpublished_drivers:
        text = (
            f"no node has a ResourceSlice of driver {driver}: check whether its node plugin runs "
            f"(kubectl -n parley-system get pods -o wide){_OFF_BY_DEFAULT.get(driver, '')}"
        )
        yield Remedy("advice", text)


def _in_use(snapshot: Snapshot, feasibility: PodFeasibility) -> Iterator[Remedy]:
    """The end of pods that use named claims of this pod."""
    for claim in feasibility.claims:
        if claim.problem is None or claim.problem.code not in _USED_BY_OTHERS:
            continue
        going = claim.problem.code == reasons.CLAIM_BEING_DELETED
        namespace = claim.problem.topics[0][1]
        holding = snapshot.state.ledger.of_claim(namespace, claim.name)
        first = feasibility.served_before((namespace, claim.name))
        who = f"{noun_for(len(first), 'pod')} {listed(list(map(name_pod, first)), MOST)}"
        verbs = ("waits", "is") if len(first) == 1 else ("wait", "are")
        then = f"; {who} {verbs[0]} for it, too, and {verbs[1]} served first" if first and not going else ""
        for pod in list(holding.pods.values())[:MOST] if holding is not None else ():
            yield Remedy(
                "podEnds",
                f"claim {claim.name} is {'gone' if going else 'free'} when pod {name_pod(pod)} ends{then}",
                (name_pod(pod),),
            )


def _within_limit(snapshot: Snapshot, feasibility: PodFeasibility, code: str) -> Iterator[Remedy]:
    """The namespace's claims of classes whose limits are reached, and when each is released."""
    if code != reasons.LIMIT_REACHED or feasibility.never_within_limits:
        return
    classes, namespace = feasibility.limited_classes, feasibility.namespace
    counted_ = [h for h in snapshot.state.ledger if h.class_name in classes and h.namespace == namespace]
    for holding in counted_[:MOST]:
        pods = tuple(map(name_pod, holding.pods.values()))
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
    """The nodes where the pod's stranded claims are, and what keeps the pod from them."""
    found = feasibility.stranded()
    if found is None:
        return
    which = f"{noun_for(len(found.claims), 'claim')} {listed(found.claims, MOST)}"
    for node, obstacle in found.obstacles.items():
        yield Remedy("node", f"node {node} has {which}, but is not eligible: {obstacle.text}", (), (node,))
    yield from freeing(snapshot, feasibility, list(found.obstacles))
    yield Remedy("advice", found.remedy)


def _pinned(feasibility: PodFeasibility, code: str) -> Iterator[Remedy]:
    """Unused claims of the pod that are kept on nodes where it can't run, though it could elsewhere."""
    if code not in (reasons.NO_CANDIDATES, reasons.NOTHING_VIABLE, reasons.CLAIM_STRANDED):
        return
    for claim in feasibility.claims:
        holding = claim.holding
        nodes = tuple(holding.nodes or ()) if holding is not None else ()
        if holding is None or holding.kept_until is None or holding.pods or not nodes:
            continue
        if not feasibility.feasible_if_recreated(claim) <= frozenset(nodes):
            text = (
                f"claim {holding.path} is kept on {name_nodes(nodes)} until {rfc3339(holding.kept_until)}, "
                "though no pod uses it: recreate it to start over on another node"
            )
            yield Remedy("claimEnds", text, (), nodes)


def _preemption(feasibility: PodFeasibility) -> Iterator[Remedy]:
    """The pods that the controller evicts for this one, or is evicting."""
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
    if node := feasibility.nominated_node:
        text += (
            f". Evictions wait while the pod is nominated for node {node} (status.nominatedNodeName), because its "
            f"scheduler may be binding it there, but for {NOMINATED_SECONDS / 60:g} minutes at most"
        )
    yield Remedy("preemption", text, names, (plan.node,))


def _proposals(
    snapshot: Snapshot, feasibility: PodFeasibility, scheduling: PodScheduling | None
) -> Iterator[Remedy]:
    """The alternatives that standalone drivers proposed."""
    for answer in scheduling.status.claims if scheduling is not None else ():
        asked = feasibility.standalone_drivers.get(answer.name) == answer.driver_name
        if not asked or answer.alternatives is None or answer.viable_nodes or answer.waiting_for is not None:
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
        return f"{name_nodes(nodes)} would be viable{f', but {objections}' if objections else ''}", nodes
    nodes = tuple(snapshot.nodes_matching(alternatives.node_selector))
    if not nodes:
        return "a node with other labels would be viable, but no node of the cluster has them", ()
    objections = _against(snapshot, feasibility, nodes)
    return f"{name_nodes(nodes)} would be viable by label{f', but {objections}' if objections else ''}", nodes


def _against(snapshot: Snapshot, feasibility: PodFeasibility, nodes: Sequence[str]) -> str:
    """Why the nodes are ruled out by the scheduler's filters or by other drivers, as far as known."""
    if not snapshot.complete:
        return ""
    return by_reason({**refusals(feasibility.answers(nodes)), **feasibility.misfits(nodes)})
