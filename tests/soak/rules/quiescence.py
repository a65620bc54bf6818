"""What must hold at rest, when nothing changes any more: feasible pods run, and deleted pods left nothing behind.

Whether a pod can run is decided independently, from the API's state alone, by trying all ways: it shares no code
with the negotiation but the filters of the simulated scheduler, which decide what a pod can run on.
"""

from collections.abc import Collection, Iterable, Iterator

from tests.soak.actions.priorities import Preemption
from tests.soak.cluster import standalone_process
from tests.soak.cluster.controller_process import SECOND_SCHEDULER
from tests.soak.cluster.world import Broken, World
from tests.soak.kinds.claims import CLAIM_KINDS
from tests.soak.rules.judge import Judge, done
from tests.soak.rules.kept_claims import is_immediate, kept_too_long
from tests.soak.rules.mirrors import Json
from tests.soak.rules.reading import bodies
from tests.soak.rules.reservations import not_held
from tests.soak.rules.restored import lost_in_a_restart

from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, CLAIMS, NODES, POD_SCHEDULINGS, PODS
from parley.control.holding import Holding
from parley.control.objects.pod import reference
from parley.scheduler.controller import Controller
from parley.scheduler.pods import Pods
from parley.simulate.anti_affinity import Pod
from parley.simulate.placement import BINDING_TIMEOUT

QUIET = 320.0
"""Seconds: longer than anything waits before it is tried again."""
LONGEST = 2000.0
MOST_WRITES = 12
"""So many writes of Parley's a pod may cost in QUIET seconds when the scheduler refuses it wherever Parley could
allocate: it is offered again and again, after ever longer pauses.

A scheduler's own writes are not Parley's doing. It reserves one claim of a pod, is refused another, and takes the
first back, again and again (PreBind and Unreserve in pkg/scheduler/framework/plugins/dynamicresources, v1.37.0).
"""


async def feasible_pods_run(world: World) -> None:
    """Wait until nothing is pending any more, then check every pod."""
    if not await world.settle(QUIET, LONGEST):
        waiting = sum(1 for pod in bodies(world.server, PODS) if not pod["spec"].get("nodeName"))
        await world.let_pass(QUIET)
        before = world.server.controllers_steps
        await world.let_pass(QUIET)
        writes = world.server.controllers_steps - before
        if writes > MOST_WRITES * waiting:
            raise Broken(f"never quiet: {writes} writes in {QUIET:.0f} s for {waiting} pods")
    await _binding_cycles_end(world)
    await _nothing_is_kept_any_more(world)
    await world.check()
    if faults := list(_faults(world)):
        raise Broken("\n".join(faults))
    _nothing_is_lost_in_a_restart(world)


async def _binding_cycles_end(world: World) -> None:
    """kube-scheduler waits for ten minutes in a pod's binding cycle when somebody else took the offer back that it
    had reserved: it looks at the claim's conditions, not at who reserves it."""
    if any(_is_being_bound(pod) for pod in bodies(world.server, PODS)):
        await world.let_pass(BINDING_TIMEOUT - QUIET)
        await world.settle(QUIET, LONGEST)


def _is_being_bound(pod: Json) -> bool:
    spec, nominated = pod["spec"], (pod.get("status") or {}).get("nominatedNodeName")
    return bool(nominated) and not spec.get("nodeName") and spec.get("schedulerName") != SECOND_SCHEDULER


async def _nothing_is_kept_any_more(world: World) -> None:
    """What is kept on a node for a preemptor that its scheduler does not put there (it must be kept apart from a
    pod that came, say) is kept for ten minutes, in which others wait. Whoever preempts then may have them wait
    again."""
    end = world.loop.time() + LONGEST
    while (kept := world.leader.nominations if world.leader is not None else ()) and world.loop.time() < end:
        await world.let_pass(max(min(one.until for one in kept) - world.loop.time(), 0.0) + 1.0)
        await world.settle(QUIET, LONGEST)


async def nothing_is_left(world: World) -> None:
    """All pods are deleted: wait for the rest to follow, then look for what stayed."""
    if not await world.settle(QUIET, LONGEST):
        raise Broken(f"never quiet: no pod is left, and it still writes after {LONGEST:.0f} s")
    if left := list(_left(world)):
        raise Broken("\n".join(f"left over: {what}" for what in left))
    _nothing_is_lost_in_a_restart(world)


def _nothing_is_lost_in_a_restart(world: World) -> None:
    if lost := list(lost_in_a_restart(world)) if world.plan.compared_with_successors else []:
        raise Broken("\n".join(f"lost in a restart: {what}" for what in lost))


def _left(world: World) -> Iterator[str]:
    immediate = {body["metadata"]["uid"] for body in bodies(world.server, CLAIMS) if is_immediate(body)}
    for body in bodies(world.server, PODS):
        meta = body["metadata"]
        if (meta.get("labels") or {}).get("parley.dev/reserved-claim") not in immediate:
            yield f"pod {meta['name']} ({meta.get('deletionTimestamp')})"
    for body in bodies(world.server, POD_SCHEDULINGS):
        yield f"PodScheduling {body['metadata']['name']}"
    for body in bodies(world.server, CLAIM_RELEASES):
        yield f"ClaimRelease {body['metadata']['name']} for node {body['spec']['nodeName']}"
    for body in bodies(world.server, BUILTIN_CLAIMS):
        yield from _left_of(body, "built-in claim", body["metadata"]["name"] not in CLAIM_KINDS)
    for body in bodies(world.server, CLAIMS):
        generated = "parley.dev/generated-for" in (body["metadata"].get("labels") or {})
        yield from _left_of(body, "Parley claim", generated)
    places = [place for place in world.invariants.data.places if place.claim not in immediate]
    yield from (f"data of claim {claim} on node {node}: {folder}" for claim, node, folder in places)
    yield from _left_in_memory(world)


def _left_of(body: Json, kind: str, generated: bool) -> Iterator[str]:
    name, status = body["metadata"]["name"], body.get("status") or {}
    if generated:
        yield f"{kind} {name}, generated"
    if body["metadata"].get("deletionTimestamp"):
        yield f"{kind} {name}, being deleted, with finalizers {body['metadata'].get('finalizers')}"
    may_stay = ("allocation", "driverName") if is_immediate(body) else ()
    for field in ("allocation", "reservedFor", "deallocationRequested", "keptUntil", "devices", "driverName"):
        if status.get(field) and field not in may_stay:
            yield f"{kind} {name}: status.{field} = {status[field]}"


def _left_in_memory(world: World) -> Iterator[str]:
    leader = world.leader
    if leader is None or leader.controller is None:
        yield "no controller: none leads"
        return
    immediate = {body["metadata"]["uid"] for body in bodies(world.server, CLAIMS) if is_immediate(body)}
    for holding in leader.controller.ledger:
        if holding.uid in immediate and not holding.pods:
            continue
        yield f"holding of {holding.claim} for {[pod.name for pod in holding.pods.values()]} in the ledger"
    yield from _kept_for_nobody(world)
    yield from remembered(leader.controller)
    for uid, devices in leader.driver.held().items():
        if uid in immediate:
            continue
        yield f"devices {devices} of claim {uid} in the driver"
    yield from (f"tokens of claim {uid} in the driver" for uid in leader.tokens._held)
    if world.plan.standalone:
        yield from standalone_process.remembered(world.leading_driver, world.server)
        yield from standalone_process.disagreeing(world.leading_driver, [*bodies(world.server, CLAIMS)])


def remembered(controller: Controller) -> Iterator[str]:
    """What the controller has in memory of pods and claims that are gone."""
    parts, ledger, cluster = controller._parts, controller.ledger, controller.cluster
    there = {claim.metadata.uid for claim in cluster.claims()} | {
        claim.metadata.uid for claim in cluster.mirrors()
    }
    pods = {pod.metadata.uid for pod in cluster.pods()}
    held = {holding.uid for holding in ledger}
    reconciler, publisher = parts.reconciler, parts.publisher
    found_in: dict[str, Collection[object]] = {
        "claims counted in limits": ledger.limits._place.keys() - held,
        "claims by pod in the ledger": [
            uid for found in ledger._by_pod.values() for uid, one in found.items() if not one.pods
        ],
        "claims by name in the ledger": [key for key, one in ledger._by_claim.items() if one.uid not in held],
        "superseded claims in the ledger": [
            uid for found in ledger._superseded.values() for uid in found if uid not in held
        ],
        "claims by node in the ledger": [
            uid for found in ledger._by_node.values() for uid in found if uid not in held
        ],
        "claims that others use": [uid for uid in ledger._used_by if uid not in held],
        "expected claims": ledger._expected,
        "claims that drivers have yet to undo": ledger._undone_later,
        "attempts": [user for user in reconciler._pods._attempts if user.uid not in pods],
        "pods in lines": [key for key in reconciler._pods._lines._place_of if cluster.pod(key) is None],
        "pods that count for nodes": cluster.usage._shares.keys() - pods,
        "evicted pods": controller._base.state.nominations._evicted - pods,
        "pods of unknown end": reconciler._unconfirmed - pods,
        "pods that were deleted by force": reconciler._forced_on.keys() - pods,
        "unbound pods": reconciler._never_bound - pods,
        "pods that are gone": reconciler._tracked,
        "own writes": cluster.own_writes._versions.keys() - there,
        "PodSchedulings": {
            user
            for found in (publisher._wanted, publisher._written, publisher._versions, publisher._losses)
            for user in found
            if user.uid not in pods
        },
    }
    for what, found in found_in.items():
        if found:
            yield f"{what}, remembered: {list(found)}"


def _faults(world: World) -> Iterator[str]:
    """Pods that wait although they could run, are bound and don't run, or run and have not reserved what they use,
    and claims whose conditions contradict the rest of their status."""
    yield from world.plans.in_vain()
    yield from _kept_for_nobody(world)
    memory = world.leader.memory if world.leader is not None else None
    taken = memory.taken() if memory is not None else ()
    used = memory.used() if memory is not None else {}
    reserving = world.plan.reserved_room is not None
    unconfirmed = memory.unconfirmed() if memory is not None else frozenset()
    judge = Judge(
        world.server,
        world.invariants,
        reserving=reserving,
        in_memory=taken,
        used=used,
        unconfirmed=unconfirmed,
    )
    for pod in judge.pods:
        name = pod.metadata.name
        if done(pod) or pod.metadata.deletion_timestamp or _waits_for_limit(world, pod):
            continue
        if not pod.spec.node_name and (node := judge.could_run(pod)):
            yield f"waits in vain: pod {name} could run on node {node}"
        elif pod.spec.node_name and pod.status.phase != "Running" and judge.could_start(pod):
            yield f"waits in vain: pod {name} is bound to {pod.spec.node_name}, not running"
        elif not pod.spec.node_name and (node := _could_preempt(world, judge, pod)):
            yield f"preempts nobody: pod {name} could run on node {node} without pods of lower priority"
        yield from (f"not reserved: claim {claim} for pod {name}" for claim in judge.unreserved(pod))
    if (pods := _pods(world)) is not None and world.plan.preemption is not Preemption.NONE:
        yield from world.serving_order.faults(judge, pods, SECOND_SCHEDULER)
    nodes = [body["metadata"]["name"] for body in bodies(world.server, NODES)]
    held = not_held(judge.claims.values(), bodies(world.server, PODS), nodes, judge.forced_away, judge.room)
    yield from (f"room not held: {what}" for what in held)
    for body in judge.claims.values():
        yield from (f"conditions disagree: {what}" for what in _disagreeing(body, stranded=judge.strands(body)))
    if world.plan.standalone:
        differing = standalone_process.disagreeing(world.leading_driver, judge.claims.values())
        yield from (f"books differ: {what}" for what in differing)
    for name in judge.allocatable_immediately():
        if not world.plan.class_limits or world.limits.has_room_for(name, _holdings(world)):
            yield f"waits in vain: immediate claim {name}"
    kept = [claim for claim in judge.claims.values() if not judge.is_awaited(claim)]
    yield from (f"kept too long: {what}" for what in kept_too_long(kept, world.clock()))


def _waits_for_limit(world: World, pod: Pod) -> bool:
    """Whether a class's limits, or its pool, keep from the pod what it has not got."""
    if not world.plan.class_limits and not world.plan.tokens:
        return False
    claims = {body["metadata"]["uid"] for body in bodies(world.server, CLAIMS)}
    return bool(world.limits.short_of(pod, _holdings(world), claims))


def _holdings(world: World) -> Iterable[Holding]:
    """What the leader has in its ledger."""
    leader = world.leader
    return leader.controller.ledger if leader is not None and leader.controller is not None else ()


def _could_preempt(world: World, judge: Judge, pod: Pod) -> str:
    """The node where the pod could have others evicted by now; "" if there is none, or if some were lately."""
    pods, allowed = _pods(world), world.plan.preemption is Preemption.ALLOWED
    if pods is None or not allowed or not world.evictions.may_preempt(pod.metadata.uid):
        return ""
    attempt = pods.existing_attempt(reference(pod))
    if attempt is not None and attempt.evictions.left(world.loop.time()):
        return ""
    evictable = world.evictions.evictable()
    if pod.spec.scheduler_name == SECOND_SCHEDULER:
        evictable &= (
            judge.holders()
        )  # nobody is evicted for claims if ordinary pods have to go as well (docs/limits.md)
    return judge.could_preempt(pod, evictable)


def _pods(world: World) -> Pods | None:
    """What the leader keeps about unbound pods."""
    leader = world.leader
    return leader.controller._parts.reconciler._pods if leader is not None and leader.controller else None


def _kept_for_nobody(world: World) -> Iterator[str]:
    waiting = {pod.uid for pod in world.invariants.pods.values() if pod.alive and not pod.node}
    for kept in world.leader.nominations if world.leader is not None else ():
        if kept.pod.uid not in waiting:
            yield f"left over: what is kept on node {kept.node} for pod {kept.pod.name}"


def _disagreeing(body: Json, *, stranded: bool) -> Iterator[str]:
    """Conditions of the claim that are not what its fields and its node say, or are about an older state of it."""
    meta, status = body["metadata"], body.get("status") or {}
    if meta["name"] not in CLAIM_KINDS:
        return  # a tenant's, which may be anything
    found = {condition["type"]: condition for condition in status.get("conditions") or ()}
    true = {type_ for type_, condition in found.items() if condition["status"] == "True"}
    allocated = bool(status.get("allocation"))
    ends = bool(meta.get("deletionTimestamp") or status.get("deallocationRequested") or "Releasing" in true)
    expected = {"Allocated": allocated, "Ready": allocated and "Accepted" in true and not ends and not stranded}
    expected["Ready"] = expected["Ready"] and "Failed" not in true
    if not ends and ("Stranded" in true) != stranded:
        yield f"claim {meta['name']} is {found.get('Stranded')}, with status {status}"
    for type_, holds in expected.items():
        if (type_ in true) != holds or type_ not in found:
            yield f"claim {meta['name']} is {found.get(type_)}, with status {status} and metadata {meta}"
        elif found[type_].get("observedGeneration") != meta["generation"]:
            yield f"claim {meta['name']}: {found[type_]} is not about generation {meta['generation']}"
