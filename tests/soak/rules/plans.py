"""What becomes of the plans of preemption: a rule at rest, followed from the first eviction on.

    evicted in vain   in the end the preemptor runs, or is gone; unless something unforeseeable changed

At the first eviction `plan_judge` checks the plan. As long as it holds `kept_devices` checks that nobody else gets
what it keeps.

Unforeseeable is a change of the preemptor's node, its devices, the preemptor's classes or claims (by users and
meddlers), a pod of higher priority that came to the node, was put there, or is nominated for it or allocated
something there, and another controller, which keeps nothing; and what the controller's caches lack of classes and
claims when it evicts. A preemptor that needs CPU, or must be kept apart from others, may meet what Parley does not
keep, or does not know; its equal that is nominated for the same node may get the only device that suits it; and of
several victims that one disruption budget counts it may spare the second, or one that it counts only since that
has begun to run (docs/limits.md).
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.soak.actions.priorities import SPARED
from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS
from tests.soak.kinds.pods import ALL_POD_KINDS
from tests.soak.rules.controller_memory import CLASSES_AND_CLAIMS, ControllerMemory
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.kept_devices import KeptDevices
from tests.soak.rules.mirrors import Device, Json, is_parleys, read
from tests.soak.rules.plan_judge import PlanJudge, preemptor_of
from tests.soak.rules.reading import bodies, living_pod, priority

from parley.api.resources import PODS
from parley.control.nominations import Nomination
from parley.kube.memory import MemoryServer
from parley.kube.memory.watch_cache import Change


@dataclass(frozen=True, slots=True)
class Awaited:
    """The pod `victim` is evicted for a plan: by the preemptor's classes and named claims its changes count."""

    victim: str
    plan: Nomination
    classes: frozenset[str]
    claims: frozenset[str]
    there: frozenset[str]
    """UIDs of the pods for which something was allocated when the first eviction was requested."""


class Plans:
    """Follows plans from the first request on; `observe` takes every step. `second` is the scheduler with Parley's
    extender."""

    def __init__(
        self,
        server: MemoryServer,
        invariants: Invariants,
        leader: Callable[[], ControllerMemory | None],
        second: str,
    ) -> None:
        self._server = server
        self._invariants = invariants
        self._leader = leader
        self._judge = PlanJudge(server, invariants, second)
        self._kept = KeptDevices(server, invariants, leader)
        self._judged: dict[str, Nomination] = {}
        """By preemptor."""
        self._requested: dict[str, Awaited] = {}
        """By victim: its eviction is requested, and may be under way."""
        self._awaited: dict[str, Awaited] = {}
        """By preemptor."""
        self._counted: dict[str, float] = {}
        """Since when a pod has run, so that the disruption budget counts it, by UID."""
        self._handlers: dict[tuple[str, str], Callable[[Step], None]] = {
            ("", "pods"): self._pod,
            ("", "nodes"): self._node,
            ("resource.k8s.io", "resourceslices"): self._slice,
            ("resource.k8s.io", "resourceclaims"): self._mirror,
            ("parley.dev", "resourceclaims"): self._claim,
            ("parley.dev", "resourceclasses"): self._class,
        }

    def observe(self, step: Step) -> None:
        """Follow one change."""
        self._kept.observe()
        if self._awaited or self._requested:
            self._excuse(self._is_overtaken)
        if (handle := self._handlers.get((step.resource.group, step.resource.plural))) is not None:
            handle(step)

    def _is_overtaken(self, one: Awaited) -> bool:
        """Whether a pod of higher priority was nominated for the node since, or something allocated for it there,
        even if that is not recorded yet, or fails after all."""
        memory, plan = self._leader(), one.plan
        if memory is None:
            return False
        nominated = any(other.node == plan.node and other.priority > plan.priority for other in memory.nominations)
        assumed = (uid for uid, node in memory.assumed().items() if node == plan.node)
        new = {*assumed, *memory.allocating_on(plan.node)} - one.there
        return nominated or any(
            priority(pod) > plan.priority
            for pod in (living_pod(self._server, uid) for uid in new)
            if pod is not None
        )

    def asked(self, memory: ControllerMemory, victim: str) -> None:
        """The controller requests the eviction of the pod with the UID `victim`."""
        found = [one for one in memory.nominations if victim in one.terminating]
        new = [one for one in found if self._judged.get(one.pod.uid) is not one]
        if not new:
            return
        plan = new[-1]
        self._judged[plan.pod.uid] = plan
        for uid in plan.terminating:
            self._requested.pop(uid, None)  # an earlier plan came to nothing
        if self._of_one_budget(plan) <= 1:
            self._requested.update(self._awaited_of(memory, plan))
        taken = list(memory.taken())
        self._kept.plan_made(memory, plan, taken)
        if memory.is_complete(self._server):
            self._judge.judge(memory, plan, taken)

    def _awaited_of(self, memory: ControllerMemory, plan: Nomination) -> dict[str, Awaited]:
        """What is awaited of the plan, by victim; nothing of one that may fail for good reasons."""
        kind = plan.pod.name.split("-", 1)[-1]
        if ALL_POD_KINDS[kind][3].keys() & {"affinity", "containers"}:
            return {}
        if not memory.is_complete(self._server, CLASSES_AND_CLAIMS):
            return {}
        _, templates, claims, _ = ALL_POD_KINDS[kind]
        classes = [ALL_TEMPLATE_KINDS[one][0] for one in templates] + [CLAIM_KINDS[one][0] for one in claims]
        there = frozenset(memory.assumed())
        return dict.fromkeys(plan.terminating, Awaited("", plan, frozenset(classes), frozenset(claims), there))

    def _of_one_budget(self, plan: Nomination) -> int:
        """How many of the victims one disruption budget counts: it may refuse the second eviction."""
        metas = (body["metadata"] for body in bodies(self._server, PODS))
        counted = (
            SPARED.items() <= (meta.get("labels") or {}).items()
            for meta in metas
            if meta["uid"] in plan.terminating
        )
        return sum(counted)

    def evicted(self, uid: str, name: str) -> None:
        """The API server evicted the pod."""
        requested = self._requested.pop(uid, None)
        if requested is None or requested.plan.pod.uid not in self._invariants.pods:
            return
        plan = requested.plan
        preemptor = living_pod(self._server, plan.pod.uid)
        if preemptor is not None and preemptor["spec"].get("nodeName"):
            return  # the request arrived late
        kept = self._kept.of(plan)
        if kept is not None and any(self._counted.get(one, -1.0) >= kept.since for one in plan.terminating):
            return
        memory = self._leader()
        if memory is not None and memory.is_complete(self._server, CLASSES_AND_CLAIMS):
            self._awaited[plan.pod.uid] = replace(requested, victim=name)

    def memory_lost(self) -> None:
        """Another controller keeps nothing."""
        self._awaited.clear()
        self._requested.clear()

    def in_vain(self) -> Iterator[str]:
        """At rest: the pods that were evicted for a preemptor that still waits."""
        for one in self._awaited.values():
            yield f"evicted in vain: {one.victim} for {preemptor_of(one.plan)}: it waits still"

    def _excuse(self, unforeseen: Callable[[Awaited], bool]) -> None:
        """Await nothing more of the plans for which something unforeseeable happened."""
        self._awaited = {uid: one for uid, one in self._awaited.items() if not unforeseen(one)}
        self._requested = {uid: one for uid, one in self._requested.items() if not unforeseen(one)}

    def _pod(self, step: Step) -> None:
        change = step.change
        old, new, meta = change.old, change.new, change.last.meta
        node = change.last.body["spec"].get("nodeName", "")
        bound = node and (old is None or not old.body["spec"].get("nodeName"))
        ended = change.last.body["status"].get("phase") in ("Succeeded", "Failed")
        if new is None or node or ended or meta.get("deletionTimestamp"):
            self._awaited.pop(meta["uid"], None)
        if SPARED.items() <= (meta.get("labels") or {}).items() and _begins_to_run(change):
            self._counted[meta["uid"]] = _now()
            self._excuse(lambda one: meta["uid"] in one.plan.terminating)
        if new is not None and bound:
            level = priority(change.last.body)
            self._excuse(lambda one: one.plan.node == node and (old is None or level > one.plan.priority))

    def _node(self, step: Step) -> None:
        old, new, name = step.change.old, step.change.new, step.change.last.meta["name"]
        if old is None or new is None or old.body.get("spec") != new.body.get("spec"):
            self._excuse(lambda one: one.plan.node == name)

    def _slice(self, step: Step) -> None:
        old, new, spec = step.change.old, step.change.new, step.change.last.body["spec"]
        if old is None or new is None or old.body["spec"]["devices"] != spec["devices"]:
            self._excuse(lambda one: one.plan.node == spec["nodeName"])

    def _class(self, step: Step) -> None:
        name = step.change.last.meta["name"]
        if not step.who.startswith("controller"):
            self._excuse(lambda one: name in one.classes)

    def _claim(self, step: Step) -> None:
        name = step.change.last.meta["name"]
        if not step.who.startswith("controller"):
            self._excuse(lambda one: name in one.claims or name in self._generated_for(one))

    def _generated_for(self, one: Awaited) -> set[str]:
        """The names of the claims that were generated for the preemptor: somebody may take one for another."""
        pod = living_pod(self._server, one.plan.pod.uid)
        statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or () if pod is not None else ()
        return {status["resourceClaimName"] for status in statuses}

    def _mirror(self, step: Step) -> None:
        change = step.change
        if not is_parleys(change.last.body):
            return
        now = read(change.last.body)
        if step.who in ("meddler", "tenant", "user"):
            self._excuse(lambda one: one.plan.pod.uid == now.identity[0] or now.name[1] in one.claims)
        before = read(change.old.body) if change.old is not None else None
        if before is not None and before.definite and not now.definite:  # its last user has left a shared one
            self._excuse(lambda one: now.name[1] in one.claims)
        allocated = change.new is not None and now.definite and (before is None or before.devices != now.devices)
        if (
            allocated
            and step.who.startswith("controller")
            and not (self._kept.is_empty and not self._awaited and not self._requested)
        ):
            users = [pod for pod in (living_pod(self._server, uid) for uid in now.users) if pod is not None]
            if users:  # of several, the highest got it, and let the others share
                self._allocated(max(users, key=priority), now.name[1], frozenset(now.devices))

    def _allocated(self, pod: Json, claim: str, devices: frozenset[Device]) -> None:
        level, pools = priority(pod), {pool for pool, _ in devices}

        def is_above(one: Awaited) -> bool:
            return level > one.plan.priority and (one.plan.node in pools or claim in one.claims)

        self._excuse(is_above)
        outdone = self._kept.allocated(pod, devices)
        self._excuse(lambda one: one.plan.pod.uid in outdone)


def _begins_to_run(change: Change) -> bool:
    before = change.old.body["status"].get("phase") if change.old is not None else ""
    return bool(before != "Running" and change.last.body["status"].get("phase") == "Running")


def _now() -> float:
    return asyncio.get_running_loop().time()
