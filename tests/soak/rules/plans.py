"""Whether pods are evicted in vain, and whether what they give up is kept: checked as it happens.

    evicted in vain      when its victims have left, its scheduler has evicted others of lower priority if it has
                         to, and nobody else took anything, the preemptor could run on the node: judged by trying
                         all ways, from what the controller knows when it requests the first eviction, unless the
                         API holds what it has not seen. And in the end the preemptor runs, or is gone; unless
                         something changed that nobody could foresee
    evicted needlessly   without any one of its victims it could not
    given away           devices that victims had, or nobody, are allocated for no pod of lower or equal priority
                         while the controller keeps the node for the preemptor, and has allocated nothing for it;
                         unless what is left is enough for it, or both are nominated for the node, and equals

Unforeseen is a change of the preemptor's node, its devices, the preemptor's classes or claims (by users and
meddlers), a pod of higher priority that came to the node, was put there, or is nominated for it or allocated
something there, and another controller, which keeps nothing; and what a controller has yet to see of classes and
claims when it evicts. A preemptor that needs CPU, or must be kept apart from others, may meet what Parley does not
keep, or does not know; and of several victims that one disruption budget counts it may spare the second, or one
that it counts only since that has begun to run (docs/limits.md).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.soak.actions.priorities import SPARED
from tests.soak.cluster.observed import Step
from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.kinds.classes import ALL_TEMPLATE_KINDS
from tests.soak.kinds.pods import ALL_POD_KINDS
from tests.soak.rules.holds import Hold
from tests.soak.rules.invariants import Invariants
from tests.soak.rules.judge import Judge, Taken, Use, bodies
from tests.soak.rules.mirrors import Device, Json, far, is_parleys, read

from parley.api.resources import BUILTIN_CLAIMS, CLAIMS, CLASSES, NODES, PODS, RESOURCE_SLICES, Resource
from parley.control.nominations import Nomination
from parley.kube.memory import MemoryServer
from parley.kube.memory.watch_cache import Change
from parley.scheduler.controller import Controller
from parley.sdk import Device as HeldDevice
from parley.simulate.anti_affinity import Pod

BINDING = 5.0
"""Seconds in which a pod that an extender let in is allocated what it asked for."""

SEEN = frozenset(one.untyped() for one in (PODS, NODES, CLASSES, CLAIMS, BUILTIN_CLAIMS, RESOURCE_SLICES))
"""What a controller must have seen for its plans to be judged."""

SAID = frozenset(one.untyped() for one in (CLASSES, CLAIMS))
"""And for what comes of them."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a controller knows: `held` are devices, and whether only shares of them, by the claim's UID."""

    controller: Controller
    held: Mapping[str, tuple[tuple[HeldDevice, ...], bool]]

    @property
    def nominations(self) -> Sequence[Nomination]:
        """What it keeps for pods that others are evicted for."""
        return tuple(self.controller._base.state.nominations._by_pod.values())

    def knows_all(self, server: MemoryServer, kinds: frozenset[Resource[Any]] = SEEN) -> bool:
        """Whether its caches have every change of these kinds."""
        caches = [cache for cache in self.controller.caches if cache.resource.untyped() in kinds]
        histories = [(cache, server.store.collection(cache.resource).history._changes) for cache in caches]
        return all(not changes or int(cache._version or 0) >= changes[-1].version for cache, changes in histories)

    def could_serve(self) -> frozenset[str]:
        """UIDs of the unbound pods of which its caches have everything that Kubernetes made for them, as its own
        writes have left that, and whose predecessors of the same name hold nothing any more: that is released
        first."""
        cluster, ledger = self.controller._base.state.cluster, self.controller.ledger
        found = (pod for pod in cluster.pods() if not pod.spec.node_name)
        return frozenset(
            pod.metadata.uid
            for pod in found
            if all(
                pod.metadata.uid in holding.pods
                for holding in ledger.of_pod_name(pod.metadata.namespace, pod.metadata.name)
            )
            and all(
                (mirror := cluster.generated.of_entry(pod, entry.name)) is not None
                and not cluster.own_writes.is_stale(mirror.metadata)
                for entry in pod.spec.resource_claims
                if entry.resource_claim_template_name
            )
        )

    def taken(self) -> Iterator[Taken]:
        """Devices, each by the one pod that uses the generated claim, or by the claim."""
        for uid, (devices, shared) in self.held.items():
            holding = self.controller.ledger.get(uid)
            alone = holding is not None and not holding.named and len(holding.pods) == 1
            owner = next(iter(holding.pods)) if alone and holding is not None else uid
            yield from (((device.pool, device.device), Hold((owner, uid), shared)) for device in devices)

    def used(self) -> Mapping[str, Use]:
        """The named claims that pods use, or that room is reserved for, by the claim's UID."""
        found = (one for one in self.controller.ledger if (one.named and one.pods) or one.allocation.reserve)
        return {one.uid: Use(one.claim, one.node, frozenset(one.pods)) for one in found}

    def of_leaving(self, plan: Nomination) -> frozenset[str]:
        """Whose devices others leave the plan: UIDs of the pods, and of the claims that they alone use."""
        used = (one for one in self.controller.ledger if one.pods and one.pods.keys() <= plan.leaving)
        return plan.leaving.union(holding.uid for holding in used)

    def assumed(self) -> Mapping[str, str]:
        """Nodes of the pods that have claims, but of those whose claims are being released one by one at this
        moment, because their scheduler rejected them."""
        usage = self.controller._base.state.cluster.usage
        of_pods = ((uid, holding.node) for holding in self.controller.ledger for uid in holding.pods)
        return {uid: node for uid, node in of_pods if usage.share(uid) is not None}

    def beside(self, plan: Nomination) -> list[Nomination]:
        """What is kept on the plan's node for others, and not allocated for them yet."""
        return [one for one in self._others(plan) if not self.controller.ledger.of_pod(one.pod)]

    def _others(self, plan: Nomination) -> Iterator[Nomination]:
        others = (one for one in self.nominations if one.pod.uid != plan.pod.uid and one.node == plan.node)
        return (one for one in others if one.priority >= plan.priority)

    def is_half_allocated(self, plan: Nomination) -> bool:
        """Whether something is allocated or released at this moment for another pod that the node is kept for."""
        wanted = (
            {claim.uid for request in one.requests.values() for claim in request.claims}
            for one in self._others(plan)
            if self.controller.ledger.of_pod(one.pod)
        )
        return any(not uids <= self.held.keys() for uids in wanted)

    def is_unwritten(self, uid: str) -> bool:
        """Whether the claim is allocated, and its built-in claim does not show that yet."""
        holding = self.controller.ledger.get(uid)
        return holding is not None and not holding.written.is_known

    def leaves_anyway(self, uid: str) -> bool:
        """Whether the pod was evicted before."""
        return self.controller._base.state.nominations.is_evicted(uid)


@dataclass(frozen=True, slots=True)
class Kept:
    """Devices of a node that pods were evicted for: those that the victims had, or nobody, at the time `since`.
    These are `leaving`."""

    devices: frozenset[Device]
    leaving: frozenset[str]
    since: float


@dataclass(frozen=True, slots=True)
class Awaited:
    """A pod was evicted: for whom, and what that one has to do with."""

    victim: str
    plan: Nomination
    classes: frozenset[str]
    claims: frozenset[str]
    there: frozenset[str]
    """UIDs of the pods that had something then."""


class Plans:
    """Follows plans from the first request on; `observe` takes every step. `second` is the scheduler with Parley's
    extender."""

    def __init__(
        self, server: MemoryServer, invariants: Invariants, leader: Callable[[], Memory | None], second: str
    ) -> None:
        self._second = second
        self._server = server
        self._invariants = invariants
        self._leader = leader
        self._judged: dict[str, Nomination] = {}
        self._kept: dict[tuple[str, str], Kept] = {}
        """By preemptor and node, as long as that is nominated there."""
        self._plan_of: dict[str, Nomination] = {}
        """By victim."""
        self._awaited: dict[str, Awaited] = {}
        """By preemptor."""
        self._counted: dict[str, float] = {}
        """Since when the disruption budget counts a pod: it runs."""
        self._look: dict[tuple[str, str], Callable[[Step], None]] = {
            ("", "pods"): self._pod,
            ("", "nodes"): self._node,
            ("resource.k8s.io", "resourceslices"): self._slice,
            ("resource.k8s.io", "resourceclaims"): self._mirror,
            ("parley.dev", "resourceclaims"): self._claim,
            ("parley.dev", "resourceclasses"): self._class,
        }

    def observe(self, step: Step) -> None:
        """Look at one change."""
        if self._kept:
            nominated = {(one.pod.uid, one.node) for one in self._nominations()}
            self._kept = {key: kept for key, kept in self._kept.items() if key in nominated}
        if self._awaited:
            self._excuse(self._is_overtaken)
        if (look := self._look.get((step.resource.group, step.resource.plural))) is not None:
            look(step)

    def _is_overtaken(self, one: Awaited) -> bool:
        """By a pod that is nominated, or has something allocated, which need not be written yet."""
        memory, plan = self._leader(), one.plan
        if memory is None:
            return False
        nominated = any(other.node == plan.node and other.priority > plan.priority for other in memory.nominations)
        new = (uid for uid, node in memory.assumed().items() if node == plan.node and uid not in one.there)
        return nominated or any(_level(pod) > plan.priority for pod in map(self._living, new) if pod is not None)

    def _nominations(self) -> Sequence[Nomination]:
        memory = self._leader()
        return memory.nominations if memory is not None else ()

    # -- plans

    def asked(self, memory: Memory, victim: str) -> None:
        """The controller requests the pod's eviction."""
        found = [one for one in memory.nominations if victim in one.leaving]
        new = [one for one in found if self._judged.get(one.pod.uid) is not one]
        if not new:
            return
        plan = new[-1]
        self._judged[plan.pod.uid] = plan
        for uid in plan.leaving:
            self._plan_of.pop(uid, None)  # an earlier plan came to nothing
        if self._of_one_budget(plan) <= 1:
            self._plan_of.update(dict.fromkeys(plan.leaving, plan))
        taken = list(memory.taken())
        leaving = memory.of_leaving(plan)
        staying = {device for device, hold in taken if hold.identity[0] not in leaving}
        devices = frozenset(set(self._devices(plan.node)) - staying)
        self._kept[plan.pod.uid, plan.node] = Kept(devices, plan.leaving, _now())
        if memory.knows_all(self._server):
            own = self._named_by(plan.pod.uid)
            others = [one for one in taken if one[1].identity[1] not in own]
            self._judge(memory, plan, Judge(self._server, self._invariants, others, memory.assumed()))

    def _named_by(self, uid: str) -> frozenset[str]:
        """UIDs of the claims that the pod names: it may have what the controller has just allocated for them."""
        pod = self._living(uid)
        entries = pod["spec"].get("resourceClaims") or () if pod is not None else ()
        names = {entry.get("resourceClaimName") for entry in entries}
        metas = [body["metadata"] for body in bodies(self._server, CLAIMS)]
        return frozenset(meta["uid"] for meta in metas if meta["name"] in names)

    def _of_one_budget(self, plan: Nomination) -> int:
        """How many of those that leave one disruption budget counts: it may spare the second of them."""
        metas = (body["metadata"] for body in bodies(self._server, PODS))
        counted = (
            SPARED.items() <= (meta.get("labels") or {}).items() for meta in metas if meta["uid"] in plan.leaving
        )
        return sum(counted)

    def _devices(self, node: str) -> Iterator[Device]:
        """Those that the controller gives; of a standalone driver nothing is kept."""
        for body in bodies(self._server, RESOURCE_SLICES):
            if body["spec"]["nodeName"] == node:
                devices = [(node, device["name"]) for device in body["spec"].get("devices") or ()]
                yield from (device for device in devices if not far([device]))

    def _judge(self, memory: Memory, plan: Nomination, judge: Judge) -> None:
        pods = {pod.metadata.uid: pod for pod in judge.pods}
        others = memory.beside(plan)
        gone = plan.leaving.union(*(one.leaving for one in others))
        together = [pods[one.pod.uid] for one in (plan, *others) if one.pod.uid in pods]
        preemptor = together[0]
        if memory.is_half_allocated(plan):
            return
        if any(pod.spec.affinity is not None for pod in together):
            return  # of pod affinity Parley knows nothing
        evicted: frozenset[str] = frozenset()
        if not judge.would_run(together, plan.node, gone) and preemptor.spec.scheduler_name != self._second:
            evicted = frozenset(judge.below(preemptor, plan.node))  # by its scheduler, afterwards
        if not self._suits(preemptor, plan.node) or not judge.would_run(together, plan.node, gone, evicted):
            self._fault("evicted in vain", f"{_who(plan)}: it could not run there without them")
        if any(entry.resource_claim_name for entry in preemptor.spec.resource_claims):
            return  # which may be allocated already, and tie it to what it has
        for uid in plan.leaving:
            pod = pods.get(uid)
            stays = pod is not None and not pod.metadata.deletion_timestamp and pod.status.phase == "Running"
            if (
                stays
                and not memory.leaves_anyway(uid)
                and judge.would_run(together, plan.node, gone - {uid}, evicted)
            ):
                self._fault("evicted needlessly", f"{_who(plan)}: it could run there with {_named(pod)}")

    def _suits(self, pod: Pod, node: str) -> bool:
        """Whether the pod's classes admit the node; the soak's selectors name one."""
        classes = {body["metadata"]["name"]: body for body in bodies(self._server, CLASSES)}
        for name in _classes(pod, self._allocated_claims()):
            for term in (classes.get(name, {}).get("suitableNodes") or {}).get("nodeSelectorTerms") or ():
                if node not in term["matchFields"][0]["values"]:
                    return False
        return True

    def _allocated_claims(self) -> frozenset[str]:
        """Those stay where they are, whatever their classes say meanwhile."""
        claims = bodies(self._server, CLAIMS)
        return frozenset(
            body["metadata"]["name"] for body in claims if (body.get("status") or {}).get("allocation")
        )

    def _fault(self, rule: str, text: str) -> None:
        self._invariants.fault(rule, text)

    # -- what comes of them

    def evicted(self, uid: str, name: str) -> None:
        """The API server evicted the pod."""
        plan = self._plan_of.pop(uid, None)
        if plan is None or plan.pod.uid not in self._invariants.pods:
            return
        preemptor = self._living(plan.pod.uid)
        if preemptor is not None and preemptor["spec"].get("nodeName"):
            return  # the request arrived late
        kept = self._kept.get((plan.pod.uid, plan.node))
        if kept is not None and any(self._counted.get(one, -1.0) >= kept.since for one in plan.leaving):
            return
        kind = plan.pod.name.split("-", 1)[-1]
        if not ALL_POD_KINDS[kind][3].keys() & {"affinity", "containers"}:
            _, templates, claims, _ = ALL_POD_KINDS[kind]
            classes = [ALL_TEMPLATE_KINDS[one][0] for one in templates] + [CLAIM_KINDS[one][0] for one in claims]
            memory = self._leader()
            if memory is None or not memory.knows_all(self._server, SAID):
                return
            there = frozenset(memory.assumed())
            self._awaited[plan.pod.uid] = Awaited(name, plan, frozenset(classes), frozenset(claims), there)

    def memory_lost(self) -> None:
        """Another controller keeps nothing."""
        self._awaited.clear()
        self._plan_of.clear()

    def in_vain(self) -> Iterator[str]:
        """At rest: who was evicted for a pod that waits still."""
        for one in self._awaited.values():
            yield f"evicted in vain: {one.victim} for {_who(one.plan)}: it waits still"

    def _excuse(self, unforeseen: Callable[[Awaited], bool]) -> None:
        self._awaited = {uid: one for uid, one in self._awaited.items() if not unforeseen(one)}

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
            self._excuse(lambda one: meta["uid"] in one.plan.leaving)
        if new is not None and bound:
            level = _level(change.last.body)
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
            self._excuse(lambda one: name in one.claims)

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
        if allocated and step.who.startswith("controller") and (self._kept or self._awaited):
            users = [pod for pod in map(self._living, now.users) if pod is not None]
            if users:  # of several, the highest got it, and let the others share
                self._allocated(max(users, key=_level), now.name[1], frozenset(now.devices))

    def _allocated(self, pod: Json, claim: str, devices: frozenset[Device]) -> None:
        uid, level, pools = pod["metadata"]["uid"], _level(pod), {pool for pool, _ in devices}

        def is_above(one: Awaited) -> bool:
            return level > one.plan.priority and (one.plan.node in pools or claim in one.claims)

        self._excuse(is_above)
        memory, nominations = self._leader(), self._nominations()
        for one in nominations:
            kept = self._kept.get((one.pod.uid, one.node))
            if kept is None or one.pod.uid == uid or level > one.priority or self._shares(uid, level, one):
                continue
            if memory is not None and memory.controller.ledger.of_pod(one.pod):
                continue  # it has what it asks for
            lost = devices & kept.devices - self._had(uid)
            if (
                lost
                and not self._promised(pod, kept)
                and not self._has_enough(memory, one, kept.devices - devices)
            ):
                text = f"{sorted(lost)} for pod {pod['metadata']['name']}, kept for {one.pod.name}"
                self._fault("given away", text)

    def _shares(self, uid: str, level: int, one: Nomination) -> bool:
        """Whether the pod, of that level, is nominated for the same node, as its equal."""
        own = (other for other in self._nominations() if other.pod.uid == uid)
        return level == one.priority and any(other.node == one.node for other in own)

    def _has_enough(self, memory: Memory | None, plan: Nomination, left: frozenset[Device]) -> bool:
        """Whether devices enough are left for the preemptor, as far as the controller knows. It may not have seen
        the allocation that was just written; and what drivers are allocating for the preemptor is its own."""
        if memory is None or not memory.knows_all(self._server, SEEN - {BUILTIN_CLAIMS.untyped()}):
            return True
        if any(map(memory.is_unwritten, self._named_by(plan.pod.uid))):
            return True  # it may share what another pod has just got
        own = {claim.uid for request in plan.requests.values() for claim in request.claims}
        others = [one for one in memory.taken() if one[1].identity[1] not in own]
        leaving = memory.of_leaving(plan)
        if any(device in left and hold.identity[0] not in leaving for device, hold in others):
            return True  # somebody else took of it, perhaps since this was decided, and may have been let to
        judge = Judge(self._server, self._invariants, others, memory.assumed())
        return any(judge.has_devices(one, plan.node) for one in judge.pods if one.metadata.uid == plan.pod.uid)

    def _had(self, uid: str) -> frozenset[Device]:
        """What the pod runs with: a claim that was recreated meanwhile gets that again."""
        pod = self._invariants.pods.get(uid)
        return (
            frozenset(device for found, _ in pod.uses.values() for device in found)
            if pod is not None
            else frozenset()
        )

    def _promised(self, pod: Json, kept: Kept) -> bool:
        """Whether the extender may have let the pod in before. What a victim had it may have again."""
        binding = pod["spec"]["schedulerName"] == self._second and _now() - kept.since < BINDING
        return pod["metadata"]["uid"] in kept.leaving or binding

    def _living(self, uid: str) -> Json | None:
        """What is written for a pod that is gone is taken back."""
        return next((body for body in bodies(self._server, PODS) if body["metadata"]["uid"] == uid), None)


def _begins_to_run(change: Change) -> bool:
    before = change.old.body["status"].get("phase") if change.old is not None else ""
    return bool(before != "Running" and change.last.body["status"].get("phase") == "Running")


def _level(pod: Json) -> int:
    found: int = pod["spec"].get("priority", 0)
    return found


def _classes(pod: Pod, without: frozenset[str]) -> Iterator[str]:
    """Those of its claims, but for the named ones `without`."""
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name in without:
            continue
        template, claim = entry.resource_claim_template_name or "", entry.resource_claim_name or ""
        found: tuple[str, Any] | None = ALL_TEMPLATE_KINDS.get(template) or CLAIM_KINDS.get(claim)
        if found is not None:
            yield found[0]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _who(plan: Nomination) -> str:
    return f"{plan.pod.name} on node {plan.node}"


def _named(pod: Pod | None) -> str:
    return pod.metadata.name if pod is not None else ""
