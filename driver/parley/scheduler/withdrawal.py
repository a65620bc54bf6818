"""Withdraws questions to standalone drivers about claims whose class was changed to an embedded driver.

The question is removed from the PodScheduling, and the stand-ins in which the drivers were to record allocations
are deleted. The drivers release what they have begun, if need be when they run again; nothing waits for that. An
allocation that they have recorded already is used like any other.
"""

from collections.abc import Sequence, Set

from parley.api.builtin import Pod
from parley.control.claims.podclaims import PodClaim
from parley.control.objects.pod import reference
from parley.control.objects.standin import owner_uid
from parley.control.records import Records
from parley.scheduler.attempts import StandaloneAttempt
from parley.scheduler.pods import Pods
from parley.scheduler.standalone import StandaloneSessions


class Withdrawal:
    """Withdraws such questions and stand-ins for pods of both scheduling paths, by comparing what was asked with
    the claims' present classes."""

    def __init__(self, records: Records, pods: Pods, sessions: StandaloneSessions) -> None:
        self._records = records
        self._pods = pods
        self._sessions = sessions

    async def withdraw(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        """Withdraw what no longer applies to the pod. Returns whether anything was written. Raises what a client
        raises; Conflict if a driver has written meanwhile."""
        inside = [claim for claim in claims if _is_embedded(claim)]
        if not inside:
            return False
        closed = await self._end_question(pod, {claim.entry for claim in inside})
        return await self._delete_stand_ins(pod, inside) or closed

    async def _end_question(self, pod: Pod, entries: Set[str]) -> bool:
        """End the question if it is about any of these claims. Other claims are asked about by a new question."""
        attempt = self._pods.existing_attempt(reference(pod))
        mine = attempt.standalone if attempt is not None else StandaloneAttempt()
        before = None if mine.resumed else self._sessions.scheduling(pod)  # an earlier leader's
        asked = {claim.name for claim in before.spec.claims} if before is not None else set[str]()
        if entries.isdisjoint(asked.union(claim.entry for claim in mine.claims)):
            return False
        self._sessions.give_up(reference(pod))
        closed = await self._pods.reporter.withdraw(pod)  # if this fails, the next call withdraws it
        self._pods.attempt(pod).standalone = StandaloneAttempt(rounds=mine.rounds, resumed=True)
        return closed or bool(mine.claims)

    async def _delete_stand_ins(self, pod: Pod, claims: Sequence[PodClaim]) -> bool:
        deleted = False
        for claim in claims:
            stand_in = claim.written if claim.claim is None else None
            if stand_in is not None and owner_uid(stand_in) == pod.metadata.uid:
                deleted = await self._records.stand_ins.delete_unused(stand_in) or deleted
        return deleted


def _is_embedded(claim: PodClaim) -> bool:
    """Whether a driver in this process allocates the claim, or has allocated it."""
    standalone = claim.holding.standalone if claim.holding is not None else claim.standalone
    return claim.problem is None and not standalone
