"""What must hold whenever Parley evicts a pod, checked as it happens. `Invariants` has the other rules.

    wrongly evicted   a pod is evicted for one that may do so: of higher priority, not `preemptionPolicy: Never`;
                      classes of both say LowerPriority; by the eviction API, which took it from the pod's
                      disruption budget

A running pod's claim that an administrator deleted does not speak for it until it is there again, and was lately
seen by every controller: after a restart nobody knows what was allocated there (docs/limits.md).

For whom a pod is evicted is in no object but in the controller's memory. So `WatchedEvictions` looks there when
the request leaves: for whom it is, and what its cache says of classes if that is behind. What a class said just
before counts as well: the request may arrive late.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tests.soak.actions.priorities import SPARED
from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS
from tests.soak.rules.mirrors import is_parleys, read

from parley.control.nominations import Nomination
from parley.kube.client import Client
from parley.kube.transport import Call, Transport

Json = dict[str, Any]

LATELY = 60.0
"""Seconds that a request may take to arrive."""

UNSEEN = 300.0
"""Seconds: longer than controllers are stopped or cut off, and do not see built-in claims, together."""


@dataclass(frozen=True, slots=True)
class Evictable:
    """A pod as far as evictions go. `generated` are classes of claims from templates, `named` of the `claims` that
    it names."""

    name: str
    priority: int
    never: bool
    spared: bool
    generated: tuple[str, ...]
    claims: tuple[str, ...]

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(CLAIM_KINDS[name][0] for name in self.claims)


class WatchedEvictions(Client):
    """Calls `asked` with the pod's UID when its eviction is requested."""

    def __init__(self, transport: Transport, asked: Callable[[str], None]) -> None:
        super().__init__(transport)
        self._asked = asked

    async def request(self, call: Call) -> bytes:
        if call.subresource == "eviction":
            self._asked(call.body["deleteOptions"]["preconditions"]["uid"])
        return await super().request(call)


class Evictions:
    """Follows pods, classes and budgets; `observe` takes every step. `evicted` is called with the UID and name of
    each pod that Parley evicts, but for requests that arrive late."""

    def __init__(self, fault: Callable[[str, str], None], evicted: Callable[[str, str], None]) -> None:
        self._fault = fault
        self._evicted = evicted
        self._pods: dict[str, Evictable] = {}
        self._said: dict[str, float] = {}
        """When each class said LowerPriority last."""
        self._says: dict[str, bool] = {}
        self._counted: dict[str, frozenset[tuple[str, str]]] = {}
        """Pods that each budget counts as disrupted, and since when."""
        self._spare: set[str] = set()
        """The budgets that allow no disruption."""
        self._taken = ""
        """The pod, by name, of which a budget has just counted the eviction."""
        self._preemptors: dict[str, tuple[str, ...]] = {}
        self._believed: dict[str, Collection[str]] = {}
        """The classes that say LowerPriority as far as the controller knew that requested the pod's eviction."""
        self._there: set[str] = set()
        """The named claims that exist."""
        self._lost: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """Classes of claims that pods lost, by the pod's UID: until when controllers may not know of them: for
        ever until there is such a claim again."""
        self.count = 0
        """So many pods were evicted."""
        self._look: dict[str, Callable[[Step], None]] = {
            "pods": self._pod,
            "resourceclasses": self._class,
            "poddisruptionbudgets": self._budget,
            "resourceclaims": self._claim,
        }

    def asked(self, victim: str, nominations: Sequence[Nomination], believed: Collection[str] = ()) -> None:
        """A controller that has these nominations requests the pod's eviction. Its cache is behind, and says that
        the classes `believed` say LowerPriority."""
        self._believed[victim] = believed
        self._preemptors[victim] = tuple(one.pod.uid for one in nominations if victim in one.terminating)

    def observe(self, step: Step) -> None:
        """Look at one change."""
        if (look := self._look.get(step.resource.plural)) is not None:
            look(step)

    def _pod(self, step: Step) -> None:
        change, uid = step.change, step.change.last.meta["uid"]
        if change.old is None:
            self._pods[uid] = _evictable(change.last.body)
            return
        goes = change.new is None or bool(change.last.meta.get("deletionTimestamp"))
        if goes and not change.old.meta.get("deletionTimestamp") and step.who.startswith("controller"):
            self.count += 1
            if not step.who.endswith("(late)"):  # else its repetition may have been refused: the plan ended
                self._evicted(uid, change.last.meta["name"])
            for why in self._against(uid, change.old.body):
                self._fault("wrongly evicted", f"pod {change.last.meta['name']}: {why}")
        self._taken = ""

    def _against(self, uid: str, body: Json) -> Iterator[str]:
        """What speaks against this eviction."""
        victim = self._pods[uid]
        if victim.spared and _ready(body) and self._taken != victim.name:
            yield "its disruption budget was not asked"
        lost = self._lost.get(uid, {})
        known = [one for one in (*victim.generated, *victim.named) if lost.get(one, -inf) < _now()]
        believed = self._believed.get(uid, ())
        yield from (f"class {name} does not say so" for name in self._keep(known, believed))
        preemptors = [self._pods[one] for one in self._preemptors.get(uid, ()) if one in self._pods]
        reasons = [list(self._against_preemptor(victim, one, believed)) for one in preemptors]
        if not all(reasons):
            return
        yield from (reasons[0] if reasons else ["for nobody"])

    def _against_preemptor(
        self, victim: Evictable, preemptor: Evictable, believed: Collection[str]
    ) -> Iterator[str]:
        if preemptor.priority <= victim.priority:
            yield f"for {preemptor.name} of priority {preemptor.priority}, its own is {victim.priority}"
        if preemptor.never:
            yield f"for {preemptor.name}, which preempts nobody"
        # Its named claims, or some of them, may have been allocated before, and only the others wait.
        waiting = preemptor.generated or preemptor.named
        against = self._keep(waiting, believed)
        if not preemptor.generated and len(against) < len(waiting):
            return
        yield from (f"for {preemptor.name}: class {name} does not say so" for name in against)

    def _keep(self, classes: Sequence[str], believed: Collection[str]) -> list[str]:
        """Those that did not say LowerPriority lately, and are not `believed` to."""
        since = _now() - LATELY
        silent = (name for name in classes if not self._says.get(name) and name not in believed)
        return [name for name in silent if self._said.get(name, -inf) <= since]

    def may_preempt(self, uid: str) -> bool:
        """Whether the pod may have others evicted for what it asks for, by what all say now."""
        pod = self._pods[uid]
        says = all(self._says.get(name) for name in (*pod.generated, *pod.named))
        return bool(pod.generated) and says and not pod.never

    def evictable(self) -> frozenset[str]:
        """UIDs of the pods that may be evicted now, if they are bound. What the class of a claim says that is gone
        a controller need not know."""
        spared = bool(self._spare) or len(self._counted) > 1
        return frozenset(
            uid
            for uid, pod in self._pods.items()
            if pod.generated
            and self._there.issuperset(pod.claims)
            and all(self._says.get(name) for name in (*pod.generated, *pod.named))
            and not (pod.spared and spared)
        )

    def _class(self, step: Step) -> None:
        name = step.change.last.meta["name"]
        if self._says.get(name):
            self._said[name] = _now()
        self._says[name] = step.change.new is not None and step.change.last.body["preemption"] == "LowerPriority"

    def _claim(self, step: Step) -> None:
        old, new = step.change.old, step.change.new
        if step.resource.group != "resource.k8s.io":
            (self._there.discard if new is None else self._there.add)(step.change.last.meta["name"])
            return
        if not is_parleys(step.change.last.body):
            return
        owner, _ = read((old or step.change.last).body).identity
        if new is None and step.who == "meddler":
            self._lost[owner][_class_of(step.change.last.body)] = inf
        elif old is None and owner in self._lost:
            self._lost[owner][_class_of(step.change.last.body)] = _now() + UNSEEN

    def _budget(self, step: Step) -> None:
        name, status = step.change.last.meta["name"], step.change.last.body.get("status") or {}
        if step.change.new is None:
            self._counted.pop(name, None)
            self._spare.discard(name)
            return
        if status.get("disruptionsAllowed"):
            self._spare.discard(name)
        else:
            self._spare.add(name)
        counted = frozenset((status.get("disruptedPods") or {}).items())
        new = counted - self._counted.get(name, frozenset())
        self._counted[name] = counted
        if step.who.startswith("controller") and len(new) == 1:
            ((self._taken, _),) = new


def _evictable(body: Json) -> Evictable:
    spec, meta = body["spec"], body["metadata"]
    entries = spec.get("resourceClaims") or ()
    templates = [entry.get("resourceClaimTemplateName", "") for entry in entries]
    claims = [entry.get("resourceClaimName", "") for entry in entries]
    return Evictable(
        meta["name"],
        spec.get("priority", 0),
        spec.get("preemptionPolicy") == "Never",
        SPARED.items() <= (meta.get("labels") or {}).items(),
        tuple(ALL_TEMPLATE_KINDS[name][0] for name in templates if name in ALL_TEMPLATE_KINDS),
        tuple(name for name in claims if name in CLAIM_KINDS),
    )


def _class_of(claim: Json) -> str:
    """The class that a built-in claim of Parley asks for."""
    name: str = claim["spec"]["devices"]["config"][0]["opaque"]["parameters"]["resourceClassName"]
    return name


def _ready(body: Json) -> bool:
    """A budget that is kept without it does not count a pod that is not, nor one that has ended."""
    conditions = body["status"].get("conditions") or ()
    return body["status"].get("phase") == "Running" and any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
