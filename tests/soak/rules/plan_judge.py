"""Whether a controller evicts the right pods: rules when it requests the first eviction of a plan.

A plan is a nomination: the preemptor, its node, and the victims that leave it.

    evicted in vain      when its victims have left, its scheduler has evicted others of lower priority if it has
                         to, and nobody else took anything, the preemptor could run on the node: judged by trying
                         all ways, from what the controller has in memory, unless its caches lack a change
    evicted needlessly   without any one of its victims it could not

What becomes of the plan afterwards is checked in `plans`.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Any

from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS
from tests.soak.rules.controller_memory import ControllerMemory
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.judge import Judge, Taken
from tests.soak.rules.reading import bodies, named_claims

from parley.api.resources import CLAIMS, CLASSES
from parley.control.nominations import Nomination
from parley.kube.memory import MemoryServer
from parley.simulate.anti_affinity import Pod


class PlanJudge:
    """Checks plans. `second` is the scheduler with Parley's extender."""

    def __init__(self, server: MemoryServer, invariants: Invariants, second: str) -> None:
        self._server = server
        self._invariants = invariants
        self._second = second

    def judge(self, memory: ControllerMemory, plan: Nomination, taken: Sequence[Taken]) -> None:
        """Check the plan of a controller that has `taken` and the rest in memory."""
        own = named_claims(self._server, plan.pod.uid)  # it may have what was just allocated for these
        others = memory.beside(plan)
        coming = {claim for claim, pod in memory.allocating.items() if pod in {one.pod.uid for one in others}}
        of_others = [one for one in taken if one[1].identity[1] not in own | coming]
        judge = Judge(self._server, self._invariants, of_others, memory.assumed())
        pods = {pod.metadata.uid: pod for pod in judge.pods}
        gone = plan.terminating.union(*(one.terminating for one in others))
        together = [pods[one.pod.uid] for one in (plan, *others) if one.pod.uid in pods]
        preemptor = together[0]
        if memory.is_half_allocated(plan):
            return
        if any(pod.spec.affinity is not None for pod in together):
            return  # Parley does not look at pod affinity
        if any(one.claims.keys() - named_claims(self._server, one.pod.uid) for one in others):
            return  # a claim that another pod is nominated with is gone: its nomination is about to end
        evicted: frozenset[str] = frozenset()
        if not judge.would_run(together, plan.node, gone) and preemptor.spec.scheduler_name != self._second:
            evicted = frozenset(judge.below(preemptor, plan.node))  # by its scheduler, afterwards
        victims_of_others = {pod.metadata.uid for pod in judge.pods if pod.metadata.deletion_timestamp}
        left = gone | victims_of_others
        if not judge.would_run(together, plan.node, left, evicted):
            # others that somebody has taken the CPU from since need not run
            together = _fitting(judge, preemptor, together[1:], plan.node, left, evicted)
        if not self._suits(preemptor, plan.node) or not judge.would_run(together, plan.node, left, evicted):
            self._invariants.fault("evicted in vain", f"{preemptor_of(plan)}: it could not run there without them")
        if any(entry.resource_claim_name for entry in preemptor.spec.resource_claims):
            return  # which may be allocated already, and tie it to what it has
        for uid in plan.terminating:
            pod = pods.get(uid)
            stays = pod is not None and not pod.metadata.deletion_timestamp and pod.status.phase == "Running"
            if (
                stays
                and not memory.leaves_anyway(uid)
                and judge.would_run(together, plan.node, gone - {uid}, evicted)
            ):
                self._invariants.fault(
                    "evicted needlessly", f"{preemptor_of(plan)}: it could run there with {_named(pod)}"
                )

    def _suits(self, pod: Pod, node: str) -> bool:
        """Whether the classes of the pod's claims admit the node. The selectors of a soak name one node."""
        classes = {body["metadata"]["name"]: body for body in bodies(self._server, CLASSES)}
        for name in _classes(pod, self._allocated_claims()):
            for term in (classes.get(name, {}).get("suitableNodes") or {}).get("nodeSelectorTerms") or ():
                if node not in term["matchFields"][0]["values"]:
                    return False
        return True

    def _allocated_claims(self) -> frozenset[str]:
        """Names of the allocated Parley claims. They stay where they are, whatever their classes say meanwhile."""
        claims = bodies(self._server, CLAIMS)
        return frozenset(
            body["metadata"]["name"] for body in claims if (body.get("status") or {}).get("allocation")
        )


def _classes(pod: Pod, without: frozenset[str]) -> Iterator[str]:
    """The classes of the pod's claims, but for the named claims `without`."""
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name in without:
            continue
        template, claim = entry.resource_claim_template_name or "", entry.resource_claim_name or ""
        found: tuple[str, Any] | None = ALL_TEMPLATE_KINDS.get(template) or CLAIM_KINDS.get(claim)
        if found is not None:
            yield found[0]


def _fitting(
    judge: Judge, preemptor: Pod, others: Sequence[Pod], node: str, gone: Set[str], evicted: Set[str]
) -> list[Pod]:
    """The preemptor and those of the others that could run on the node without it."""
    fitting: list[Pod] = []
    for pod in others:
        if judge.would_run([*fitting, pod], node, gone, evicted):
            fitting.append(pod)
    return [preemptor, *fitting]


def preemptor_of(plan: Nomination) -> str:
    """The preemptor and its node, in a message."""
    return f"{plan.pod.name} on node {plan.node}"


def _named(pod: Pod | None) -> str:
    return pod.metadata.name if pod is not None else ""
