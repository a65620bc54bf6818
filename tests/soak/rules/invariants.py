"""What must hold after every single change of the API's state, checked as the change happens.

Only what a change touches is checked again, so that a check costs microseconds. What is found is kept in `faults`,
with the name of the rule. The rules in this module:

    moved under a pod      a running pod's claim is never allocated other devices than it was started with, whether
                           it is reserved for the pod or not
    exclusive, two pods    an exclusive claim is reserved for one living pod at most

The state that is followed here also serves the rules of `holds`, `bindings`, `leases`, `kept_claims` and `data`.

Nobody can know what no object records. So what a node has prepared is forgotten when its claim was collected
and then the controller was replaced, or was recreated, so that the node has it under another UID, unless a
ClaimRelease says so; and a pod's use, also one that was deleted by force, is forgotten when a meddler cleared or
deleted its claim and then the controller was replaced before it created a ClaimRelease (or a scheduler cleared a
named claim that was then removed by force), or when the meddler cleared a named claim that does not record the pod
(docs/limits.md).
"""

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import replace

from tests.soak.cluster.observed import Step
from tests.soak.rules.bindings import Bindings
from tests.soak.rules.data import Data, Place
from tests.soak.rules.holds import DeviceHolds, Hold
from tests.soak.rules.kept_claims import NOWHERE, KeptClaims, allocation, is_kept
from tests.soak.rules.leases import Leases
from tests.soak.rules.mirrors import (
    Device,
    Identity,
    Json,
    Name,
    Record,
    are_standalone,
    identity_of_claim,
    is_parleys,
    is_standalone,
    listed,
    read,
)
from tests.soak.rules.pod_state import PodState, Use, pod_state


class Invariants:
    """Follows pods, claims, slices, nodes and Leases. `observe` takes every step."""

    def __init__(self, known: Callable[[], Set[Use]]) -> None:
        """`known` returns the uses that are in the leader's ledger."""
        self._known = known
        self.faults: list[str] = []
        self.pods: dict[str, PodState] = {}
        self.records: dict[Name, Record] = {}
        self.holds = DeviceHolds(self.fault)
        self.meddled: set[Identity] = set()
        """Claims that another client cleared or deleted, and that Parley has not restored yet."""
        self._deallocated: set[Identity] = set()
        """Named claims that a scheduler deallocated, as no pod had reserved them."""
        self.forced: dict[str, PodState] = {}
        """Pods that are gone while their nodes have devices prepared for them, by UID."""
        self._names: dict[Name, str] = {}
        self._nodes: set[str] = set()
        self._claims_of: defaultdict[str, set[Name]] = defaultdict(set)
        """Names of the built-in claims that were ever reserved for a pod, by its UID."""
        self._parley_claims: dict[Name, Json] = {}
        self._in_releases: dict[str, str] = {}
        """UIDs of built-in claims that nodes may have prepared, by the name of the ClaimRelease."""
        self._identities: dict[str, Identity] = {}
        """Of Parley claims, by UID, as they were first seen."""
        self._taken_back: set[Identity] = set()
        """Claims that were deleted without their finalizers while they held devices of the standalone driver."""
        self.given_up: set[Use] = set()
        """Uses of pods that were bound and did not run yet when their claim, which was being deleted, was cleared:
        no kubelet can prepare that any more. One that had prepared it starts the pod all the same, and what it
        uses is held until its node has confirmed that it does not (docs/limits.md)."""
        self._bindings = Bindings(self.records, self._parley_claims, self.meddled, self.fault)
        self._leases = Leases(self.fault)
        self.kept_claims = KeptClaims()
        self.data = Data(self._data_removed, self._uses_named, self.fault)
        self._handlers: dict[tuple[str, str], Callable[[Step], None]] = {
            ("", "pods"): self._pod,
            ("", "nodes"): self._node,
            ("resource.k8s.io", "resourceclaims"): self._mirror,
            ("parley.dev", "resourceclaims"): self._named_claim,
            ("parley.dev", "resourceclasses"): self.kept_claims.class_changed,
            ("parley.dev", "claimreleases"): self._claim_release,
            ("resource.k8s.io", "resourceslices"): self.holds.slice_changed,
            ("coordination.k8s.io", "leases"): self._leases.lease_changed,
        }

    def observe(self, step: Step) -> None:
        """Check one change."""
        kind = (step.resource.group, step.resource.plural)
        if kind[1] != "leases":
            self._leases.check(step)
        if (handle := self._handlers.get(kind)) is not None:
            handle(step)

    def memory_lost(self, used: Set[Use]) -> None:
        """Another controller has begun, with what it restored from the API: these uses."""
        noted = set(self._in_releases.values())
        recorded = {claim["metadata"]["uid"] for claim in self._parley_claims.values()}
        deallocated = {(uid, entry) for uid, entry in self._deallocated if uid not in recorded}
        for identity in self.meddled | deallocated:
            self._forget_unrecorded(identity, used)
        cleared = deallocated | {(uid, entry) for uid, entry in self.meddled if entry or uid not in recorded}
        shown = {record.uid for record in self.records.values() if record.identity not in cleared}
        known = shown | noted
        for pod in self.forced.values():
            self._forget_all_but(pod, known)
        self.data.memory_lost(recorded)

    def _forget_all_but(self, pod: PodState, known: set[str]) -> None:
        """Nobody can ask the node about what it has prepared under another UID."""
        for identity in [identity for identity in pod.uses if pod.prepared.get(identity) not in known]:
            self._unuse(pod, identity)

    def prepared(self, uid: str) -> None:
        """The node has prepared the devices: the pod uses them from now on, even before it is shown as running."""
        pod = self.pods.get(uid)
        if pod is not None and pod.alive:
            self._started(pod)

    def unprepared(self, uid: str) -> None:
        """The node has nothing prepared for the pod any more."""
        if (pod := self.forced.pop(uid, None)) is not None:
            self._ended(pod)
        elif uid in self.pods:
            self.pods[uid].prepared.clear()

    def scheduler_restarted(self) -> None:
        """The cluster's scheduler was restarted."""
        self._bindings.scheduler_restarted()

    def fault(self, rule: str, text: str) -> None:
        """Note that a rule was broken."""
        self.faults.append(f"{rule}: {text}")

    # -- pods

    def _pod(self, step: Step) -> None:
        body, old = step.change.last.body, step.change.old
        uid = body["metadata"]["uid"]
        if step.change.new is None:
            self._names.pop((body["metadata"]["namespace"], body["metadata"]["name"]), None)
            gone = self.pods.pop(uid)
            self._keep_after(gone, step)
            self._forget_standalone(gone)
            if gone.prepared and gone.node in self._nodes:
                shown = {record.uid for record in self.records.values()}
                self._forget_all_but(gone, shown | set(self._in_releases.values()))
                self.forced[uid] = gone
                self._hold_records_of(uid)
            else:
                self._ended(gone)
            return
        before = self.pods.get(uid)
        now = pod_state(body)
        self.pods[uid] = now
        self._names[now.name] = uid
        if before is None:
            return
        now.uses, now.prepared = before.uses, before.prepared
        if step.who == "scheduler" and old is not None and not now.node:
            self._bindings.scheduled(now, old.body, body)
        if before.alive and not now.alive:
            self._keep_after(before, step)
            self._ended(now)
        if old is not None and not before.node and now.node and step.who != "scheduler (late)":
            self._bindings.bound(now)

    def _keep_after(self, pod: PodState, step: Step) -> None:
        if pod.alive:
            self.kept_claims.ended(pod.name[1], [uid for uid, entry in pod.uses if not entry], step.seconds)

    def _forget_standalone(self, pod: PodState, identity: Identity | None = None) -> None:
        """No node is waited for that has prepared what a standalone driver allocated (docs/limits.md, forced
        deletion)."""
        for one in [
            one for one, (devices, _) in pod.uses.items() if are_standalone(devices) and identity in (None, one)
        ]:
            self._unuse(pod, one)
            pod.prepared.pop(one, None)

    def _ended(self, pod: PodState) -> None:
        for identity in list(pod.uses):
            self._unuse(pod, identity)
        self._hold_records_of(pod.uid)

    def _hold_records_of(self, uid: str) -> None:
        for name in list(self._claims_of[uid]):
            if (record := self.records.get(name)) is not None:
                self._hold(record)

    def _started(self, pod: PodState) -> None:
        for _, name, _ in pod.claims:
            record = self.records.get((pod.name[0], name))
            if record is not None and record.identity in self._taken_back:
                continue
            # A node has no devices of other nodes: a pod that its creator put there uses none of them.
            if record is not None and record.definite and pod.node in record.nodes:
                pod.uses[record.identity] = (record.devices, record.shared)
                pod.prepared[record.identity] = record.uid
                hold = Hold(record.identity, record.shared)
                for device in record.devices:
                    self.holds.take(device, (pod.uid, record.name), hold)
                leaves = self.data.is_left and not record.identity[1] and not are_standalone(record.devices)
                if leaves and pod.node in self._nodes:
                    place = Place(record.identity[0], pod.node, record.folder)
                    self.data.left(place, pod.uid, record.devices)
                    for device in record.devices:
                        self.holds.take(device, ("data", " ".join(place)), hold)

    def _data_removed(self, place: Place, devices: tuple[Device, ...]) -> None:
        for device in devices:
            self.holds.drop(device, ("data", " ".join(place)))

    def _uses_named(self, uid: str, claim: str) -> bool:
        """Whether the pod of that UID uses the named claim of that UID, even if only its node knows of it."""
        pod = self.pods.get(uid) or self.forced.get(uid)
        return pod is not None and (claim, "") in pod.uses

    def _unuse(self, pod: PodState, identity: Identity) -> None:
        devices, _ = pod.uses.pop(identity)
        for device in devices:
            self.holds.drop_use(device, pod.uid, identity)

    def _node(self, step: Step) -> None:
        """A node that is gone has nothing prepared."""
        name = step.change.last.meta["name"]
        self.kept_claims.node_changed(step)
        if step.change.new is not None:
            self._nodes.add(name)
            return
        self._nodes.discard(name)
        self.data.machine_gone(name)
        for living in self.pods.values():
            if living.node == name:
                living.prepared.clear()
        for pod in [pod for pod in self.forced.values() if pod.node == name]:
            self.unprepared(pod.uid)

    # -- claims

    def _claim_release(self, step: Step) -> None:
        self.data.release_changed(step)
        name = step.change.last.meta["name"]
        self._in_releases.pop(name, None)
        if step.change.new is not None:
            self._in_releases[name] = step.change.new.body["spec"]["claim"]["uid"]

    def _mirror(self, step: Step) -> None:
        change = step.change
        if not is_parleys(change.last.body):
            return
        now = read(change.last.body)
        before = self.records.pop(now.name, None)
        if before is not None:
            self._release(before)
            if before.uid == now.uid:
                now = replace(now, identity=before.identity)
        if change.new is None:
            self._mirror_deleted(now, step.who)
            return
        self.records[now.name] = now
        if before is not None:
            self._bindings.record_changed(step.who, before, now, self.lives)
        going = bool(change.last.meta.get("deletionTimestamp"))
        if step.who == "meddler" and (not now.allocated or going):
            if going and not now.allocated and before is not None:
                starting = (uid for uid in before.users if self.lives(uid) and not self.pods[uid].running)
                self.given_up.update((uid, now.identity) for uid in starting if self.pods[uid].node)
            self.meddled.add(now.identity)
            if not now.identity[1]:
                self._forget_unrecorded(now.identity, self._known())
        elif now.definite and now.users:
            self.meddled.discard(now.identity)
            self._deallocated.discard(now.identity)
        elif step.who.endswith("scheduler") and not now.allocated and not now.identity[1]:
            self._deallocated.add(now.identity)
        self._hold(now)
        self._check_record(now)

    def _forget_unrecorded(self, identity: Identity, known: Set[Use]) -> None:
        """Forget the claim's uses that its Parley claim does not record (a generated claim has none), but for what
        was prepared under UIDs that ClaimReleases name, and for the uses `known`."""
        noted = set(self._in_releases.values())
        claims = [claim for claim in self._parley_claims.values() if claim["metadata"]["uid"] == identity[0]]
        status = (claims[0].get("status") or {}) if claims else {}
        recorded = {user["uid"] for user in status.get("reservedFor") or ()}
        recorded |= {uid for uid, claim in known if claim == identity}
        for pod in self.pods.values():
            if identity in pod.uses and pod.uid not in recorded and pod.prepared.get(identity) not in noted:
                self._unuse(pod, identity)

    def _mirror_deleted(self, record: Record, who: str) -> None:
        owner = record.identity[0]
        if who == "meddler" or (owner in self.pods and self.pods[owner].alive):
            self.meddled.add(record.identity)
        else:
            self.meddled.discard(record.identity)

    def _hold(self, record: Record) -> None:
        """Take the devices of the record, as long as one of its pods lives."""
        self._release(record)
        for user in record.users:
            self._claims_of[user].add(record.name)
        if record.identity in self._taken_back:
            return
        if record.definite and any(self.lives(user) for user in record.users):
            for device in record.devices:
                self.holds.take(device, ("record", record.name), Hold(record.identity, record.shared))

    def _release(self, record: Record) -> None:
        for device in record.devices:
            self.holds.drop(device, ("record", record.name))

    def lives(self, uid: str) -> bool:
        """Whether the pod of that UID exists and has not ended."""
        pod = self.pods.get(uid)
        return pod is not None and pod.alive

    def _check_record(self, record: Record) -> None:
        living = [user for user in record.users if self.lives(user)]
        if record.exclusive and len(living) > 1:
            names = ", ".join(self.pods[user].name[1] for user in living)
            self.fault("exclusive, two pods", f"claim {record.name[1]} is reserved for {names}")
        for pod in self.pods.values() if record.definite else ():
            devices, _ = pod.uses.get(record.identity, (record.devices, False))
            if pod.alive and devices != record.devices:
                text = f"started with {listed(devices)}, now {listed(record.devices)}"
                self.fault("moved under a pod", f"claim {record.name[1]} of {pod.name[1]}: {text}")

    def _named_claim(self, step: Step) -> None:
        body = step.change.last.body
        name = (body["metadata"]["namespace"], body["metadata"]["name"])
        for text in self.kept_claims.claim_changed(step):
            self.fault("freed while kept", text)
        if (before := self._parley_claims.pop(name, None)) is not None:
            self._release_kept(name, before)
        if step.change.new is None:
            if step.who == "user":
                self._finalizers_removed(body)
            return
        self._parley_claims[name] = body
        self._identity(body)
        self._hold_kept(name, body)

    def _identity(self, claim: Json) -> Identity:
        """Of a Parley claim, also after it has lost its owner."""
        meta = claim["metadata"]
        return self._identities.setdefault(meta["uid"], identity_of_claim(meta))

    def _finalizers_removed(self, claim: Json) -> None:
        """The claim was deleted without its finalizers: a standalone driver then deallocates what pods still use
        (docs/limits.md), also if the built-in claim is cleared at that moment, and restored."""
        identity = self._identity(claim)
        for pod in self.pods.values():
            self._forget_standalone(pod, identity)
        if is_standalone(claim):
            self._taken_back.add(identity)
        for record in self.records.values():
            if record.identity == identity and are_standalone(record.devices):
                self._taken_back.add(identity)
                self._release(record)

    def _hold_kept(self, name: Name, body: Json) -> None:
        """Take the devices of a Parley claim that is kept without users, or that a standalone driver allocated.
        The driver holds them, whoever uses them, until deallocation is requested: it deallocates first, and
        clears the record then."""
        ends = body["metadata"].get("deletionTimestamp") or (body.get("status") or {}).get("deallocationRequested")
        kept = not ends if is_standalone(body) else is_kept(body)
        _, devices, shared = (allocation(body) if kept else None) or NOWHERE
        for device in devices:
            self.holds.take(device, ("kept", name), Hold(self._identity(body), shared))

    def _release_kept(self, name: Name, body: Json) -> None:
        for device in (allocation(body) or NOWHERE)[1]:
            self.holds.drop(device, ("kept", name))
