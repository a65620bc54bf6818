"""Rules about pods that are bound, after every step.

    bound too early   a pod is bound when its claims are allocated, and reserved for it
    bound elsewhere   every claim of a pod can be used on the node that it is bound to

A scheduler's binding that arrives when it was taken for failed, and undone, binds a pod to whatever is there then.
And one whose binding failed may choose anew among the nodes that were offered if nobody stops it within a second;
so may one that was restarted while it bound a pod, if the node that it had nominated does not fit any more.

A claim controller that is behind takes a pod that was recreated under its name for the one before, and drops its
reservation, as upstream does, also between the scheduler's look and its binding. It reserves the claim for the
pod again when it sees it bound, which is looked at at rest.
"""

from collections.abc import Callable, Mapping, Set

from tests.soak.rules.mirrors import Identity, Json, Name, Record, listed
from tests.soak.rules.pod_state import PodState


class Bindings:
    """Checks pods that are bound against what is recorded then."""

    def __init__(
        self,
        records: Mapping[Name, Record],
        claims: Mapping[Name, Json],
        meddled: Set[Identity],
        fault: Callable[[str, str], None],
    ) -> None:
        """The present built-in claims, Parley claims, and claims that other clients cleared or deleted."""
        self._records = records
        self._claims = claims
        self._meddled = meddled
        self._fault = fault
        self._let_go: set[str] = set()
        """UIDs of pods whose scheduler took back reservations, because a binding failed or its response was lost,
        or whose binding failed before its informer had seen the reservation, or for which it had reserved an offer
        when it was restarted."""
        self._dropped: set[tuple[str, str]] = set()
        """UIDs of living pods, and of built-in claims whose reservations for them the claim controller dropped."""

    def scheduler_restarted(self) -> None:
        """The scheduler tries the node again that was chosen for a pod, and if that does not fit now, the others
        that were offered."""
        offers = (record for record in self._records.values() if record.offer)
        self._let_go.update(user for record in offers for user in record.users)

    def scheduled(self, pod: Json) -> None:
        """The scheduler has changed the pod's status. A failed binding may leave a reservation: if the pod is
        preempted before the second check of binding conditions, upstream does not take it back."""
        conditions = (pod.get("status") or {}).get("conditions") or ()
        if any(one["type"] == "PodScheduled" and one.get("reason") == "SchedulerError" for one in conditions):
            self._let_go.add(pod["metadata"]["uid"])

    def record_changed(self, who: str, before: Record, now: Record, lives: Callable[[str], bool]) -> None:
        """Remember whose reservations a scheduler or the claim controller has removed from the built-in claim.
        `lives` tells whether the pod of a UID exists and has not ended."""
        lost = set(before.users) - set(now.users)
        if who == "scheduler" and now.allocated:
            self._let_go.update(lost)
        if who == "claim-controller":
            self._dropped.update((user, now.uid) for user in lost if lives(user))

    def bound(self, pod: PodState) -> None:
        """A pod was bound, by whomever."""
        for entry, name, named in pod.claims:
            where = f"pod {pod.name[1]}, claim {entry!r}"
            record = self._records.get((pod.name[0], name))
            if record is None:
                if (pod.uid, entry) not in self._meddled and not named:
                    self._fault("bound too early", f"{where} does not exist")
                continue
            if record.identity in self._meddled:
                continue
            if not record.definite:
                if not self._is_claim_going(pod):
                    self._fault("bound too early", f"{where} ({name}) is not allocated")
            elif pod.uid not in record.users and (pod.uid, record.uid) not in self._dropped:
                self._fault("bound too early", f"{where} ({name}) is not reserved for the pod")
            elif pod.uid in self._let_go and record.offer and pod.node in record.nodes:
                continue
            elif not record.is_usable_on(pod.node):
                text = f"has {listed(record.devices)} for {' '.join(record.nodes)}, bound to {pod.node}"
                self._fault("bound elsewhere", f"{where} {text}")
            elif named:
                self._check_named(record, where)

    def _is_claim_going(self, pod: PodState) -> bool:
        """Whether a claim that the pod names is being deleted or is gone: while the pod was being bound, its other
        claims may have been released (docs/limits.md: a pod is bound by its scheduler alone)."""
        claims = [self._claims.get((pod.name[0], name)) for _, name, named in pod.claims if named]
        return any(claim is None or claim["metadata"].get("deletionTimestamp") for claim in claims)

    def _check_named(self, record: Record, where: str) -> None:
        """The Parley claim is allocated, too. One of that name that was deleted without its finalizers is not
        recorded any more."""
        claim = self._claims.get(record.name)
        if claim is None or claim["metadata"]["uid"] != record.identity[0]:
            return
        if not (claim.get("status") or {}).get("allocation"):
            self._fault("bound too early", f"{where}: the Parley claim is not allocated")
