"""Asks nodes for receipts: what a pod that was deleted by force used there may still be prepared.

A kubelet unprepares a pod's claims before it says that the pod has ended. So only a pod that was bound and whose
object went before that leaves anything behind, and only then anything is written here. First it is recorded that
the node owes a receipt, then the API lets go of the allocation, and only then the node is asked: a receipt means
that nothing can be prepared later. Each step looks at what is there, so that all may be repeated.

A node that is gone, or marked as out of service, owes nothing. What is free when all have answered is for
`giving_back` to do; drivers outside of the controller decide for themselves when they hand something on.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import structlog

from parley.api.builtin import Node
from parley.api.conditions import told
from parley.api.models import ResourceClaim
from parley.api.names import (
    CLAIM_UID_ANNOTATION,
    OUT_OF_SERVICE_TAINT,
    RELEASING_FROM_ANNOTATION,
    RELEASING_LABEL,
)
from parley.api.resources import CLAIMS
from parley.control.cluster import Cluster, Key
from parley.control.ledger import Holding, Ledger
from parley.control.mirror import asked
from parley.control.receipts import (
    is_asked,
    is_record,
    noted,
    owing,
    prepared_uid,
    prepared_uids,
    record,
    record_name,
    released,
    said,
)
from parley.control.records import Records, allocation_status
from parley.kube.client import AlreadyExists, Client, NotFound
from parley.kube.clock import Clock, rfc3339
from parley.sdk import PodReference

log = structlog.get_logger(__name__)


def out_of_service(node: Node | None) -> bool:
    """Whether nothing can be prepared on the node any more; None is a node that does not exist."""
    return node is None or any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints)


class Releases:
    """Receipts that nodes owe for holdings. Whoever calls has the holding's lock."""

    def __init__(self, client: Client, cluster: Cluster, ledger: Ledger, records: Records, clock: Clock) -> None:
        self._client = client
        self._cluster = cluster
        self._ledger = ledger
        self._records = records
        self._clock = clock

    def owe(self, holding: Holding, pod: PodReference, nodes: Iterable[str]) -> None:
        """The pod used the holding on one of the nodes and is gone, and no kubelet has said that it ended."""
        if holding.outside or not holding.node_part or not (holding.recorded or holding.uncertain):
            return
        if pod.uid in holding.forced:
            return  # the node may have answered since, while a write of ours has yet to succeed
        for node in nodes:
            holding.forced.add(pod.uid)
            if node not in holding.owed and not self._lost(node):
                holding.owed.append(node)

    def _lost(self, node: str) -> bool:
        return out_of_service(self._cluster.node(node))

    async def ask(self, holding: Holding, *, used: bool) -> None:
        """Ask the first node that owes something. `used`: others use the claim, which stays allocated."""
        node = holding.owed[0]
        try:
            claim = await self._noted(holding, node)
            uids = prepared_uids(claim) if claim is not None else ()
            if claim is not None and not used:
                await self._records.clear_mirror(holding)
                holding.recorded = holding.uncertain = False
                claim = await self._tell(claim, holding, node)
            if claim is not None:
                holding.asked = await self._let_answer(claim, node, uids)
                return
        except NotFound:
            if not holding.named:
                raise  # somebody deleted the record: it is made anew
        log.warning("no receipt is asked for: the claim was forced away", **_fields(holding), node=node)
        holding.owed.clear()

    async def _noted(self, holding: Holding, node: str) -> ResourceClaim | None:
        """The claim that says that the node owes a receipt; None if there is none to say so."""
        claim = self._cluster.claim(_key(holding))
        mirror = self._cluster.mirror((holding.namespace, holding.claim))
        if claim is not None and _notes(claim, node) and is_record(claim) != holding.named:
            return claim
        if not holding.named:
            return await self._create(holding, node)
        if mirror is None:
            return None
        known = {"resourceVersion": claim.metadata.resource_version} if claim is not None else {}
        body = {"metadata": {**known, "annotations": noted(node, (mirror.metadata.uid,))}}
        return await self._client.patch(CLAIMS, holding.claim, body, holding.namespace)

    async def _create(self, holding: Holding, node: str) -> ResourceClaim:
        mirror = self._cluster.mirror((holding.namespace, holding.claim))
        asks = asked(mirror) if mirror is not None else None
        body = record(holding, asks, allocation_status(holding), node)
        try:
            return await self._client.create(CLAIMS, body, holding.namespace)
        except AlreadyExists:
            found = await self._client.get(CLAIMS, record_name(holding.uid), holding.namespace)
            if not is_record(found):
                raise
            return found

    async def _tell(self, claim: ResourceClaim, holding: Holding, node: str) -> ResourceClaim:
        """The claim's status shows what it waits for, and since when."""
        conditions = told(claim.status.conditions, rfc3339(self._clock()), said(node))
        if conditions is None and claim.status.state == "releasing":
            return claim
        status: dict[str, Any] = {"reservedFor": None, "state": "releasing"}
        if not holding.named:
            status.update(allocation_status(holding))
        if conditions is not None:
            status["conditions"] = conditions
        log.info("waits for a receipt", **_fields(holding), node=node)
        meta = claim.metadata
        body = {**_as_given(claim), "status": status}
        return await self._client.patch(CLAIMS, meta.name, body, meta.namespace, subresource="status")

    async def _let_answer(self, claim: ResourceClaim, node: str, uids: Sequence[str]) -> int:
        """From now on the node plugin may answer. Returns the claim's resourceVersion.

        The answer to an earlier question, of a pod that was not the last one, may just have removed all marks.
        """
        meta = claim.metadata
        if not is_asked(claim) or owing(claim) != node:
            marked = {"labels": {RELEASING_LABEL: "true"}, "annotations": noted(node, uids)}
            body = {"metadata": {**_as_given(claim)["metadata"], **marked}}
            claim = await self._client.patch(CLAIMS, meta.name, body, meta.namespace)
        return int(claim.metadata.resource_version)

    async def settle(self, holding: Holding) -> None:
        """See which nodes have answered, or never will, and ask the next."""
        while holding.owed:
            node = holding.owed[0]
            if self._lost(node):
                await self._waive(holding, node)
            elif not holding.asked or self._is_garbled(holding, node):
                await self.ask(holding, used=bool(holding.pods))
                return
            elif not self._received(holding):
                return
            _answered(holding, node)

    def _received(self, holding: Holding) -> bool:
        """Whether a named claim shows the receipt; that of a generated one is that its record goes."""
        claim = self._cluster.claim((holding.namespace, holding.claim))
        if not holding.named or claim is None or int(claim.metadata.resource_version) < holding.asked:
            return False
        return not owing(claim) and not is_asked(claim)

    def _is_garbled(self, holding: Holding, node: str) -> bool:
        """Whether somebody changed what the node is asked by, so that it can't answer, and has not answered."""
        claim = self._cluster.claim(_key(holding))
        if claim is None or int(claim.metadata.resource_version) < holding.asked or self._received(holding):
            return False
        return owing(claim) != node or not is_asked(claim)

    async def _waive(self, holding: Holding, node: str) -> None:
        """Nobody will answer, and nobody needs to."""
        claim = self._cluster.claim(_key(holding))
        if claim is None or owing(claim) != node:
            return
        log.info("no receipt is needed: the node is out of service", **_fields(holding), node=node)
        await self._unmark(claim)

    async def _unmark(self, claim: ResourceClaim) -> None:
        meta = claim.metadata
        annotations = {RELEASING_FROM_ANNOTATION: None, CLAIM_UID_ANNOTATION: None}
        marks = {"labels": {RELEASING_LABEL: None}, "annotations": annotations}
        body = {"metadata": {**_as_given(claim)["metadata"], **marks}}
        try:
            if is_record(claim):
                await self._client.delete(CLAIMS, meta.name, meta.namespace, uid=meta.uid)
            else:
                await self._client.patch(CLAIMS, meta.name, body, meta.namespace)
        except NotFound:
            pass  # the node answered after all

    async def tidy(self, claim: ResourceClaim) -> None:
        """A record is left over that nothing waits for."""
        await self._unmark(claim)

    def gone(self, claim: ResourceClaim) -> None:
        """A claim that was in the cache is gone. Needs no lock: it only notes what has happened."""
        meta = claim.metadata
        key = (meta.namespace, released(claim) if is_record(claim) else meta.name)
        holding = self._ledger.of_claim(*key)
        if holding is None or not holding.owed:
            return
        if holding.named:
            if meta.uid == holding.uid:
                holding.owed.clear()
        elif meta.name == record_name(holding.uid):
            if is_asked(claim) and prepared_uid(claim) == holding.uid and owing(claim) == holding.owed[0]:
                _answered(holding, holding.owed[0])
            else:
                holding.asked = 0  # somebody deleted it before the node could answer


def _key(holding: Holding) -> Key:
    """The Parley claim that shows what the node owes."""
    return holding.namespace, holding.claim if holding.named else record_name(holding.uid)


def _answered(holding: Holding, node: str) -> None:
    if node in holding.owed:
        holding.owed.remove(node)
        holding.asked = 0


def _notes(claim: ResourceClaim, node: str) -> bool:
    """Whether the claim says all that the node has to know."""
    return owing(claim) == node and bool(prepared_uid(claim))


def _as_given(claim: ResourceClaim) -> dict[str, Any]:
    """The state that a write was decided on: one that arrives late, after the node has answered, is refused."""
    return {"metadata": {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}}


def _fields(holding: Holding) -> dict[str, str]:
    return {"claim": f"{holding.namespace}/{holding.claim}", "driver": holding.driver}
