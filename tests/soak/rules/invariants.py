"""What must hold after every single change of the API's state, checked as the change happens.

Only what a change touches is looked at again, so that a check costs microseconds. What is found is kept in
`faults`, with the name of the rule. The rules:

    handed out twice       no device is held by two claims: by the claims' records, as long as a pod of theirs
                           lives, by what running pods were started with, by what nodes have prepared for
                           pods that were deleted by force, by what pods left there (`data`), and by the
                           records of claims that have a deadline, or that a standalone driver allocated
    bound too early        a pod is bound when its claims are allocated, and reserved for it
    bound elsewhere        every claim of a pod can be used on the node that it is bound to
    moved under a pod      a running pod's claim is never allocated other devices than it was started with
    exclusive, two pods    an exclusive claim is reserved for one living pod at most
    reserved, unallocated  nothing is reserved that is not allocated
    freed while kept       see `keeping`
    wrote without lease    no controller and no standalone driver writes while its Lease names another one

A scheduler's binding that arrives when it was taken for failed, and undone, binds a pod to whatever is there then.
And one whose binding failed may choose anew among the nodes that were offered if nobody stops it within a second;
so may one that was restarted while it bound a pod, if the node that it had nominated does not fit any more.

A claim controller that is behind takes a pod that was made anew under its name for the one before, and drops its
reservation, as upstream does, also between the scheduler's look and its binding. It reserves the claim for the
pod again when it sees it bound, which is looked at where all is at rest.

Nobody can remember what no object holds. So what a node has prepared is forgotten when its claim was collected
and then the controller was replaced, or was recreated, so that the node knows it by another UID, unless a
ClaimRelease says so; and a pod's use, also one that was deleted by force, is forgotten when a meddler cleared or
deleted its claim and then the controller was replaced before it made a ClaimRelease, or when he cleared a named
claim that does not record the pod (docs/limits.md).
"""

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace

from tests.soak.cluster.observed import Step
from tests.soak.rules.data import Data
from tests.soak.rules.keeping import NOWHERE, Keeping, allocation, is_kept
from tests.soak.rules.mirrors import Device, Json, Name, Record, far, identity_of_claim, is_far, is_parleys, read

Identity = tuple[str, str]
Use = tuple[str, Identity]
"""A pod, by its UID, and a claim of it."""
Source = tuple[str, Name | str]
"""A claim's record, or a running pod's use."""


@dataclass(slots=True)
class PodState:
    """A pod as far as the rules need it. `uses` is what it was started with, by claim, and `prepared` has the UIDs
    of these."""

    name: Name
    uid: str
    node: str
    alive: bool
    running: bool
    claims: tuple[tuple[str, str, bool], ...]
    uses: dict[Identity, tuple[tuple[Device, ...], bool]] = field(default_factory=dict)
    prepared: dict[Identity, str] = field(default_factory=dict)


@dataclass(slots=True)
class Hold:
    """One reason why a device is taken."""

    identity: Identity
    shared: bool


class Invariants:
    """Follows pods, claims, slices and the lease. `observe` takes every step."""

    def __init__(self, known: Callable[[], Set[Use]]) -> None:
        """`known` returns the uses that the leader knows of."""
        self._known = known
        self.faults: list[str] = []
        self.pods: dict[str, PodState] = {}
        self.records: dict[Name, Record] = {}
        self.holds: defaultdict[Device, dict[Source, Hold]] = defaultdict(dict)
        self.shares: dict[Device, int] = {}
        self.holders: dict[str, str] = {}
        """Who holds the Lease of controllers, and that of standalone drivers: by the beginning of their names."""
        self.meddled: set[Identity] = set()
        """Claims that another client cleared or deleted, and that are not put right yet."""
        self.forced: dict[str, PodState] = {}
        """Pods that are gone while their nodes have devices prepared for them."""
        self.let_go: set[str] = set()
        """Pods whose scheduler took back reservations: a binding of theirs failed, or was not heard of; or which
        it reserved an offer for, and was restarted."""
        self._dropped: set[tuple[str, str]] = set()
        """UIDs of living pods, and of built-in claims whose reservations for them the claim controller dropped."""
        self._names: dict[Name, str] = {}
        self._nodes: set[str] = set()
        self._claims_of: defaultdict[str, set[Name]] = defaultdict(set)
        self._named: dict[Name, Json] = {}
        self._noted: dict[str, str] = {}
        """UIDs of built-in claims that nodes may have prepared, by name of the ClaimRelease that records it."""
        self._identities: dict[str, Identity] = {}
        """Of Parley claims, by UID."""
        self._taken_back: set[Identity] = set()
        """Claims that were forced away while they held something of the standalone driver's."""
        self.keeping = Keeping()
        self.data = Data(self._data_removed)
        self._look: dict[tuple[str, str], Callable[[Step], None]] = {
            ("", "pods"): self._pod,
            ("", "nodes"): self._node,
            ("resource.k8s.io", "resourceclaims"): self._mirror,
            ("parley.dev", "resourceclaims"): self._named_claim,
            ("parley.dev", "resourceclasses"): self.keeping.class_changed,
            ("parley.dev", "claimreleases"): self._claim_release,
            ("resource.k8s.io", "resourceslices"): self._slice,
            ("coordination.k8s.io", "leases"): self._lease,
        }

    def observe(self, step: Step) -> None:
        """Look at one change."""
        kind = (step.resource.group, step.resource.plural)
        if kind[1] != "leases" and (of := step.who.partition("-")[0]) in self.holders:
            self._check_lease(step, self.holders[of])
        if (look := self._look.get(kind)) is not None:
            look(step)

    def memory_lost(self, used: Set[Use]) -> None:
        """A controller begins with what the API holds, or held when it was read: it knows these uses."""
        noted = set(self._noted.values())
        for identity in self.meddled:
            self._forget_unrecorded(identity, used)
        recorded = {claim["metadata"]["uid"] for claim in self._named.values()}
        cleared = {(uid, entry) for uid, entry in self.meddled if entry or uid not in recorded}
        shown = {record.uid for record in self.records.values() if record.identity not in cleared}
        known = shown | noted
        for pod in self.forced.values():
            self._forget_all_but(pod, known)
        self.data.memory_lost(recorded)

    def _forget_all_but(self, pod: PodState, known: set[str]) -> None:
        """What was prepared by another UID nobody can ask its node about."""
        for identity in [identity for identity in pod.uses if pod.prepared.get(identity) not in known]:
            self._unuse(pod, identity)

    def prepared(self, uid: str) -> None:
        """The node has prepared the pod's devices: it uses them from now on, also before it shows that it runs."""
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
        """It tries the node again that was chosen for a pod, and if that does not fit now, the others offered."""
        offers = (record for record in self.records.values() if record.offer)
        self.let_go.update(user for record in offers for user in record.users)

    def fault(self, rule: str, text: str) -> None:
        """A rule was broken."""
        self.faults.append(f"{rule}: {text}")

    # -- pods

    def _pod(self, step: Step) -> None:
        body, old = step.change.last.body, step.change.old
        uid = body["metadata"]["uid"]
        if step.change.new is None:
            self._names.pop((body["metadata"]["namespace"], body["metadata"]["name"]), None)
            gone = self.pods.pop(uid)
            self._left(gone, step)
            self._forget_far(gone)
            if gone.prepared and gone.node in self._nodes:
                shown = {record.uid for record in self.records.values()}
                self._forget_all_but(gone, shown | set(self._noted.values()))
                self.forced[uid] = gone
                self._hold_records_of(uid)
            else:
                self._ended(gone)
            return
        before = self.pods.get(uid)
        now = _pod_state(body)
        self.pods[uid] = now
        self._names[now.name] = uid
        if before is None:
            return
        now.uses, now.prepared = before.uses, before.prepared
        if before.alive and not now.alive:
            self._left(before, step)
            self._ended(now)
        if old is not None and not before.node and now.node and step.who != "scheduler (late)":
            self._bound(now)

    def _left(self, pod: PodState, step: Step) -> None:
        if pod.alive:
            self.keeping.ended(pod.name[1], [uid for uid, entry in pod.uses if not entry], step.seconds)

    def _forget_far(self, pod: PodState, identity: Identity | None = None) -> None:
        """What a standalone driver allocated is not waited for (docs/limits.md, forced deletion)."""
        for one in [one for one, (devices, _) in pod.uses.items() if far(devices) and identity in (None, one)]:
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

    def _bound(self, pod: PodState) -> None:
        for entry, name, named in pod.claims:
            where = f"pod {pod.name[1]}, claim {entry!r}"
            record = self.records.get((pod.name[0], name))
            if record is None:
                if (pod.uid, entry) not in self.meddled and not named:
                    self.fault("bound too early", f"{where} does not exist")
                continue
            if record.identity in self.meddled:
                continue
            if not record.definite:
                if not self._claims_going(pod):
                    self.fault("bound too early", f"{where} ({name}) is not allocated")
            elif pod.uid not in record.users and (pod.uid, record.uid) not in self._dropped:
                self.fault("bound too early", f"{where} ({name}) is not reserved for the pod")
            elif pod.uid in self.let_go and record.offer and pod.node in record.nodes:
                continue
            elif not record.is_usable_on(pod.node):
                text = f"has {_listed(record.devices)} for {' '.join(record.nodes)}, bound to {pod.node}"
                self.fault("bound elsewhere", f"{where} {text}")
            elif named:
                self._named_too(record, where)

    def _claims_going(self, pod: PodState) -> bool:
        """Whether a claim that the pod names is being deleted or is gone, while the pod was being bound: what it
        has besides may be released in that moment (limits.md: a pod is bound by its scheduler alone)."""
        claims = [self._named.get((pod.name[0], name)) for _, name, named in pod.claims if named]
        return any(claim is None or claim["metadata"].get("deletionTimestamp") for claim in claims)

    def _named_too(self, record: Record, where: str) -> None:
        """An earlier claim of the name that was forced away has no record of its own any more."""
        claim = self._named.get(record.name)
        if claim is None or claim["metadata"]["uid"] != record.identity[0]:
            return
        if not (claim.get("status") or {}).get("allocation"):
            self.fault("bound too early", f"{where}: the Parley claim is not allocated")

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
                    self._take(device, (pod.uid, record.name), hold)
                leaves = self.data.is_left and not record.identity[1] and not far(record.devices)
                if leaves and pod.node in self._nodes:
                    self.data.left(record.identity[0], pod.node, record.devices)
                    for device in record.devices:
                        self._take(device, ("data", record.identity[0]), hold)

    def _data_removed(self, claim: str, devices: tuple[Device, ...]) -> None:
        for device in devices:
            self.holds[device].pop(("data", claim), None)

    def _unuse(self, pod: PodState, identity: Identity) -> None:
        devices, _ = pod.uses.pop(identity)
        for device in devices:
            for source in [s for s, hold in self.holds[device].items() if s[0] == pod.uid]:
                if self.holds[device][source].identity == identity:
                    del self.holds[device][source]

    def _node(self, step: Step) -> None:
        """A machine that is gone has nothing prepared."""
        name = step.change.last.meta["name"]
        self.keeping.node_changed(step)
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
        self._noted.pop(name, None)
        if step.change.new is not None:
            self._noted[name] = step.change.new.body["spec"]["claim"]["uid"]

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
            self._gone(now, step.who)
            return
        self.records[now.name] = now
        if step.who == "scheduler" and before is not None and now.allocated:
            self.let_go.update(set(before.users) - set(now.users))
        if step.who == "claim-controller" and before is not None:
            lost = set(before.users) - set(now.users)
            self._dropped.update((user, now.uid) for user in lost if self.lives(user))
        if step.who == "meddler" and (not now.allocated or change.last.meta.get("deletionTimestamp")):
            self.meddled.add(now.identity)
            if not now.identity[1]:
                self._forget_unrecorded(now.identity, self._known())
        elif now.definite and now.users:
            self.meddled.discard(now.identity)
        self._hold(now)
        self._check_record(now)

    def _forget_unrecorded(self, identity: Identity, known: Set[Use]) -> None:
        """What a Parley claim does not record of its pods, and of generated claims all, but for what was prepared
        by claims that ClaimReleases have noted, and what is known."""
        noted = set(self._noted.values())
        claims = [claim for claim in self._named.values() if claim["metadata"]["uid"] == identity[0]]
        status = (claims[0].get("status") or {}) if claims else {}
        recorded = {user["uid"] for user in status.get("reservedFor") or ()}
        recorded |= {uid for uid, claim in known if claim == identity}
        for pod in self.pods.values():
            if identity in pod.uses and pod.uid not in recorded and pod.prepared.get(identity) not in noted:
                self._unuse(pod, identity)

    def _gone(self, record: Record, who: str) -> None:
        owner = record.identity[0]
        if who == "meddler" or (owner in self.pods and self.pods[owner].alive):
            self.meddled.add(record.identity)
        else:
            self.meddled.discard(record.identity)

    def _hold(self, record: Record) -> None:
        """Count what the record holds, as long as a pod of its lives."""
        self._release(record)
        for user in record.users:
            self._claims_of[user].add(record.name)
        if record.identity in self._taken_back:
            return
        if record.definite and any(self.lives(user) for user in record.users):
            for device in record.devices:
                self._take(device, ("record", record.name), Hold(record.identity, record.shared))

    def _release(self, record: Record) -> None:
        for device in record.devices:
            self.holds[device].pop(("record", record.name), None)

    def _take(self, device: Device, source: Source, hold: Hold) -> None:
        holds = self.holds[device]
        holds[source] = hold
        claims = {other.identity for other in holds.values()}
        if len(claims) == 1:
            return
        if not all(other.shared for other in holds.values()):
            self.fault("handed out twice", f"{'/'.join(device)}: {_told(holds)}")
        elif len(claims) > self.shares.get(device, 1):
            self.fault("handed out twice", f"{'/'.join(device)} has too few shares: {_told(holds)}")

    def lives(self, uid: str) -> bool:
        """Whether the pod of that UID is there and has not ended."""
        pod = self.pods.get(uid)
        return pod is not None and pod.alive

    def _check_record(self, record: Record) -> None:
        living = [user for user in record.users if self.lives(user)]
        if record.exclusive and len(living) > 1:
            names = ", ".join(self.pods[user].name[1] for user in living)
            self.fault("exclusive, two pods", f"claim {record.name[1]} is reserved for {names}")
        if record.users and not record.allocated:
            self.fault("reserved, unallocated", f"claim {record.name[1]}")
        for user in living:
            devices, _ = self.pods[user].uses.get(record.identity, (record.devices, False))
            if record.definite and devices != record.devices:
                text = f"started with {_listed(devices)}, now {_listed(record.devices)}"
                self.fault("moved under a pod", f"claim {record.name[1]} of {self.pods[user].name[1]}: {text}")

    def _named_claim(self, step: Step) -> None:
        body = step.change.last.body
        name = (body["metadata"]["namespace"], body["metadata"]["name"])
        for text in self.keeping.claim_changed(step):
            self.fault("freed while kept", text)
        if (before := self._named.pop(name, None)) is not None:
            self._release_kept(name, before)
        if step.change.new is None:
            if step.who == "user":
                self._forced_away(self._identity(body))
            return
        self._named[name] = body
        self._identity(body)
        self._hold_kept(name, body)
        status = body.get("status") or {}
        if status.get("reservedFor") and not status.get("allocation"):
            self.fault("reserved, unallocated", f"Parley claim {name[1]}")

    def _identity(self, claim: Json) -> Identity:
        """Of a Parley claim, which may lose its owner."""
        meta = claim["metadata"]
        return self._identities.setdefault(meta["uid"], identity_of_claim(meta))

    def _forced_away(self, identity: Identity) -> None:
        """An administrator took the claim's finalizers off: a standalone driver takes back what pods use
        (docs/limits.md)."""
        for pod in self.pods.values():
            self._forget_far(pod, identity)
        for record in self.records.values():
            if record.identity == identity and far(record.devices):
                self._taken_back.add(identity)
                self._release(record)

    def _hold_kept(self, name: Name, body: Json) -> None:
        """What the standalone driver records it holds, whoever uses it, until it is to be deallocated: it does so
        first, and clears the record when that is done."""
        ends = body["metadata"].get("deletionTimestamp") or (body.get("status") or {}).get("deallocationRequested")
        kept = not ends if is_far(body) else is_kept(body)
        _, devices, shared = (allocation(body) if kept else None) or NOWHERE
        for device in devices:
            self._take(device, ("kept", name), Hold(self._identity(body), shared))

    def _release_kept(self, name: Name, body: Json) -> None:
        for device in (allocation(body) or NOWHERE)[1]:
            self.holds[device].pop(("kept", name), None)

    # -- the rest

    def _slice(self, step: Step) -> None:
        spec = step.change.last.body["spec"]
        for device in spec.get("devices") or ():
            shares = device.get("capacity", {}).get("slices", {}).get("value", 1)
            self.shares[spec["pool"]["name"], device["name"]] = int(shares)

    def _lease(self, step: Step) -> None:
        holder = step.change.last.body["spec"].get("holderIdentity", "") if step.change.new else ""
        of = "driver" if step.change.last.meta["name"].startswith("parley-driver-") else "controller"
        self.holders[of] = holder

    def _check_lease(self, step: Step, holder: str) -> None:
        if holder and step.who not in (holder, f"{holder} (late)"):
            self.fault("wrote without lease", f"{step.who} writes while {holder} holds the lease")


def _pod_state(body: Json) -> PodState:
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    generated = {s["name"]: s.get("resourceClaimName") or "" for s in status.get("resourceClaimStatuses") or ()}
    claims = tuple(
        (e["name"], e.get("resourceClaimName") or generated.get(e["name"], ""), "resourceClaimName" in e)
        for e in spec.get("resourceClaims") or ()
    )
    return PodState(
        name=(meta["namespace"], meta["name"]),
        uid=meta["uid"],
        node=spec.get("nodeName", ""),
        alive=status.get("phase") not in ("Succeeded", "Failed"),
        running=status.get("phase") == "Running",
        claims=claims,
    )


def _listed(devices: tuple[Device, ...]) -> str:
    return " ".join("/".join(device) for device in devices)


def _told(holds: dict[Source, Hold]) -> str:
    return "; ".join(
        f"{_SOURCES.get(source[0], 'in use through')} {source[1][1] if source[0] != 'data' else source[1]}"
        f"{' (a share)' if hold.shared else ''}"
        for source, hold in holds.items()
    )


_SOURCES = {"record": "record of", "kept": "record of", "data": "data left for"}
