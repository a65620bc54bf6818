"""Rules about pods that are bound, after every step.

    bound too early   a pod is bound when its claims are allocated, and reserved for it
    bound elsewhere   every claim of a pod can be used on the node that it is bound to

A scheduler's binding that arrives when it was taken for failed, and undone, binds a pod to whatever is there then.
And one whose binding failed may choose anew among the nodes that were offered, for as long as the same offer
stands: until Parley has noticed and withdrawn it. So may one that was restarted while it bound a pod, if the node
that it had nominated does not fit any more.

A scheduler that is binding a pod when somebody clears its offer, and whose watch is behind, may see the next
allocation first, and take that for what it waits for.

A claim controller that is behind takes a pod that was recreated under its name for the one before, and drops its
reservation, as upstream does, also between the scheduler's look and its binding. It reserves the claim for the
pod again when it sees it bound, which is looked at at rest.
"""

from collections.abc import Callable, Mapping, Set

from tests.soak.rules.mirrors import Identity, Json, Name, Record, listed
from tests.soak.rules.pod_state import PodState

Offered = tuple[str, str]
"""A pod and a built-in claim of it, by their UIDs."""


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
        self._given_up: set[Offered] = set()
        """The offers that stand although their scheduler has given up the node that it had chosen: it took back
        the reservation, a binding failed and may have left the reservation, or it was restarted."""
        self._dropped: set[Offered] = set()
        """The reservations for living pods that the claim controller dropped, and nobody has made again."""
        self._cleared: set[str] = set()
        """UIDs of the pods of which an offer was cleared after the scheduler had chosen a node, so that Parley
        takes back their others. Their bindings may go on."""

    def scheduler_restarted(self) -> None:
        """The scheduler tries the node again that was chosen for a pod, and if that does not fit now, the others
        that were offered."""
        offers = (record for record in self._records.values() if record.offer)
        self._given_up.update((user, record.uid) for record in offers for user in record.users)

    def scheduled(self, pod: PodState, old: Json, new: Json) -> None:
        """The scheduler has changed the status of the pod, which is not bound. A binding has failed if that says
        so anew, or has lost its nomination: a failure like the one before is not written again. It may leave a
        reservation: if the pod is preempted before the second check of binding conditions, upstream does not take
        it back."""
        failed = _failure(new) not in ("", _failure(old))
        if not failed and not (_nominated(old) and not _nominated(new)):
            return
        self._cleared.discard(pod.uid)
        records = (self._records.get((pod.name[0], name)) for _, name, _ in pod.claims)
        self._given_up.update((pod.uid, record.uid) for record in records if record is not None and record.offer)

    def record_changed(self, who: str, before: Record, now: Record, lives: Callable[[str], bool]) -> None:
        """Remember whose reservations a scheduler or the claim controller has removed from the built-in claim.
        `lives` tells whether the pod of a UID exists and has not ended."""
        lost, gained = set(before.users) - set(now.users), set(now.users) - set(before.users)
        if (now.offer, now.nodes) != (before.offer, before.nodes):
            self._given_up = {one for one in self._given_up if one[1] != now.uid}
        if who == "meddler" and before.offer and not now.allocated:
            self._cleared.update(before.users)
        if who == "scheduler" and now.offer:
            self._given_up.update((user, now.uid) for user in lost)
        self._dropped -= {(user, now.uid) for user in gained}
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
            elif (pod.uid, record.uid) in self._given_up and pod.node in record.nodes:
                continue
            elif not record.is_usable_on(pod.node) and pod.uid not in self._cleared:
                text = f"has {listed(record.devices)} for {' '.join(record.nodes)}, bound to {pod.node}"
                self._fault("bound elsewhere", f"{where} {text}")
            elif named:
                self._check_named(record, where)

    def _is_claim_going(self, pod: PodState) -> bool:
        """Whether a claim that the pod names is being deleted or is gone, or somebody deleted one that was
        generated for it: while the pod was being bound, its other claims may have been released (docs/limits.md: a
        pod is bound by its scheduler alone)."""
        if any((pod.uid, entry) in self._meddled for entry, _, _ in pod.claims):
            return True
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


def _failure(pod: Json) -> str:
    """Why the latest attempt to bind the pod failed, by its condition; "" if it did not."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    found = (one for one in conditions if one["type"] == "PodScheduled" and one.get("reason") == "SchedulerError")
    return next((f"{one.get('message')} {one.get('lastTransitionTime')}" for one in found), "")


def _nominated(pod: Json) -> str:
    found: str = (pod.get("status") or {}).get("nominatedNodeName") or ""
    return found
