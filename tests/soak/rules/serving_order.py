"""Whether pods are served by priority: what must hold at rest, when nobody interferes any more.

    out of turn   no pod waits for what one of lower priority, of the same kind and scheduler, got during the rest

Pods of one kind ask for the same. A controller can serve those whose claims its watches have shown. Those that
their scheduler refused somewhere stand in no line with others, nor do those for which a driver has just failed, or
has failed for good. Those behind a pod for which a driver takes its time wait for that, and others give way to
them for ten seconds. A pod that preempts nobody waits for room that the scheduler makes by evictions. Of those
that are offered the same node it chooses itself, a standalone driver may answer the one that comes first last, and
after a restart lines are formed anew (docs/limits.md).
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS, STANDALONE_CLASS_KINDS
from tests.soak.kinds.pods import ALL_POD_KINDS
from tests.soak.rules.controller_memory import ControllerMemory
from tests.soak.rules.judge import Judge, done
from tests.soak.rules.mirrors import Json, is_parleys, read

from parley.control.objects.pod import priority, reference
from parley.scheduler.pods import Pods
from parley.simulate.anti_affinity import Pod
from parley.simulate.preemption import BY_SCHEDULER

FORMED = 60.0
"""Seconds after which lines are as they were before a restart."""


class ServingOrder:
    """When each pod was allocated a claim for the first time. `observe` takes every step."""

    def __init__(self, leader: Callable[[], ControllerMemory | None]) -> None:
        self._leader = leader
        self._since = 0.0
        self._served: dict[str, float] = {}
        self._chosen: dict[str, frozenset[str]] = {}
        self._could_be: dict[str, frozenset[str]] = {}
        """Whom the controller could have served instead, by the UID of who was."""
        self._evicted: dict[str, float] = {}
        """When the scheduler last evicted a pod from each node."""

    def observe(self, step: Step) -> None:
        """Look at one change."""
        change, kind = step.change, (step.resource.group, step.resource.plural)
        if kind == ("", "pods") and change.old is not None and change.new is not None:
            self._pod_changed(change.old.body, change.new.body)
        if change.new is None or kind != ("resource.k8s.io", "resourceclaims"):
            return
        if step.who.startswith("controller") and is_parleys(change.last.body):
            record = read(change.last.body)
            if record.definite and (change.old is None or not read(change.old.body).definite):
                for user in [user for user in record.users if user not in self._served]:
                    self._serve(user, by_scheduler=record.offer)

    def _pod_changed(self, old: Json, new: Json) -> None:
        if _is_preempted(new) and not _is_preempted(old):
            self._evicted[new["spec"].get("nodeName", "")] = _now()

    def allocating(self, user: str) -> None:
        """The leader has chosen the pod, and begins to allocate for it: its record comes later."""
        self._chosen[user] = self._could_serve(user)

    def _serve(self, user: str, *, by_scheduler: bool) -> None:
        """The pod got what it asked for; `by_scheduler`: what it was offered, so that its scheduler chose."""
        self._served[user] = _now()
        chosen = self._chosen.pop(user, None)
        could_be = chosen if chosen is not None else self._could_serve(user)
        self._could_be[user] = could_be if not by_scheduler else frozenset()

    def _could_serve(self, user: str) -> frozenset[str]:
        memory = self._leader()
        return memory.servable(user) if memory is not None else frozenset()

    def memory_lost(self) -> None:
        """A controller begins."""
        self._since = max(self._since, _now() + FORMED)

    def rest(self) -> None:
        """From now on nobody interferes."""
        self._since = max(self._since, _now())

    def faults(self, judge: Judge, pods: Pods, second: str) -> Iterator[str]:
        """Who waits for what one of lower priority got."""
        ours = [pod for pod in judge.pods if pod.spec.scheduler_name != second and not done(pod)]
        served = [pod for pod in ours if self._served.get(pod.metadata.uid, 0.0) > self._since]
        for pod in ours:
            attempt = pods.existing_attempt(reference(pod))
            if pod.spec.node_name or attempt is None or attempt.exact or attempt.excluded:
                continue
            for other in served:
                if pod.metadata.uid not in self._could_be[other.metadata.uid] or not self._before(pod, other):
                    continue
                if self._only_by_evictions(pod, other):
                    continue
                if judge.would_run([pod], other.spec.node_name, {other.metadata.uid}):
                    yield f"out of turn: {_told(other)} was served, and {_told(pod)} waits"

    def _only_by_evictions(self, pod: Pod, other: Pod) -> bool:
        """Whether the other pod's scheduler made room for it, which it does not for a pod that preempts nobody."""
        if pod.spec.preemption_policy != "Never" or other.spec.preemption_policy == "Never":
            return False
        return self._evicted.get(other.spec.node_name, -1.0) >= self._served[other.metadata.uid]

    def _before(self, pod: Pod, other: Pod) -> bool:
        kind = pod.metadata.labels.get("kind", "")
        if kind != other.metadata.labels.get("kind") or kind not in ALL_POD_KINDS:
            return False
        _, templates, claims, _ = ALL_POD_KINDS[kind]
        classes = {ALL_TEMPLATE_KINDS[one][0] for one in templates} | {CLAIM_KINDS[one][0] for one in claims}
        chosen_by_others = "exact" in classes or not classes.isdisjoint(STANDALONE_CLASS_KINDS)
        return not chosen_by_others and priority(pod) > priority(other) and bool(other.spec.node_name)


def _is_preempted(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("reason") == BY_SCHEDULER for one in conditions)


def _told(pod: Pod) -> str:
    return f"pod {pod.metadata.name} of priority {priority(pod)}"


def _now() -> Any:
    return asyncio.get_running_loop().time()
