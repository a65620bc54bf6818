"""What a controller that starts restores, compared at rest with the memory of the one that leads.

The successor is a real controller. It reads all objects and then does what a controller does at its start
(`Controller.rebuild`), within one turn of the event loop; it decides and writes nothing.

    lost in a restart      the successor lacks what the leader has in memory, or has something else

No object records the following, which may differ:

- A generated claim may have been recreated for its pod. The holding has the UID and the name of the first one, the
  successor's those of the present one. So holdings of generated claims are compared by pod and entry.
- `node`, if the claim can be used on several nodes: the one that it was allocated for. And so the node that its
  pods count for before they are bound; also that of pods for which a standalone driver is allocating.
- `shareable`, if the built-in claim was recreated since, or shows nothing yet: it may be shared only if that and
  the record say so. And of generated claims of standalone drivers: one pod uses them in any case.
- `used`: a pod may have run with all that is restored.
- `phase`: a leader begins with UNRESERVING what is RELEASING.
- `units` and limits, where they depend on an object with parameters that the successor has not read yet.
- `kept_until` is recorded without fractions of a second, and while no pod uses the claim.
- What is recorded of a named claim only in itself, once somebody has removed it by force: all of a standalone
  driver's allocation, for whose end a new claim of the name waits; else the room that it reserves, whether it is
  shareable or immediate, and until when it is kept. Its pods may have lost their reservation in the built-in
  claim, which is being deleted; then its nodes owe receipts. If its built-in claim is gone or cleared, too, only
  ClaimReleases show it, without its pods, and nothing does if it has no node part (docs/limits.md), or was never
  shown to a node. If its built-in claim was orphaned before (`--cascade=orphan`), that is restored as one that no
  named claim had.
- A pod that its scheduler let in to a shareable claim, which only the built-in claim shows: it becomes a user when
  it is reconciled.
- What the PodScheduling of a bound pod still asks for: that ends when the pod is reconciled.

Nothing is compared while a driver is allocating: for a pod that its scheduler refuses everywhere it is asked again
and again. Never compared is what describes the leader's own writes and watches (`written`, `lists_read`,
`unseen_users`, `shown_by`), and what it keeps about waiting pods.
"""

import random
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.soak.cluster.controller_process import ControllerProcess, new_controller, new_driver
from tests.soak.cluster.world import World
from tests.soak.drivers.counted import CountedDriver
from tests.soak.drivers.variants import ZonedTokens

from parley.api.builtin import BuiltinClaim
from parley.control.holding import Holding, Phase, Written
from parley.control.objects.mirror import named_claim_uid
from parley.scheduler.controller import Controller

Identity = tuple[str, ...]
"""Of a claim: its UID, or the pod and the entry that it was generated for."""

_COMPARED = (
    "namespace",
    "named",
    "class_name",
    "immediate",
    "standalone",
    "node_part",
    "offered",
    "records_units",
    "removing",
    "uses",
)
"""The fields of a holding that have to be the same in any case."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """A controller, and its drivers."""

    controller: Controller
    driver: CountedDriver
    tokens: ZonedTokens

    @property
    def holdings(self) -> Mapping[Identity, Holding]:
        return {self._identity(holding): holding for holding in self.controller.ledger}

    def identity(self, uid: str) -> Identity:
        holding = self.controller.ledger.get(uid)
        return self._identity(holding) if holding is not None else (uid,)

    def _identity(self, holding: Holding) -> Identity:
        orphan, users = _orphan(self, holding), sorted(holding.pods)
        if holding.named and orphan is None:
            return (holding.uid,)
        uid = orphan.metadata.uid if orphan is not None else holding.uid
        return (users[0], "" if holding.named else holding.entry) if users else (uid,)


def lost_in_a_restart(world: World) -> Iterator[str]:
    """What a controller that started now would not have in memory as the leader has it."""
    leader = world.leader
    if leader is None or leader.controller is None or leader.controller.ledger.allocating:
        return
    memory = _Memory(leader.controller, leader.driver, leader.tokens)
    successor = _restored(world, leader)
    removed = {id_ for id_, held in memory.holdings.items() if held.named and not _has_record(memory, held)}
    lost = {id_ for id_ in removed if memory.holdings[id_].standalone or _is_shown_nowhere(memory, id_)}
    names = {memory.holdings[id_].path for id_ in lost}
    lost |= {id_ for id_, held in successor.holdings.items() if held.standalone and held.path in names}
    for id_ in sorted((memory.holdings.keys() | successor.holdings.keys()) - lost):
        ours, restored = memory.holdings.get(id_), successor.holdings.get(id_)
        if ours is None or restored is None:
            yield f"holding {'/'.join(id_)}: {ours}, restored {restored}"
        elif id_ in removed:
            yield from _differing_removed(ours, restored)
        else:
            yield from _differing_holdings(ours, restored, _let_in(memory, ours), shown=_is_shown(memory, ours))
    uncounted = {id_ for id_, holding in successor.holdings.items() if not holding.counted}
    for what, one, other in _other_memory(memory, successor, lost, uncounted):
        yield from _differing(what, one, other)


def _restored(world: World, leader: ControllerProcess) -> _Memory:
    """What a controller that starts now has in memory, before it decides anything."""
    driver, tokens = new_driver(world.plan, random.Random(0)), ZonedTokens()
    with world.loop.without_timers():
        controller = new_controller(world.server.client(), world.plan, driver, tokens, leader.clock)
        for cache in controller.caches:
            _at_once(cache._list())
        controller.rebuild()
    return _Memory(controller, driver, tokens)


def _at_once(work: Coroutine[Any, Any, object]) -> None:
    """Do it within this turn of the event loop: it waits for nothing but the loop's next turns."""
    try:
        while True:
            work.send(None)
    except StopIteration:
        pass


def _has_record(memory: _Memory, holding: Holding) -> bool:
    key = (holding.namespace, holding.claim)
    return memory.controller.cluster.claim_with_uid(key, holding.uid) is not None


def _is_shown_nowhere(memory: _Memory, identity: Identity) -> bool:
    """Whether the claim, which somebody has removed by force, was cleared in its mirror as well, or lost that, and
    no node owes a receipt for it: it has no node part, or no node has ever seen it."""
    holding = memory.holdings[identity]
    unseen = holding.written is Written.NO and not holding.owed
    return (not holding.node_part or unseen) and not _is_shown(memory, holding)


def _is_shown(memory: _Memory, holding: Holding) -> bool:
    """Whether the present mirror shows the allocation."""
    mirror = memory.controller.cluster.mirror((holding.namespace, holding.claim))
    return mirror is not None and mirror.metadata.uid in holding.shown_by and mirror.status.allocation is not None


def _orphan(memory: _Memory, holding: Holding) -> BuiltinClaim | None:
    """The mirror of a named claim that somebody has removed by force, if that shows the allocation and no longer
    whose it was."""
    if not holding.named or _has_record(memory, holding) or not _is_shown(memory, holding):
        return None
    mirror = memory.controller.cluster.mirror((holding.namespace, holding.claim))
    return mirror if mirror is not None and not named_claim_uid(mirror) else None


def _let_in(memory: _Memory, holding: Holding) -> set[str]:
    """UIDs of the pods that the claim's mirror is reserved for."""
    mirror = memory.controller.cluster.mirror((holding.namespace, holding.claim))
    return {user.uid for user in mirror.status.reserved_for} if mirror is not None else set()


def _differing_holdings(ours: Holding, restored: Holding, let_in: set[str], *, shown: bool) -> Iterator[str]:
    """`shown`: its mirror shows the allocation."""
    name, phases = f"holding of {ours.claim}", {Phase.RELEASING: Phase.UNRESERVING}
    own = "claim" if ours.named else "entry"
    compared = ("driver", "allocation", "owed", own, *_COMPARED)
    fields = [(field, getattr(ours, field), getattr(restored, field)) for field in compared]
    fields.append(("pods", ours.pods.keys() | let_in, restored.pods.keys() | let_in))
    fields.append(("phase", phases.get(ours.phase, ours.phase), restored.phase))
    if not ours.pods:
        fields.append(("kept until", _to_the_second(ours), _to_the_second(restored)))
    if shown and (ours.named or not ours.standalone):
        fields.append(("shareable", ours.shareable, restored.shareable))
    if ours.only_node is not None:
        fields.append(("node", ours.node, restored.node))
    if restored.counted:
        fields.append(("units", ours.units, restored.units))
    for field, one, other in fields:
        yield from _differing(f"{name}: {field}", one, other)
    if ours.used and not restored.used:
        yield f"{name}: it was used, restored as if it was not"


def _differing_removed(ours: Holding, restored: Holding) -> Iterator[str]:
    """What differs of a claim that somebody has removed by force: what is allocated, and whether pods or nodes
    still have it. Its pods may have lost their reservation in the mirror: then its nodes owe receipts."""
    name = f"holding of {ours.claim}, which was removed"
    yield from _differing(f"{name}: driver", ours.driver, restored.driver)
    allocations = [replace(one.allocation, reserve=None) for one in (ours, restored)]
    yield from _differing(f"{name}: allocation", *allocations)
    if missing := ours.owed - restored.owed:
        yield f"{name}: {missing} are not owed"
    if ours.pods and not (restored.pods or restored.owed):
        yield f"{name}: it is free for others"


def _to_the_second(holding: Holding) -> object:
    return holding.kept_until.replace(microsecond=0) if holding.kept_until is not None else None


def _other_memory(
    leader: _Memory, successor: _Memory, lost: set[Identity], uncounted: set[Identity]
) -> Iterator[tuple[str, object, object]]:
    """Other parts of both memories, with their names; without what is `lost`, as its claim was removed by force,
    and without the units of what is `uncounted`."""
    for what, of in (
        ("limits", lambda memory: _limits(memory, lost, uncounted)),
        ("expected", _expected),
        ("moved", lambda memory: memory.controller.state.moved._by_driver),
        ("accepted", lambda memory: memory.controller._parts.claims._immediate._accepted),
        ("pods that count for nodes", _counted_pods),
        ("devices", lambda memory: _by_identity(memory, memory.driver._inventory._held, lost)),
        ("tokens", lambda memory: _by_identity(memory, memory.tokens._held, lost)),
    ):
        yield what, of(leader), of(successor)


def _by_identity(memory: _Memory, held: Mapping[str, object], lost: set[Identity]) -> Mapping[Identity, object]:
    return {id_: found for uid, found in held.items() if (id_ := memory.identity(uid)) not in lost}


def _limits(memory: _Memory, lost: set[Identity], uncounted: set[Identity]) -> Mapping[Identity, object]:
    """What counts for the limits: class and namespace, and the units."""
    limits, found = memory.controller.ledger.limits, dict[Identity, object]()
    for uid, place in limits._place.items():
        if (id_ := memory.identity(uid)) not in lost:
            found[id_] = place if id_ in uncounted else (*place, limits._held[place][uid])
    return found


def _expected(memory: _Memory) -> Mapping[object, object]:
    """What standalone drivers were asked to allocate for pods that are not bound."""
    cluster = memory.controller.cluster
    bound = {pod.metadata.uid for pod in cluster.pods() if pod.spec.node_name}
    return {key: one for key, one in memory.controller.ledger._expected.items() if one[0].uid not in bound}


def _counted_pods(memory: _Memory) -> Mapping[str, str]:
    """The nodes that pods count for, but for unbound pods of which a claim can be used on several nodes, or is
    being allocated by a standalone driver."""
    ledger = memory.controller.ledger
    free = {uid for held in ledger if held.only_node is None for uid in held.pods}
    free |= {pod.uid for pod in ledger._expecting}
    usage, pods = memory.controller.cluster.usage, memory.controller.cluster.pods()
    free -= {pod.metadata.uid for pod in pods if pod.spec.node_name}
    return {uid: share.node for uid, share in usage._shares.items() if uid not in free}


def _differing(what: str, one: object, other: object) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from _differing(f"{what} of {key}", one.get(key), other.get(key))
    elif one != other:
        yield f"{what}: {one}, restored {other}"
