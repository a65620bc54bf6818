"""Requests to standalone drivers to deallocate: `status.deallocationRequested` of the claim's own record.

Nothing waits for the driver: the holding stays in the ledger, for no pod to use, until the record shows that the
driver has deallocated. No PodScheduling may ask it to allocate the claim by then, or it would do so again at once.
"""

from collections.abc import Awaitable, Callable, Iterable

from parley.api.models import PodScheduling
from parley.control.claim_records import ClaimRecords
from parley.control.holding import Holding, Phase
from parley.control.state import State
from parley.control.wakeups import Wakeups
from parley.kube.client import NotFound, OutcomeUnknown
from parley.sdk import PodReference


class DeallocationRequests:
    """Writes the requests. `close` withdraws what standalone drivers are asked for a pod."""

    def __init__(
        self,
        state: State,
        records: ClaimRecords,
        close: Callable[[PodReference], Awaitable[object]],
        wakeups: Wakeups,
    ) -> None:
        self._cluster = state.cluster
        self._records = records
        self._close = close
        self._wakeups = wakeups

    async def request(self, holding: Holding, *, pod_terminal: bool) -> bool:
        """Ask the standalone driver to deallocate. Returns whether the holding can be dropped without waiting for
        it.

        The stand-in of a pod that is gone is deleted when its claim is reconciled, that of a pod that has ended by
        `Deallocator.pod_ended`: the driver sees the deletion.
        """
        if pod_terminal and not holding.named:
            return True
        await self._close_all(holding)
        try:
            return await self._write(holding)
        except OutcomeUnknown:  # the driver may have begun: no pod may use the holding any more
            self._wake(holding)
            return False

    async def repeat(self, holding: Holding) -> bool:
        """Ask the standalone driver again. Returns whether the holding can be dropped. Raises what a client
        raises."""
        await self._close_all(holding)
        return await self._write(holding)

    async def _close_all(self, holding: Holding) -> None:
        for pod in self._interested_pods(holding):
            await self._close(pod)

    async def _write(self, holding: Holding) -> bool:
        """Write the request, unless the driver has deallocated. Returns whether it has; if not, an event will show
        when."""
        try:
            written = await self._records.request_deallocation(holding)
        except NotFound:
            return True
        if written and self._records.shows_unrequested_allocation(holding):
            self._wake(holding)
        return not self._records.shows_allocation(holding)

    def _wake(self, holding: Holding) -> None:
        self._wakeups.wake(("claim", holding.namespace, holding.claim))

    def is_due_again(self, holding: Holding) -> bool:
        """Whether the standalone driver has to be asked again to deallocate the holding: the answer to the request
        was lost, or the driver met it and then allocated once more, because a late write selected a node."""
        if not holding.standalone or holding.phase is not Phase.UNRESERVING:
            return False
        return not holding.record_written.is_settled or self._records.shows_unrequested_allocation(holding)

    def _interested_pods(self, holding: Holding) -> Iterable[PodReference]:
        """The holding's users, and the pods for which PodSchedulings ask the driver to allocate the claim."""
        found, key = dict(holding.pods), (holding.namespace, holding.claim)
        claim = self._cluster.claim(key)
        names = [pod.metadata.name for pod in self._cluster.pods_naming(key)]
        names += [owner.name for owner in claim.metadata.owner_references] if claim is not None else []
        for name in names:
            scheduling = self._cluster.scheduling((holding.namespace, name))
            if scheduling is not None and _selects_for(scheduling, holding.claim):
                owners = scheduling.metadata.owner_references
                found |= {owner.uid: PodReference(holding.namespace, name, owner.uid) for owner in owners}
        return found.values()


def _selects_for(scheduling: PodScheduling, claim: str) -> bool:
    """Whether the PodScheduling asks a standalone driver to allocate the claim."""
    asks = any(entry.resource_claim_name == claim for entry in scheduling.spec.claims)
    return asks and bool(scheduling.spec.selected_node)
